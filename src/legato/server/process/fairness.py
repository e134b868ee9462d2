"""Fairness and back-pressure: time-slices long work, and pauses reading while a full batch waits."""

from __future__ import annotations

import asyncio

from legato.core.broker import Broker
from legato.core.consumers import Consumer
from legato.server.messages.executor import Executor
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
                self._broker.receivers.resume(consumer, now_us)
        self._shell.advance()

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
