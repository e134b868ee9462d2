"""Fairness and back-pressure: time-slices long work, and pauses reading while a full batch waits."""

from __future__ import annotations

import asyncio

from legato.core.broker import Broker
from legato.core.consumers import Browser, Consumer
from legato.server.links.link_roles import DeliveryLink
from legato.server.messages.executor import Executor
from legato.server.messages.streams import WINDOW_BYTES
from legato.server.messages.uploads import Uploads
from legato.server.shell import Peer, Shell


class Fairness:
    """Plans slices of long work, and pauses reading from peers."""

    def __init__(
        self,
        shell: Shell,
        broker: Broker,
        executor: Executor,
        uploads: Uploads,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._shell = shell
        self._broker = broker
        self._executor = executor
        self._uploads = uploads
        self._loop = loop
        self._kept_back: dict[Peer, dict[Consumer | Browser, None]] = {}
        """Receivers whose sessions' windows are closed: what they were given waits in the engine, and takes memory."""
        self._throttled = False
        self._waiting: set[Peer] = set()
        """Peers that are not read from because they send large messages."""
        self._scanning = False
        self._streaming = False

    def plan(self) -> None:
        """Something was done: see to what is to go on soon."""
        executor = self._executor
        if executor.scan_again and not self._scanning:
            self._scanning = True
            self._loop.call_soon(self._go_on)
        executor.scan_again = False
        if executor.streams.can_go_on and not self._streaming:
            self._streaming = True
            self._loop.call_soon(self._stream)
        shown, executor.shown = executor.shown, {}
        for browser in shown:
            if _window_is_closed(browser):
                self._broker.browsers.block(browser, True)
                self._keep_back(browser)
        if executor.paced:
            paced, executor.paced = executor.paced, []
            self._loop.call_soon(self._resume, paced)
        self._throttle()

    def _go_on(self) -> None:
        """The next slice of what takes long; between two slices everybody has a turn."""
        self._scanning = False
        if not self._shell.ending and self._shell.may_serve():
            self._broker.go_on(self._shell.clock.now_us())
            self._shell.advance()

    def _stream(self) -> None:
        """More of the large messages that go out."""
        self._streaming = False
        if not self._shell.ending and self._shell.may_serve():
            self._executor.streams.go_on()
            self._shell.advance()

    def _resume(self, paced: list[Consumer]) -> None:
        """Consumers whose sockets took what they were given go on; the others when their sockets say so."""
        if self._shell.ending or not self._shell.may_serve():
            return
        now_us = self._shell.clock.now_us()
        for consumer in paced:
            if not consumer.port.peer.paused:
                self.resume(consumer, now_us)
        self._shell.advance()

    def resume(self, receiver: Consumer | Browser, now_us: int) -> None:
        """Its socket takes more: so may the receiver, unless what it was given waits for its session's window."""
        if _window_is_closed(receiver):
            self._keep_back(receiver)
        elif isinstance(receiver, Browser):
            self._broker.browsers.block(receiver, False)
        else:
            self._broker.receivers.resume(receiver, now_us)

    def _keep_back(self, receiver: Consumer | Browser) -> None:
        self._kept_back.setdefault(receiver.port.peer, {})[receiver] = None

    def review_windows(self, peer: Peer, now_us: int) -> bool:
        """Something came from the peer: its windows may be open again. Whether anybody waited for that."""
        kept_back = self._kept_back.pop(peer, {})
        if not peer.paused:
            for receiver in kept_back:
                if receiver in peer.receivers:
                    self.resume(receiver, now_us)
        return bool(kept_back)

    def forget(self, peer: Peer) -> None:
        """It is gone."""
        self._kept_back.pop(peer, None)

    def _throttle(self) -> None:
        """Read no more while a whole batch waits behind the one being committed: memory stays bounded."""
        full = self._broker.tick_is_full
        if full != self._throttled and not self._shell.ending:
            self._throttled = full
            for peer in self._shell.peers:
                peer.pause_reading(full)
            self._waiting.clear()
        if self._broker.uploads.has_larges and not full and not self._shell.ending:
            self._throttle_uploads()

    def _throttle_uploads(self) -> None:
        """Senders of large messages wait sooner than the others, so that commits stay short."""
        uploading = self._uploads.peers if self._broker.uploads.are_full else set()
        for peer in self._waiting - uploading:
            peer.pause_reading(False)
        for peer in uploading - self._waiting:
            peer.pause_reading(True)
        self._waiting = uploading


def _window_is_closed(receiver: Consumer | Browser) -> bool:
    """Whether much of what its session was given waits for the peer to open the session's window (AMQP 2.5.6)."""
    outlet: DeliveryLink = receiver.port
    return outlet.link.session.outgoing_bytes >= WINDOW_BYTES
