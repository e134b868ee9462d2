"""Incoming large messages: their parts are stored as they arrive, and a stub stands for the message."""

from __future__ import annotations

from legato import limits
from legato.amqp.codec.stubs import Stub, body_bytes_least, find_body, make_stub
from legato.amqp.codec.values import malformed
from legato.amqp.engine.events import TransferPart
from legato.amqp.engine.link import Receiver
from legato.core.broker import Broker
from legato.core.refusals import FULL
from legato.core.transaction import Transaction
from legato.errors import ProtocolError
from legato.server.links.refused import Refused
from legato.server.shell import Peer

NO_ROOM = "there was no room for a part of it"


class Upload:
    """One large message.

    Args:
        wanted: False for one that is known to be stored already: its bytes are passed over.
    """

    def __init__(self, broker: Broker, *, wanted: bool) -> None:
        self.wanted = wanted
        self.refusal: ProtocolError | Refused | None = None
        """Why it will be refused once its sender is done with it."""
        self._broker = broker
        self._large = broker.uploads.begin() if wanted else 0
        self._head = b""
        self._least = 0
        self._size = 0
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0
        self._index = 0

    def add(self, data: bytes, *, first: bool) -> None:
        """More of it came; the first part must have all that is before the body."""
        if self.refusal is not None:
            return
        if first:
            try:
                at = find_body(data[: limits.LARGE_MESSAGE_BYTES])
                self._least = body_bytes_least(data, at)
            except ProtocolError as error:
                self.refuse(error)
                return
            self._head, data = data[:at], data[at:]
        self._size += len(data)
        if self.wanted:
            self._pieces.append(data)
            self._pieces_bytes += len(data)
            if self._pieces_bytes >= limits.CHUNK_BYTES:
                self._store_pieces()

    def _store_pieces(self) -> None:
        data = b"".join(self._pieces)
        begin = 0
        while len(data) - begin >= limits.CHUNK_BYTES:
            self._store(data[begin : begin + limits.CHUNK_BYTES])
            begin += limits.CHUNK_BYTES
        self._pieces = [data[begin:]]
        self._pieces_bytes = len(data) - begin

    def _store(self, chunk: bytes) -> None:
        self._broker.uploads.add_chunk(self._large, self._index, chunk)
        self._index += 1

    def finish(self) -> bytes:
        """It came whole: returns what stands for it, to be published like any message.

        Raises:
            ProtocolError, Refused: it cannot be accepted.
        """
        if self.refusal is None and self._size < self._least:
            self.refusal = malformed("the body ends before its end")
        if self._large and self._broker.uploads.is_spoilt(self._large):
            self.refusal = Refused(FULL, NO_ROOM)
        if self.refusal is not None:
            raise self.refusal
        if self._pieces_bytes:
            self._store(b"".join(self._pieces))
        return make_stub(self._head, Stub(self._large, self._size))

    def refuse(self, refusal: ProtocolError | Refused) -> None:
        """It will not be accepted: what there is of it goes."""
        self.refusal = refusal
        self.end()

    def end(self, transaction: Transaction | None = None) -> None:
        """No more comes; `transaction` says by what it was published."""
        self._pieces.clear()
        self._pieces_bytes = 0
        if self.wanted:
            self.wanted = False
            self._broker.uploads.end(self._large, transaction)


class Uploads:
    """The incoming large messages, by link."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._running: dict[Receiver, Upload] = {}

    def take(self, event: TransferPart, *, wanted: bool) -> Upload:
        """A part came; `wanted` is heeded with the first one."""
        if event.first:
            self._running[event.link] = Upload(self._broker, wanted=wanted)
        upload = self._running[event.link]
        upload.add(event.data, first=event.first)
        if event.last:
            del self._running[event.link]
        return upload

    @property
    def peers(self) -> set[Peer]:
        """Whose they are."""
        return {link.context.peer for link in self._running if link.context is not None}

    def give_up(self, link: Receiver) -> None:
        """The message that was coming over the link does not come."""
        upload = self._running.pop(link, None)
        if upload is not None:
            upload.end()

    def sweep(self) -> None:
        """Give up what was coming over links that ended.

        A link may be closed as soon as that was read, while what came before waits for its turn: what hung on it tells.
        """
        for link in [link for link in self._running if link.context is None]:
            self.give_up(link)
