"""Heartbeats of a primary: a small message to each link on `$heartbeat` while the broker's loop runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import msgspec

from legato.amqp import names
from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, encode_message
from legato.amqp.engine.link import Sender
from legato.ha.heartbeat_connection import BACKUP_USER, Heartbeat
from legato.server.links.link_roles import HeartbeatLink
from legato.server.shell import Peer

_TAG = b"heartbeat"


class Heartbeats:
    """Sends heartbeats (CONTRACT B1, B20).

    Args:
        interval_s: how often.
        activation_interval_s: after how long without one backups are to act; they are told.
        touch: has what was put on a link of a peer written.
        sent: is called after heartbeats were put on links, to have them written.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        interval_s: float,
        activation_interval_s: float,
        epoch: int,
        touch: Callable[[Peer], None],
        sent: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._epoch = epoch
        self._touch = touch
        self._sent = sent
        self._ports: set[HeartbeatLink] = set()
        self._set(interval_s, activation_interval_s)
        self._timer = loop.call_later(interval_s, self._beat)

    def set_intervals(self, interval_s: float, activation_interval_s: float) -> None:
        """Change them; backups are told at once."""
        self._set(interval_s, activation_interval_s)
        self._timer.cancel()
        self._beat()

    def _set(self, interval_s: float, activation_interval_s: float) -> None:
        self._interval_s = interval_s
        document = msgspec.json.encode(Heartbeat(os.getpid(), self._epoch, interval_s, activation_interval_s))
        self._message = encode_message(header=Header(), body=DataBody(document))

    @property
    def unrecorded(self) -> list[str]:
        """Addresses of backups that have no member record."""
        # Where users log in, a backup does so as one: nobody else is taken for it.
        backups = [port for port in self._ports if port.peer.user == BACKUP_USER or not port.peer.realm]
        said = [port.link.remote_properties.get(names.UNRECORDED) for port in backups]
        return [listen for listen in said if isinstance(listen, str) and listen]

    def attach(self, peer: Peer, link: Sender) -> HeartbeatLink:
        """`link` wants heartbeats; the first one goes with its first credit."""
        port = HeartbeatLink(peer, link)
        self._ports.add(port)
        return port

    def gone(self, port: HeartbeatLink) -> None:
        """Its link has ended."""
        self._ports.discard(port)

    def flow(self, port: HeartbeatLink) -> None:
        """Its link has credit."""
        if not port.begun:
            port.begun = True
            self._send(port)

    def stop(self) -> None:
        """No more."""
        self._timer.cancel()

    def _beat(self) -> None:
        self._timer = self._loop.call_later(self._interval_s, self._beat)
        for port in self._ports:
            self._send(port)
            self._touch(port.peer)
        self._sent()

    def _send(self, port: HeartbeatLink) -> None:
        if port.link.credit > 0:
            port.link.send(self._message, _TAG, None, settled=True)
