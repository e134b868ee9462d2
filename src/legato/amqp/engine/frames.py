"""Frames that the engine would tolerate, ignore or answer with a closed connection (AMQP 2.3, 2.7).

The engine ignores `echo`, fills in mandatory fields that are missing, and ends the connection where AMQP ends a
session. So a server looks at performatives that are rare first: at open, begin, attach, flow, detach and end. Transfers
and dispositions are stepped over.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, insort
from collections import deque
from typing import Any, NamedTuple

from legato.amqp.codec.values import decode_value, skip_value
from legato.amqp.engine import batch
from legato.errors import ProtocolError

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END = range(0x10, 0x18)
MAX_FRAME_BYTES_MIN = 512
"""No peer may ask for smaller frames (AMQP 2.7.1)."""
_HEAD = struct.Struct(">IBxHBBB")
"""Size, data offset, channel, and the three bytes of a performative's usual descriptor."""
_HEAD_BYTES = _HEAD.size
_EMPTY_BYTES = 8
_EMPTY_SIZE = _EMPTY_BYTES.to_bytes(4, "big")
_CODES = {
    "amqp:open:list": OPEN,
    "amqp:begin:list": BEGIN,
    "amqp:attach:list": ATTACH,
    "amqp:flow:list": FLOW,
    "amqp:detach:list": DETACH,
    "amqp:end:list": END,
}
_WANTED = {OPEN: 3, BEGIN: 4, ATTACH: 3, FLOW: 10, DETACH: 1}
"""How many fields of a performative are looked at."""
_MANDATORY = {
    OPEN: ("open", {0: "container-id"}),
    BEGIN: ("begin", {1: "next-outgoing-id", 2: "incoming-window", 3: "outgoing-window"}),
    ATTACH: ("attach", {0: "name", 1: "handle", 2: "role"}),
    FLOW: ("flow", {1: "incoming-window", 2: "next-outgoing-id", 3: "outgoing-window"}),
    DETACH: ("detach", {0: "handle"}),
}
_MAX_FRAME_SIZE = 2
_HANDLE_MAX = (1 << 32) - 1
_HANDLE = 4
_ECHO = 9
_SOURCE = 5
"""The field of an attach that is its source; the next one is its target."""
_FLOW_BEGINNING = b"\x00\x53\x13\xc0"
_NULL, _TRUE, _FALSE, _BOOLEAN = 0x40, 0x41, 0x42, 0x56
_UINTS = {0x43: 0, 0x52: 1, 0x70: 4}
_WIDTHS = {_NULL: 0, _TRUE: 0, _FALSE: 0, _BOOLEAN: 1} | _UINTS
"""Of the values in a flow, the bytes behind the constructor."""
_NUL = "has the character U+0000, which no name may have"


class Echo(NamedTuple):
    """A flow that requests an echo: of the session's state, or with a handle of a link's (AMQP 2.7.4)."""

    channel: int
    name: str | None
    """The link's, with `is_sender`; None if it is the session's state that is wanted."""
    is_sender: bool
    """Whether the link is one over which the peer sends."""


class Errant(NamedTuple):
    """A frame that ends its session: of an unknown link (AMQP 2.7.4, 2.8.17), or incomplete."""

    channel: int
    condition: str
    description: str


class Broken(NamedTuple):
    """A frame that ends the connection."""

    condition: str
    description: str


class Frames:
    """A peer's bytes, split where a frame needs more than the engine.

    Attributes:
        begun: the channels on which it began sessions that nobody has asked for yet, the first first.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self.begun: deque[int] = deque()
        self._frame_bytes_max = frame_bytes_max
        self._held = b""
        """The beginning of a frame that is still to come."""
        self._skip = 0
        """Bytes of a frame that are still to come and need not be looked at."""
        self._links: dict[int, dict[int, tuple[str, bool]]] = {}
        """Attached links by channel and handle: name, and whether the peer sends over them."""
        self._numbers = array("Q")
        """The same in order: each channel, times 2^32, and handle."""

    def cut(self, data: bytes) -> list[bytes | Echo | Errant | Broken]:
        """Bytes for the engine and findings, in order; nothing follows `Broken`."""
        if self._held:
            data = self._held + data
            self._held = b""
        pieces: list[bytes | Echo | Errant | Broken] = []
        begin, at, size = 0, self._skip, len(data)
        read = _HEAD.unpack_from
        while at + _HEAD_BYTES <= size:
            if batch.inspects and (at := self._step_over(data, at)) + _HEAD_BYTES > size:
                break
            length, offset, channel, zero, ulong, code = read(data, at)
            # Transfers and dispositions, as nearly all peers write them.
            if code | 1 == DISPOSITION and zero == 0 and ulong == 0x53 and offset == 2 and length > _HEAD_BYTES:
                at += length
                continue
            if length == _EMPTY_BYTES:
                at += length
                continue
            if length < _HEAD_BYTES or length > self._frame_bytes_max or offset < 2:
                # The engine says what is wrong.
                at = size
                break
            end = at + length
            if end > size:
                break
            found = self._look(data, at + 4 * offset, end, channel)
            if found is not None:
                # A connection can be closed only once it was opened.
                until = end if found.__class__ is Echo or code == OPEN else at
                if until > begin:
                    pieces.append(data[begin:until])
                pieces.append(found)
                if found.__class__ is Broken:
                    return pieces
                begin = end
            at = end
        if at + _EMPTY_BYTES == size and data[at : at + 4] == _EMPTY_SIZE:
            at = size
        self._skip = max(at - size, 0)
        self._held = data[at:]
        until = min(at, size)
        if until == size and not begin:
            pieces.append(data)
        elif until > begin:
            pieces.append(data[begin:until])
        return pieces

    def _step_over(self, data: bytes, at: int) -> int:
        if batch.steps_over_flows:
            return batch.step_over_usual(data, at, self._frame_bytes_max, self._numbers)
        return batch.step_over_deliveries(data, at)

    def _attach(self, channel: int, handle: int, name: str, *, is_sender: bool) -> None:
        links = self._links[channel]
        if handle not in links and 0 <= handle <= _HANDLE_MAX:
            insort(self._numbers, channel << 32 | handle)
        links[handle] = (name, is_sender)

    def _detach(self, channel: int, handle: int) -> bool:
        """Whether there was such a link."""
        if self._links[channel].pop(handle, None) is None:
            return False
        if 0 <= handle <= _HANDLE_MAX:
            del self._numbers[bisect_left(self._numbers, channel << 32 | handle)]
        return True

    def _end(self, channel: int) -> None:
        self._links.pop(channel, None)
        first = bisect_left(self._numbers, channel << 32)
        del self._numbers[first : bisect_left(self._numbers, channel + 1 << 32)]

    def _look(self, data: bytes, at: int, end: int, channel: int) -> Echo | Errant | Broken | None:
        if data.startswith(_FLOW_BEGINNING, at) and (flow := _usual_flow(data, at, end)) is not None:
            return self._look_at_flow(channel, *flow)
        try:
            code, fields = _read(data, at, end)
        except (ProtocolError, IndexError):
            return None  # The engine says what is wrong.
        if code in _MANDATORY:
            name, mandatory = _MANDATORY[code]
            for index, field in mandatory.items():
                if _field(fields, index) is None:
                    text = f"the field {field} of a performative {name} is missing"
                    if code in (OPEN, BEGIN):
                        return Broken("amqp:decode-error", text)
                    return Errant(channel, "amqp:decode-error", text)
        links = self._links.get(channel)
        if code == OPEN:
            frame_bytes = _field(fields, _MAX_FRAME_SIZE)
            if isinstance(frame_bytes, int) and frame_bytes < MAX_FRAME_BYTES_MIN:
                return Broken("amqp:invalid-field", f"max-frame-size is less than {MAX_FRAME_BYTES_MIN}")
            if isinstance(fields[0], str) and "\0" in fields[0]:
                # The engine would end it there, and take it for another one.
                return Broken("amqp:invalid-field", f"the container id {_NUL}")
        elif code == BEGIN:
            self._end(channel)
            self._links[channel] = {}
            if fields[0] is None:
                self.begun.append(channel)
        elif code == END:
            self._end(channel)
        elif links is None:
            return None
        elif code == ATTACH and isinstance(fields[1], int):
            if "\0" in str(fields[0]) or _has_nul(data, at):
                return Errant(channel, "amqp:invalid-field", f"the name or an address of an attach {_NUL}")
            self._attach(channel, int(fields[1]), str(fields[0]), is_sender=fields[2] is False)
        elif code == DETACH and isinstance(fields[0], int) and not self._detach(channel, int(fields[0])):
            return _unattached(channel, fields[0])
        elif code == FLOW:
            handle = _field(fields, _HANDLE)
            return self._look_at_flow(
                channel, handle if isinstance(handle, int) else None, _field(fields, _ECHO) is True
            )
        return None

    def _look_at_flow(self, channel: int, handle: int | None, echo: bool) -> Echo | Errant | None:
        links = self._links.get(channel)
        if links is None:
            return None
        if handle is not None and handle not in links:
            return _unattached(channel, handle)
        return Echo(channel, *(links[handle] if handle is not None else (None, False))) if echo else None


def _usual_flow(data: bytes, at: int, end: int) -> tuple[int | None, bool] | None:
    """The handle of a flow, and whether it asks for an echo, if it is written as nearly all are; None for any other."""
    if at + 6 > end or at + 5 + data[at + 4] != end or data[at + 5] < _HANDLE:
        return None
    count = min(data[at + 5], _ECHO + 1)
    at += 6
    handle = None
    for index in range(count):
        code = data[at] if at < end else -1
        width = _WIDTHS.get(code, end)
        at += 1
        if at + width > end or (code == _NULL and 0 < index < _HANDLE) or (code == _BOOLEAN and data[at] > 1):
            return None
        if index == _HANDLE and code != _NULL:
            if code not in _UINTS:
                return None
            handle = int.from_bytes(data[at : at + width], "big")
        elif index == _ECHO:
            return handle, code == _TRUE or (code == _BOOLEAN and data[at] == 1)
        at += width
    return handle, False


def _read(data: bytes, at: int, end: int) -> tuple[int, list[Any]]:
    """The code of a performative, and as many of its fields as are looked at."""
    if data[at]:
        return 0, []
    descriptor, at = decode_value(data, at + 1)
    code = _CODES.get(descriptor, 0) if isinstance(descriptor, str) else descriptor
    wanted = _WANTED.get(code, 0) if isinstance(code, int) else 0
    if not wanted:
        return code if code == END else 0, []
    constructor = data[at]
    if constructor == 0xC0:
        count, at = data[at + 2], at + 3
    elif constructor == 0xD0:
        count, at = int.from_bytes(data[at + 5 : at + 9], "big"), at + 9
    else:
        count = 0
    fields: list[Any] = []
    while len(fields) < min(count, wanted) and at < end:
        field, at = decode_value(data, at)
        fields.append(field)
    return code, fields


def _has_nul(data: bytes, at: int) -> bool:
    """Whether the address of an attach's source or target has the character at which the engine would end it."""
    try:
        _, at = decode_value(data, at + 1)
        small = data[at] == 0xC0
        count = data[at + 2] if small else int.from_bytes(data[at + 5 : at + 9], "big")
        at += 3 if small else 9
        for index in range(min(count, _SOURCE + 2)):
            after = skip_value(data, at)
            if index >= _SOURCE and b"\0" in _address(data[at:after]):
                return True
            at = after
    except (ProtocolError, IndexError):
        return False  # The engine says what is wrong.
    return False


def _address(terminus: bytes) -> bytes:
    """The address in a source or target; empty if it is no text."""
    if terminus[0]:
        return b""
    at = skip_value(terminus, 1)
    if terminus[at] not in (0xC0, 0xD0):
        return b""
    at += 3 if terminus[at] == 0xC0 else 9
    if at >= len(terminus) or terminus[at] not in (0xA1, 0xB1, 0xA3, 0xB3):
        return b""
    return terminus[at + (2 if terminus[at] < 0xB0 else 5) : skip_value(terminus, at)]


def _unattached(channel: int, handle: int) -> Errant:
    return Errant(channel, "amqp:session:unattached-handle", f"no link has the handle {handle}")


def _field(fields: list[Any], index: int) -> Any:
    return fields[index] if index < len(fields) else None
