"""Bodies that pass the engine by: it would copy each six times.

The engine gets a token where a frame has a body, and all else of the frame: so it is the same frame to it, of another
size. Who reads the message finds the token, and takes the body from the bytes that were received. What is sent is given
to the engine as a token, too, and the body put where the token is in what the engine has written.

A token begins with 16 bytes that the process makes up for each connection: no peer can send one. It never leaves the
process, and what it names is looked up: if it is not there, the connection ends with an internal error.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from cproton_ffi import ffi, lib

from legato.amqp.engine.batch import POINTERS, RUN_MAX

try:
    from legato.amqp import _batch
except ImportError:
    _batch = None  # type: ignore[assignment]

BODY_MIN = 512
"""Bodies of so many bytes and more pass by: of smaller ones copies cost less than what it takes to do without."""
ALONE_MIN = 2048
"""Bodies of so many bytes and more are sent from where they are; smaller ones are joined first."""
FRAME_REST_BYTES = 512
"""So much of a frame is for what is not the body."""
_TOKEN_BYTES = 32
_KEPT_TIMES_MAX = 4
"""What waits for the peer keeps no more than so many times its size in memory."""
MARK_AT, MARK_END = -32, -16
"""Where in a message that the engine has a token's mark is."""
_AMQP = b"AMQP\x00\x01\x00\x00"
_EMPTY_FRAME = b"\x00\x00\x00\x08\x02\x00\x00\x00"
_TRANSFER = b"\x00\x53\x14"
_PLACE = struct.Struct("@QIIN")
"""A `body` of the module's: number, begin, size, place of the token."""


class Bypass:
    """The bodies of one connection (docs/decisions/0099).

    Args:
        transport: the connection's engine.

    Attributes:
        mark: how tokens begin.
        received: what was received and has bodies in it that were not read yet, by its number.
        ended: senders that are freed, and whose messages the engine may write once more.
        is_misled: whether the engine takes messages of the peer's for some that are to be sent. The connection ends for
            it, and until then no transfer is sent, as one might have a token.
    """

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.way = _batch.ffi.new("bypass *")
        if not _batch.lib.begin_bypass(self.way, BODY_MIN):
            raise OSError("the system has no random numbers")
        self.mark = b"".join(self.way.mark)
        self._left = _batch.ffi.new("size_t *")
        self._begun = bytearray()
        """The beginning of a frame with a body, as long as not all of it is there."""
        self._frame_bytes = 0
        """The size of that frame."""
        self._number = 0
        self.received: dict[int, memoryview] = {}
        self._sent: dict[int, _Sent] = {}
        self.ended: list[Any] = []
        self.is_misled = False
        self._uses_tokens = False
        """Whether the engine ever was given a token: then all that it writes is looked at."""

    def push(self, data: bytes) -> None:
        """Have the engine receive bytes, without the bodies in it."""
        if not self._begun:
            self._receive(memoryview(data))
            return
        view = memoryview(data)
        rest_bytes = self._frame_bytes - len(self._begun)
        self._begun += view[:rest_bytes]
        if len(data) < rest_bytes:
            # The engine sees that the peer is there.
            push(self._transport, _EMPTY_FRAME)
            return
        frame, self._begun = self._begun, bytearray()
        self._receive(memoryview(frame))
        if len(data) > rest_bytes:
            self._receive(view[rest_bytes:])

    def _receive(self, data: memoryview) -> None:
        self._number += 1
        left = self._left
        start = ffi.from_buffer(data)
        if _batch.lib.receive_apart(self.way, self._transport, start, len(data), self._number, left):
            self.received[self._number] = data
            self._uses_tokens = True
        if left[0]:
            self._begun += data[-left[0] :]
            self._frame_bytes = int.from_bytes(self._begun[:4], "big")

    @property
    def begun_bytes(self) -> int:
        """What came of a frame that is not there yet as a whole, and the engine does not have."""
        return len(self._begun)

    def give_up(self) -> None:
        """The peer sends no more: the engine gets what came of a frame, and says what is wrong."""
        begun, self._begun = self._begun, bytearray()
        push(self._transport, begun)

    def pieces(self, places: Any, count: int, own: memoryview) -> list[memoryview]:
        """Messages that were taken, as `places` tells; those that have not passed the engine by lie in `own`.

        Raises:
            RuntimeError: what one lies in is not kept.
        """
        pieces: list[memoryview] = []
        whole, last, wanted_bytes = own, 0, 0
        for number, begin, size, _ in _fields(places, count):
            if number != last:
                whole, last = self._kept(number) if number else own, number
            pieces.append(whole[begin : begin + size])
            wanted_bytes += size
        if sum(map(len, pieces)) != wanted_bytes:
            raise _gone()
        return pieces

    def _kept(self, number: int) -> memoryview:
        kept = self.received.get(number)
        if kept is None:
            raise _gone()
        return kept

    def refuses_next(self) -> bool:
        """Whether the message at the collector's head was read and is larger than it may be.

        Raises:
            RuntimeError: it was read in part, which cannot be: nobody may be given it.
        """
        if self.way.is_mixed:
            raise RuntimeError("a message has passed the engine by in part")
        return bool(self.way.is_too_large)

    def whole(self, data: bytes) -> bytes:
        """A message that was read from the engine and ends with a token, with its body.

        Raises:
            RuntimeError: the body is not there.
        """
        place = _batch.ffi.new("body *")
        _batch.lib.is_apart(self.way, ffi.from_buffer(data), len(data), place)
        body = self._kept(place.number)[place.begin : place.begin + place.size]
        if len(body) != place.size:
            raise _gone()
        return data[:-_TOKEN_BYTES] + body

    def send_run(self, link: Any, pn_link: Any, content: bytes | memoryview, ends: array[int], tags: bytes) -> Any:
        """`batch.send_run`; `link` is whose messages they are."""
        made = ffi.new(POINTERS, len(ends))
        self._number += 1
        size = _batch.lib.send_apart(
            self.way,
            pn_link,
            len(ends),
            ffi.from_buffer(content),
            ffi.cast("uint32_t *", ffi.from_buffer(ends)),
            ffi.from_buffer(tags),
            made,
            self._number,
        )
        if size:
            self._sent[self._number] = sent = _Sent(memoryview(content), link, size)
            sent.keep_from(0)
            self._uses_tokens = True
            link.session.apart_bytes += size
        return made

    def send_all(self, link: Any, pn_link: Any, bodies: Sequence[bytes], tags: bytes) -> Any:
        """Likewise of bodies by themselves, none of them smaller than `BODY_MIN`."""
        count = len(bodies)
        made = ffi.new(POINTERS, count)
        first = self._number + 1
        self._number += count
        sizes = array("I", map(len, bodies))
        _batch.lib.send_tokens(
            self.way,
            pn_link,
            count,
            ffi.cast("uint32_t *", ffi.from_buffer(sizes)),
            ffi.from_buffer(tags),
            made,
            first,
        )
        self._uses_tokens = True
        for number, body in enumerate(bodies, first):
            self._sent[number] = _Sent(memoryview(body), link, len(body))
        link.session.apart_bytes += sum(sizes)
        return made

    def fill(self, written: list[bytes]) -> list[bytes | memoryview]:
        """What the engine has written, whole frames, with the bodies.

        Raises:
            RuntimeError: a body is not there any more.
        """
        if self.is_misled:
            return [*_without_transfers(b"".join(written))]
        if not self._uses_tokens:
            return written  # type: ignore[return-value]
        data = bytearray().join(written)
        view = memoryview(data)
        pieces: list[bytes | memoryview] = []
        begin, count, wanted_bytes = 0, RUN_MAX, len(data)
        next_at = _batch.ffi.new("size_t *", len(_AMQP) if data.startswith(_AMQP) else 0)
        places = take_places()
        while count == RUN_MAX:
            count = _batch.lib.find_apart(self.way, ffi.from_buffer(data), len(data), next_at, places, RUN_MAX)
            for number, bodies in groupby(_fields(places, count), key=_number):
                sent = self._sent.get(number)
                if sent is None:
                    raise _gone()
                content, left, base, end = sent.content, sent.left, sent.base, sent.base
                for _, first, size, at in bodies:
                    if first < end:
                        raise _gone()
                    end = first + size
                    pieces += (view[begin:at], content[first - base : end - base])
                    sent.left -= size
                    wanted_bytes += size - _TOKEN_BYTES
                    begin = at + _TOKEN_BYTES
                sent.link.session.apart_bytes -= left - sent.left
                if sent.left <= 0:
                    del self._sent[number]
                else:
                    sent.keep_from(end)
        give_places(places)
        if not pieces and next_at[0] == len(data):
            return written  # type: ignore[return-value]
        if begin < len(data):
            pieces.append(view[begin:])
        if sum(map(len, pieces)) != wanted_bytes or next_at[0] != len(data):
            raise _gone()
        return pieces

    def forget(self, link: Any) -> None:
        """A sender is freed that both sides have ended.

        The engine still writes what it was given, if the peer's window opened in the read that ended it. Behind the
        detach, or the end, that is written with it nothing more of it goes.
        """
        if any(sent.link is link for sent in self._sent.values()):
            self.ended.append(link)

    def forget_ended(self) -> None:
        """The engine has written: what it was given of senders that have ended goes nowhere any more."""
        for link in self.ended:
            for number in [number for number, sent in self._sent.items() if sent.link is link]:
                link.session.apart_bytes -= self._sent.pop(number).left
        self.ended.clear()

    def clear(self) -> None:
        """The connection is over."""
        self.received.clear()
        self._begun = bytearray()
        self._sent.clear()
        self.ended.clear()


class _Sent:
    """Messages that were given to a sender.

    Attributes:
        content: what their bodies lie in.
        base: where that begins in what was given.
        link: the sender.
        left: the size of those that are not on their way.
    """

    __slots__ = ("base", "content", "left", "link")

    def __init__(self, content: memoryview, link: Any, left: int) -> None:
        self.content = content
        self.base = 0
        self.link = link
        self.left = left

    def keep_from(self, at: int) -> None:
        """All before `at` is on its way: what lies in much more than is left does not keep that in memory."""
        if memoryview(self.content.obj).nbytes > _KEPT_TIMES_MAX * self.left:
            self.content = memoryview(bytes(self.content[at - self.base :]))
            self.base = at


def _gone() -> RuntimeError:
    """Nobody is given another message instead."""
    return RuntimeError("a message that passed the engine by is not there any more")


def _without_transfers(data: bytes) -> Iterator[bytes]:
    """The frames that the engine wrote, but for transfers."""
    at = len(_AMQP) if data.startswith(_AMQP) else 0
    yield data[:at]
    while at < len(data):
        end = at + int.from_bytes(data[at : at + 4], "big")
        if data[at + 8 : at + 11] != _TRANSFER:
            yield data[at:end]
        at = end


def push(transport: Any, data: bytes | bytearray) -> None:
    """Have the engine receive bytes as they are, as many as it takes."""
    start, at, size = ffi.from_buffer(data), 0, len(data)
    while at < size and (taken := lib.pn_transport_push(transport, start + at, size - at)) > 0:
        at += taken


_number = itemgetter(0)
_rooms: list[Any] = []


def take_places() -> Any:
    """Room for what the module says of a run's bodies, for one thread; give it back with `give_places`."""
    try:
        return _rooms.pop()
    except IndexError:
        return _batch.ffi.new("body[]", RUN_MAX)


def give_places(places: Any) -> None:
    """Another connection may use it."""
    _rooms.append(places)


def _fields(places: Any, count: int) -> Iterator[tuple[int, int, int, int]]:
    return _PLACE.iter_unpack(_batch.ffi.buffer(places, count * _PLACE.size))
