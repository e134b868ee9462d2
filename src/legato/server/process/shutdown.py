"""Shutdown of a service: store what was requested, then close the connections; or stop at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from legato.amqp import names
from legato.amqp.codec.types import UInt
from legato.core.broker import Broker
from legato.server.messages.commits import Commits
from legato.server.shell import Peer, Shell

log = logging.getLogger("legato.service")

_REASONS = {
    "shutdown": "the broker stops",
    "switchover": "another broker serves from now on",
    "lapsed": "the broker has fenced itself",
    "lost": "another broker may serve",
}


class Farewell:
    """Ends one service.

    Args:
        holds_back: whether answers wait until it is known that no other broker is the primary.
    """

    def __init__(
        self,
        shell: Shell,
        broker: Broker,
        commits: Commits,
        return_window_ms: Callable[[], int],
        stop_timers: Callable[[], None],
        holds_back: Callable[[], bool],
    ) -> None:
        self._shell = shell
        self._broker = broker
        self._return_window_ms = return_window_ms
        self._stop_timers = stop_timers
        self._holds_back = holds_back
        self._commits = commits
        self._alone = asyncio.Event()

    def is_alone(self) -> None:
        """The last peer has gone."""
        self._alone.set()

    async def finish(self, why: str, timeout_s: float = 5.0) -> None:
        """Take nothing more, commit and confirm what was asked before, and record the end of the epoch.

        Peers stay connected and are told nothing until `dismiss`.
        """
        shell = self._shell
        self._stop_timers()
        shell.ending = True
        for peer in shell.peers:
            peer.pause_reading(True)
        if not shell.stopped:
            self._broker.end(why)
            self._commits.idle.clear()
            shell.advance()
            try:
                await asyncio.wait_for(self._commits.idle.wait(), timeout_s)
            except TimeoutError:
                log.warning("! commits were still running after %s s", timeout_s)
        shell.stopped = True
        self._commits.close()

    async def dismiss(self, why: str, timeout_s: float = 1.0) -> None:
        """Tell the peers to go elsewhere, and wait until they have (amqp.md A11).

        Args:
            timeout_s: those that have not gone after this time are dropped.
        """
        self._alone.clear()
        peers = self._shell.peers
        if self._holds_back():
            self._part([peer for peer in peers if not peer.ended], why, _REASONS[why])
        info = {names.FAREWELL: why, names.RETURN_WINDOW: UInt(self._return_window_ms())}
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

    def abort(self, why: str = "", told: str = "") -> None:
        """Stop at once: nothing more is committed, nothing more becomes visible.

        Args:
            why: as in `dismiss`; empty if peers are just cut off.
            told: why they are left, in a sentence for them.
        """
        shell = self._shell
        if shell.stopped:
            return
        shell.ending = shell.stopped = True
        self._commits.idle.set()
        self._stop_timers()
        left = [peer for peer in shell.peers if not peer.ended]
        for peer in left:
            peer.ended = True
            if told:
                peer.withhold()
            else:
                peer.drop()
        if told:
            # Not here: one of them may be in the middle of being served.
            asyncio.get_running_loop().call_soon(self._part, left, why, told)
        self._commits.close()

    def _part(self, left: list[Peer], why: str, told: str) -> None:
        info = {names.FAREWELL: why, names.RETURN_WINDOW: UInt(self._return_window_ms())}
        for peer in left:
            peer.part_unanswered(told, info)
