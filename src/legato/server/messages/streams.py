"""Outgoing large messages: read from the store at the receiver's pace; the next messages wait behind them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

import msgspec

from legato.amqp.codec.stubs import Stub, read_stub, stub_head
from legato.amqp.engine.link import Sender
from legato.core.broker import Broker
from legato.core.consumers import Browser, Consumer
from legato.core.message import Message
from legato.core.records import Archive
from legato.server.links.link_roles import DeliveryLink
from legato.server.shell import Peer

log = logging.getLogger("legato.streams")

WINDOW_BYTES = 256 << 10
"""What a receiver has not taken yet: with more than that nothing is read for it."""
CHUNKS_IN_ONE_GO = 4
"""Then others have a turn."""


class Parcel(msgspec.Struct, gc=False):
    """A message to be sent. `sent` is called when its last byte has been handed over."""

    data: bytes
    tag: bytes
    message: Message | None
    sent: Callable[[], object] | None = None

    @property
    def settled(self) -> bool:
        """Nobody wants to hear what becomes of it."""
        return self.message is None


class Stream:
    """A large message in transfer over a link, and the messages behind it."""

    def __init__(self, receiver: Consumer | Browser, parcel: Parcel, stub: Stub) -> None:
        outlet: DeliveryLink = receiver.port
        self.receiver = receiver
        self.link: Sender = outlet.link
        self.peer: Peer = outlet.peer
        self.waiting: deque[Parcel] = deque()
        self.drain = False
        """The receiver is to be told that this was all."""
        self.credit_left = 0
        """Of what it was granted for messages that were not sent."""
        self.begin(parcel, stub)

    def begin(self, parcel: Parcel, stub: Stub) -> None:
        """Send what is before the body."""
        self.parcel = parcel
        self.stub = stub
        self.index = 0
        self.left = stub.size
        handle = self.link.begin(parcel.tag, parcel.message, settled=parcel.settled)
        if parcel.message is not None:
            parcel.message.handle = handle
        self.link.push(stub_head(parcel.data))

    @property
    def can_go_on(self) -> bool:
        """Whether the receiver takes more now, or there is nobody any more who could."""
        return self.link.closed or not (self.peer.paused or self.link.session.outgoing_bytes >= WINDOW_BYTES)


class Streams:
    """The outgoing large messages, by link.

    While one goes out over a link its consumer is blocked: it gets nothing else.

    Args:
        archive: where the parts are.
        unblock: a receiver may get messages again.
    """

    def __init__(self, broker: Broker, archive: Archive, unblock: Callable[[Consumer | Browser], None]) -> None:
        self._broker = broker
        self._archive = archive
        self._unblock = unblock
        self._running: dict[Sender, Stream] = {}

    @property
    def can_go_on(self) -> bool:
        """Whether `go_on` has something to do now."""
        return any(stream.can_go_on for stream in self._running.values())

    @property
    def are_running(self) -> bool:
        """Whether any large message is on its way."""
        return bool(self._running)

    def is_busy(self, receiver: Consumer | Browser) -> bool:
        """Whether a large message is on its way to it."""
        return receiver.port.link in self._running

    def send(self, receiver: Consumer | Browser, parcel: Parcel) -> None:
        """Send a message, a stub or not, behind those that are on their way."""
        link: Sender = receiver.port.link
        stream = self._running.get(link)
        if stream is not None:
            if parcel.message is not None:
                parcel.message.handle = 0
            stream.waiting.append(parcel)
            link.reserved += 1
            link.credit -= 1
        elif (stub := read_stub(parcel.data)) is None:
            _send_whole(link, parcel)
        elif not link.closed:
            self._running[link] = Stream(receiver, parcel, stub)
            self._block(receiver)

    def drained(self, receiver: Consumer | Browser) -> bool:
        """A drain was answered; True if that must wait for what is on its way."""
        stream = self._running.get(receiver.port.link)
        if stream is not None:
            stream.drain = True
        return stream is not None

    def go_on(self) -> None:
        """Send what receivers take now."""
        for stream in [stream for stream in self._running.values() if stream.can_go_on]:
            self._go_on(stream)

    def _go_on(self, stream: Stream) -> None:
        for _ in range(CHUNKS_IN_ONE_GO):
            if stream.left == 0 or not self._send_part(stream):
                self._end_message(stream)
            if stream.link not in self._running or not stream.can_go_on:
                return

    def _send_part(self, stream: Stream) -> bool:
        """Send the next part; False if no more is to come."""
        chunk = self._archive.chunk(stream.stub.large, stream.index)
        if chunk is None:
            log.warning("- a large message went while it was on its way to %s", stream.peer.name)
            stream.link.abort()
            return False
        stream.index += 1
        stream.left -= len(chunk)
        if not stream.link.push(chunk):
            return False
        if stream.left:
            stream.peer.flush()
        return True

    def _end_message(self, stream: Stream) -> None:
        """That was all of it: the next ones follow."""
        link = stream.link
        if link.finish():
            _tell(stream.parcel)
        while stream.waiting and not link.closed:
            parcel = stream.waiting.popleft()
            link.reserved -= 1
            link.credit += 1
            if parcel.message is not None and parcel.message.consumer is not stream.receiver:
                # It was taken back meanwhile, and may be another's by now.
                stream.credit_left += 1
                continue
            stub = read_stub(parcel.data)
            if stub is not None:
                stream.begin(parcel, stub)
                return
            _send_whole(link, parcel)
        del self._running[link]
        if not link.closed:
            receiver = stream.receiver
            if stream.drain and not receiver.credit:  # else it was granted since, and is the broker's to use
                link.drained()
            elif stream.credit_left and isinstance(receiver, Consumer):
                credit = receiver.credit + stream.credit_left
                self._broker.receivers.flow(receiver, credit, receiver.draining, self._broker.now_us)
            stream.peer.flush()
            if not stream.peer.paused:
                self._unblock(stream.receiver)

    def _block(self, receiver: Consumer | Browser) -> None:
        if isinstance(receiver, Consumer):
            self._broker.receivers.block(receiver, True, self._broker.now_us)
        else:
            self._broker.browsers.block(receiver, True)


def _send_whole(link: Sender, parcel: Parcel) -> None:
    handle = link.send(parcel.data, parcel.tag, parcel.message, settled=parcel.settled)
    if parcel.message is not None:
        parcel.message.handle = handle
    _tell(parcel)


def _tell(parcel: Parcel) -> None:
    if parcel.sent is not None:
        parcel.sent()
