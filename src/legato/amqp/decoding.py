"""Bytes to values of AMQP's type system (AMQP 1.6), in plain Python."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

from legato.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from legato.errors import ProtocolError

DEPTH_MAX = 32
_EMPTY_ELEMENTS_MAX = 1 << 16
"""An array of elements without bytes may claim any number of them."""

_U32 = struct.Struct(">I")
_unpack_u32 = _U32.unpack_from


def _fixed(layout: str, kind: Callable[[Any], Any]) -> tuple[int, Callable[[bytes, int], Any]]:
    packed = struct.Struct(layout)
    unpack = packed.unpack_from
    return packed.size, lambda data, at: kind(unpack(data, at)[0])


def _read_char(data: bytes, at: int) -> Char:
    try:
        return Char(chr(_unpack_u32(data, at)[0]))
    except (ValueError, OverflowError):
        raise malformed("a char is no character") from None


def _read_boolean(data: bytes, at: int) -> bool:
    if data[at] > 1:
        raise malformed("a boolean is neither 0 nor 1")
    return data[at] == 1


_FIXED: dict[int, tuple[int, Callable[[bytes, int], Any]]] = {
    0x40: (0, lambda data, at: None),
    0x41: (0, lambda data, at: True),
    0x42: (0, lambda data, at: False),
    0x43: (0, lambda data, at: UInt(0)),
    0x44: (0, lambda data, at: ULong(0)),
    0x45: (0, lambda data, at: []),
    0x50: _fixed(">B", UByte),
    0x51: _fixed(">b", Byte),
    0x52: _fixed(">B", UInt),
    0x53: _fixed(">B", ULong),
    0x54: _fixed(">b", Int),
    0x55: _fixed(">b", int),
    0x56: (1, _read_boolean),
    0x60: _fixed(">H", UShort),
    0x61: _fixed(">h", Short),
    0x70: _fixed(">I", UInt),
    0x71: _fixed(">i", Int),
    0x72: _fixed(">f", Float),
    0x73: (4, _read_char),
    0x74: _fixed(">4s", Decimal),
    0x80: _fixed(">Q", ULong),
    0x81: _fixed(">q", int),
    0x82: _fixed(">d", float),
    0x83: _fixed(">q", Timestamp),
    0x84: _fixed(">8s", Decimal),
    0x94: _fixed(">16s", Decimal),
    0x98: (16, lambda data, at: UUID(bytes=data[at : at + 16])),
}


def malformed(what: str) -> ProtocolError:
    """The error for bytes that are not what their type says."""
    return ProtocolError(what, "amqp:decode-error")


def skip_value(data: bytes, at: int = 0) -> int:
    """Where the value at `at` ends, without decoding what is in it.

    Raises:
        ProtocolError: an unknown type, or the value ends after the data.
    """
    size = len(data)
    if at >= size:
        raise malformed("a value is missing")
    code = data[at]
    if code == 0:
        return skip_value(data, skip_value(data, at + 1)) if at + 1 < size and data[at + 1] else _no_descriptor()
    end = _end_of(data, at + 1, code, size)
    if end > size:
        raise malformed("a value ends after the data")
    return end


def _no_descriptor() -> int:
    raise malformed("a descriptor is described itself")


def _end_of(data: bytes, at: int, code: int, size: int) -> int:
    """The end of a value whose constructor `code` lies before `at`."""
    fixed = _FIXED.get(code)
    if fixed is not None:
        return at + fixed[0]
    width = code >> 4
    if width in (0xA, 0xC, 0xE) and at < size:
        return at + 1 + data[at]
    if width in (0xB, 0xD, 0xF) and at + 4 <= size:
        return at + 4 + int(_unpack_u32(data, at)[0])
    raise malformed(f"type 0x{code:02x} is unknown or cut off")


def decode_value(data: bytes, at: int = 0) -> tuple[Any, int]:
    """Decode the value at `at`; returns it and where it ends.

    Numbers that Python cannot tell apart come as the types of `legato.amqp.types`; a long is an `int`, a double a
    `float`.

    Raises:
        ProtocolError: the bytes are no AMQP value.
    """
    return _decode(data, at, len(data), DEPTH_MAX)


def _decode(data: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
    if at >= end:
        raise malformed("a value is missing")
    code = data[at]
    if code:
        return _decode_body(code, data, at + 1, end, depth)
    if not depth:
        raise malformed(f"values nested more than {DEPTH_MAX} deep")
    descriptor, at = _decode(data, at + 1, end, depth - 1)
    value, at = _decode(data, at, end, depth - 1)
    return Described(descriptor, value), at


def _decode_body(code: int, data: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
    fixed = _FIXED.get(code)
    if fixed is not None:
        stop = at + fixed[0]
        if stop > end:
            raise malformed("a value ends after the data")
        return fixed[1](data, at), stop
    stop = _end_of(data, at, code, end)
    if stop > end:
        raise malformed("a value ends after the data")
    wide = code & 0x10
    start = at + (4 if wide else 1)
    kind = code & 0xEF
    try:
        if kind == 0xA0:
            return data[start:stop], stop
        if kind == 0xA1:
            return data[start:stop].decode("utf-8"), stop
        if kind == 0xA3:
            return Symbol(data[start:stop].decode("ascii")), stop
    except UnicodeDecodeError:
        raise malformed("text that cannot be decoded") from None
    if kind not in (0xC0, 0xC1, 0xE0):
        raise malformed(f"type 0x{code:02x} is unknown")
    if not depth:
        raise malformed(f"values nested more than {DEPTH_MAX} deep")
    inside = start + (4 if wide else 1)
    if inside > stop:
        raise malformed("a compound value is cut off")
    count = _unpack_u32(data, start)[0] if wide else data[start]
    if kind == 0xE0:
        return _decode_array(count, data, inside, stop, depth - 1), stop
    if count > stop - inside:
        raise malformed("a compound value claims more elements than it has bytes")
    values = decode_elements(data, inside, stop, count, depth - 1)
    return (values if kind == 0xC0 else _as_map(values)), stop


def decode_elements(data: bytes, at: int, end: int, count: int, depth: int = DEPTH_MAX) -> list[Any]:
    """Decode `count` values that fill the bytes from `at` to `end`; raises ProtocolError if they do not."""
    values: list[Any] = []
    append = values.append
    try:
        for _ in range(count):
            code = data[at]
            if code == 0xA1 or code == 0xA3:
                stop = at + 2 + data[at + 1]
                text = data[at + 2 : stop]
                append(text.decode() if code == 0xA1 else Symbol(text.decode("ascii")))
                at = stop
            elif code == 0x40:
                append(None)
                at += 1
            elif (fixed := _FIXED.get(code)) is not None:
                stop = at + 1 + fixed[0]
                if stop > end:
                    raise malformed("a value ends after the data")
                append(fixed[1](data, at + 1))
                at = stop
            else:
                value, at = _decode(data, at, end, depth)
                append(value)
    except UnicodeDecodeError:
        raise malformed("text that cannot be decoded") from None
    except IndexError:
        raise malformed("a value is missing") from None
    if at != end:
        raise malformed("a compound value and its elements differ in size")
    return values


def _decode_array(count: int, data: bytes, at: int, end: int, depth: int) -> Array:
    if at >= end:
        raise malformed("an array without a type")
    descriptor = None
    code = data[at]
    if not code:
        descriptor, at = _decode(data, at + 1, end, depth - 1) if depth else (None, end)
        if at >= end:
            raise malformed("an array without a type")
        code = data[at]
    at += 1
    if count > max(end - at, _EMPTY_ELEMENTS_MAX):
        raise malformed("an array claims more elements than it has bytes")
    values = Array()
    for _ in range(count):
        value, at = _decode_body(code, data, at, end, depth)
        values.append(value if descriptor is None else Described(descriptor, value))
    if at != end:
        raise malformed("an array is longer than its elements")
    return values


def _as_map(flat: list[Any]) -> dict[Any, Any]:
    if len(flat) % 2:
        raise malformed("a map has a key without a value")
    try:
        return dict(zip(flat[::2], flat[1::2], strict=True))
    except TypeError:
        raise malformed("a map's key is a compound value") from None
