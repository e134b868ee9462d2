"""The end of a service: what was asked is stored, then its peers are told to go elsewhere; or all stops at once."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from legato.amqp import names
from legato.amqp.types import UInt

if TYPE_CHECKING:
    from legato.server.commits import Commits
    from legato.server.service import Service

log = logging.getLogger("legato.service")

_REASONS = {
    "shutdown": "the broker stops",
    "switchover": "another broker serves from now on",
    "lapsed": "the broker has fenced itself",
    "lost": "another broker may serve",
}


class Farewell:
    """Ends one service."""

    def __init__(self, service: Service, commits: Commits) -> None:
        self._service = service
        self._commits = commits
        self._alone = asyncio.Event()

    def is_alone(self) -> None:
        """The last peer has gone."""
        self._alone.set()

    async def finish(self, why: str, timeout_s: float = 5.0) -> None:
        """Take nothing more, commit and confirm what was asked before, and record the end of the epoch.

        Peers stay connected and are told nothing until `dismiss`.
        """
        service = self._service
        service.stop_timers()
        service.ending = True
        for peer in service.peers:
            peer.pause_reading(True)
        if not service.stopped:
            service.broker.end(why)
            self._commits.idle.clear()
            service.advance()
            try:
                await asyncio.wait_for(self._commits.idle.wait(), timeout_s)
            except TimeoutError:
                log.warning("! commits were still running after %s s", timeout_s)
        service.stopped = True
        self._commits.close()

    async def dismiss(self, why: str, timeout_s: float = 1.0) -> None:
        """Tell the peers to go elsewhere, and wait until they have (amqp.md A11).

        Args:
            timeout_s: those that have not gone after this time are dropped.
        """
        self._alone.clear()
        peers = self._service.peers
        info = {names.FAREWELL: why, names.RETURN_WINDOW: UInt(self._service.return_window_ms)}
        for peer in list(peers):
            if not peer.ended:
                peer.amqp.close("amqp:connection:forced", _REASONS[why], info)
                peer.part()
        try:
            if peers:
                await asyncio.wait_for(self._alone.wait(), timeout_s)
        except TimeoutError:
            for peer in list(peers):
                peer.drop()

    def abort(self) -> None:
        """Stop at once: nothing more is committed, nothing more becomes visible."""
        service = self._service
        if service.stopped:
            return
        service.ending = service.stopped = True
        self._commits.idle.set()
        service.stop_timers()
        for peer in list(service.peers):
            if not peer.ended:
                peer.ended = True
                peer.drop()
        self._commits.close()
