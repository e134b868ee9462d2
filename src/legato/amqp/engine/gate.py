"""Gate before the engine: bounds what frames make the engine keep besides messages.

Some 70 bytes for each element of a list, map or array, until the link or the connection is gone; and ten bytes can
claim any number of elements that have no bytes (PROTON-2954). So frames are looked at before the engine sees them, by
the optional module `_batch`, or by Python, which does the same.
"""

from __future__ import annotations

import re
import struct
from enum import IntEnum

from legato import limits
from legato.amqp.codec.decoding import DEPTH_MAX
from legato.amqp.engine import batch
from legato.errors import ProtocolError

EMPTY_ELEMENTS_MAX = 256
"""Elements of arrays that have no bytes, in one frame."""
_HEADER_BYTES = 8
_SHORT_TRANSFER = (b"\x02\x00\x00\x00\x00\x53\x14\xc0", b"\x02\x00\x00\x01\x00\x53\x14\xc0")
"""Behind its size, a transfer on one of the first channels up to the size of its fields."""
_COMPOUND = re.compile(b"[\xc0\xc1\xd0\xd1\xe0\xf0]").search
_frame_size = struct.Struct(">I").unpack_from


class Look(IntEnum):
    """The result of inspecting frames."""

    FINE = 0
    TOO_MUCH = 1
    """A frame has too many elements."""
    NO_FRAME = 2
    """What comes is no frame of AMQP, or a larger one than was allowed."""
    UNFINISHED = 3
    """More of a frame has to come before it can be looked at."""
    MALFORMED = 4
    """What a frame says cannot be decoded, or lies too deep in it."""

    @property
    def error(self) -> ProtocolError | None:
        """The peer's error; None if there is none."""
        said = _WRONG.get(self)
        return None if said is None else ProtocolError(said[1], said[0])


_LOOKS = tuple(Look)
_WRONG = {
    Look.TOO_MUCH: ("amqp:resource-limit-exceeded", "a frame has too many elements"),
    Look.NO_FRAME: ("amqp:connection:framing-error", "a frame is malformed, or larger than was allowed"),
    Look.MALFORMED: ("amqp:decode-error", "a frame cannot be decoded"),
}


class Gate:
    """Inspects the frames of one connection, in order.

    Attributes:
        elements: of the frames that were looked at, since it was set to 0 last.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self.elements = 0
        self._frame_bytes_max = frame_bytes_max
        self._skip = 0
        """Of a frame that was looked at, what has not been there yet."""
        self._inspector = batch.Inspector() if batch.available and batch.inspects else None

    def admit(self, data: bytes, at: int, elements_max: int) -> tuple[int, Look]:
        """Where in `data`, looked at from `at` on, what the engine may have ends; and why it ends there.

        Args:
            elements_max: looking ends when so many elements were counted in `elements`.
        """
        if self._inspector is not None:
            end, look, self._skip, self.elements = self._inspector.inspect(
                data,
                at,
                self._skip,
                self._frame_bytes_max,
                limits.FRAME_ELEMENTS_MAX,
                EMPTY_ELEMENTS_MAX,
                self.elements,
                elements_max,
            )
        else:
            end, look = self._inspect(data, at, elements_max)
        return end, _LOOKS[look]

    def _inspect(self, data: bytes, at: int, elements_max: int) -> tuple[int, int]:
        size = len(data)
        while True:
            passed = min(self._skip, size - at)
            at += passed
            self._skip -= passed
            if at == size or self.elements >= elements_max:
                return at, Look.FINE
            if (
                data.startswith(_SHORT_TRANSFER, at + 4)
                and at + 12 < size
                and (end := at + 13 + data[at + 12]) < size
                and _COMPOUND(data, at + 13, end) is None
                and end - at <= (frame := _frame_size(data, at)[0]) <= self._frame_bytes_max
            ):
                # Nearly all frames: a flat list cannot claim more than it has.
                self._skip = frame
                continue
            left = size - at
            if left < _HEADER_BYTES:
                return at, Look.UNFINISHED
            frame, offset = int.from_bytes(data[at : at + 4], "big"), data[at + 4] * 4
            if frame > self._frame_bytes_max or not _HEADER_BYTES <= offset <= frame or data[at + 5]:
                return at, Look.NO_FRAME
            if offset < frame:
                begin = at + offset
                length = _performative_size(data[begin : begin + 300])
                if length < 0 or length > frame - offset:
                    return at, Look.MALFORMED
                if not length:
                    return at, Look.UNFINISHED if frame > left else Look.MALFORMED
                if length > left - offset:
                    return at, Look.UNFINISHED
                walk = _Walk(data, limits.FRAME_ELEMENTS_MAX)
                look = walk.value(begin, begin + length, DEPTH_MAX)
                if look < 0:
                    return at, -look
                self.elements += limits.FRAME_ELEMENTS_MAX - walk.elements
            self._skip = frame


def _performative_size(data: bytes) -> int:
    """How long the performative is that begins here; 0 if its size is not there yet, -1 if it is none."""
    if len(data) < 2:
        return 0
    if data[0]:
        return -1
    if data[1] == 0x53:
        body = 3
    elif data[1] == 0x80:
        body = 10
    elif data[1] == 0xA3:
        if len(data) < 3:
            return 0
        body = 3 + data[2]
    else:
        return -1
    if len(data) <= body:
        return 0
    code = data[body]
    if code == 0x45:
        return body + 1
    if code == 0xC0:
        return body + 2 + data[body + 1] if len(data) >= body + 2 else 0
    if code == 0xD0:
        return body + 5 + int.from_bytes(data[body + 1 : body + 5], "big") if len(data) >= body + 5 else 0
    return -1


_MALFORMED, _TOO_MUCH = -Look.MALFORMED, -Look.TOO_MUCH
_SIZES = {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16}


class _Walk:
    """One performative; where a value ends, or, below 0, what is wrong with it."""

    __slots__ = ("_data", "_empty", "elements")

    def __init__(self, data: bytes, elements_max: int) -> None:
        self.elements = elements_max
        self._data = data
        self._empty = EMPTY_ELEMENTS_MAX

    def value(self, at: int, end: int, depth: int) -> int:
        data = self._data
        for _ in range(DEPTH_MAX + 1):
            if at >= end:
                return _MALFORMED
            if not self.elements:
                return _TOO_MUCH
            self.elements -= 1
            code = data[at]
            at += 1
            if code:
                return self._body(code, at, end, depth)
            if at >= end or not data[at]:
                return _MALFORMED
            at = self.value(at, end, depth)
            if at < 0:
                return at
        return _MALFORMED

    def _body(self, code: int, at: int, end: int, depth: int) -> int:
        kind = code >> 4
        size = _SIZES.get(kind)
        if size is not None:
            return at + size if at + size <= end else _MALFORMED
        width = 4 if kind & 1 else 1
        start = at + width
        if kind < 0xA or start > end:
            return _MALFORMED
        stop = start + int.from_bytes(self._data[at:start], "big")
        if stop > end:
            return _MALFORMED
        if kind < 0xC:
            return stop
        inside = start + width
        if inside > stop:
            return _MALFORMED
        if not depth:
            return _MALFORMED
        count = int.from_bytes(self._data[start:inside], "big")
        if kind < 0xE:
            for _ in range(count):
                inside = self.value(inside, stop, depth - 1)
                if inside < 0:
                    return inside
            return stop
        return self._array(count, inside, stop, depth)

    def _array(self, count: int, at: int, stop: int, depth: int) -> int:
        if at >= stop:
            return _MALFORMED
        if not self._data[at]:
            at = self.value(at + 1, stop, depth - 1)
            if at < 0 or at >= stop:
                return at if at < 0 else _MALFORMED
        code = self._data[at]
        at += 1
        size = _SIZES.get(code >> 4)
        if size == 0:
            if count > self._empty:
                return _TOO_MUCH
            self._empty -= count
        elif count > stop - at:
            return _MALFORMED
        if count > self.elements:
            return _TOO_MUCH
        self.elements -= count
        if size is None:
            for _ in range(count):
                at = self._body(code, at, stop, depth - 1)
                if at < 0:
                    return at
        return stop
