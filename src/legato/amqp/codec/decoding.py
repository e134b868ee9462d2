"""Bytes to values of AMQP's type system (AMQP 1.6), in plain Python."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

from legato import limits
from legato.amqp.codec.types import (
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
ELEMENTS_MAX = limits.DECODED_ELEMENTS_MAX
EMPTY_ELEMENTS_MAX = 4096
"""Elements of arrays that have no bytes (AMQP 1.6.24), such as `null` and `true`: ten bytes may claim any number."""

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

_SIMPLE = frozenset((*_FIXED, 0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3))
"""Types whose values have no others in them."""
_EMPTY = frozenset(code for code, (size, _) in _FIXED.items() if not size)
"""Types whose values have no bytes."""


def malformed(what: str) -> ProtocolError:
    """The error for bytes that are not what their type says."""
    return ProtocolError(what, "amqp:decode-error")


def skip_value(data: bytes, at: int = 0) -> int:
    """End of the value at `at`, found without decoding it.

    Raises:
        ProtocolError: an unknown type, the value ends after the data, or it is described more than `DEPTH_MAX` times.
    """
    size = len(data)
    if at >= size:
        raise malformed("a value is missing")
    code = data[at]
    if not code:
        at = _skip_descriptors(data, at, size)
        code = data[at]
    end = _end_of(data, at + 1, code, size)
    if end > size:
        raise malformed("a value ends after the data")
    return end


def _skip_descriptors(data: bytes, at: int, size: int) -> int:
    """Place of the constructor of the described value at `at`."""
    for _ in range(DEPTH_MAX):
        if at + 1 >= size or not data[at + 1]:
            raise malformed("a descriptor is missing, or described itself")
        at = _end_of(data, at + 2, data[at + 1], size)
        if at >= size:
            raise malformed("a described value is missing")
        if data[at]:
            return at
    raise malformed(f"values nested more than {DEPTH_MAX} deep")


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


Budget = list[int]
"""How much one call, or several for the same message, may still decode: elements of lists, maps and arrays, nested
ones included; and of these, elements of arrays that have no bytes."""


def whole_budget(data: bytes) -> Budget:
    """For all of a message, in a process that serves nobody else: as many elements as it has bytes."""
    return [len(data) + EMPTY_ELEMENTS_MAX, EMPTY_ELEMENTS_MAX]


def take(budget: Budget, count: int) -> None:
    """Decode `count` elements more.

    Raises:
        ProtocolError: they are too many.
    """
    budget[0] -= count
    if budget[0] < 0:
        raise _too_many("a value has too many elements")


def _too_many(what: str) -> ProtocolError:
    return ProtocolError(what, "amqp:resource-limit-exceeded")


def decode_value(data: bytes, at: int = 0, budget: Budget | None = None) -> tuple[Any, int]:
    """Decode the value at `at`; returns it and where it ends.

    Numbers that Python cannot tell apart come as the types of `legato.amqp.codec.types`; a long is an `int`, a double a
    `float`.

    Args:
        budget: what may be decoded; by default `ELEMENTS_MAX` elements, of which `EMPTY_ELEMENTS_MAX` have no bytes.

    Raises:
        ProtocolError: the bytes are no AMQP value, or one of more elements.
    """
    if at >= len(data):
        raise malformed("a value is missing")
    code = data[at]
    if code in _SIMPLE:
        return _decode_simple(code, data, at + 1, len(data))
    return _decode(data, at, len(data), DEPTH_MAX, budget or [ELEMENTS_MAX, EMPTY_ELEMENTS_MAX])


def _decode(data: bytes, at: int, end: int, depth: int, budget: Budget) -> tuple[Any, int]:
    if at >= end:
        raise malformed("a value is missing")
    code = data[at]
    if code:
        return _decode_body(code, data, at + 1, end, depth, budget)
    if not depth:
        raise malformed(f"values nested more than {DEPTH_MAX} deep")
    take(budget, 1)
    descriptor, at = _decode(data, at + 1, end, depth - 1, budget)
    value, at = _decode(data, at, end, depth - 1, budget)
    return Described(descriptor, value), at


def _decode_simple(code: int, data: bytes, at: int, end: int) -> tuple[Any, int]:
    """A value that has no others in it."""
    fixed = _FIXED.get(code)
    if fixed is not None:
        stop = at + fixed[0]
        if stop > end:
            raise malformed("a value ends after the data")
        return fixed[1](data, at), stop
    stop = _end_of(data, at, code, end)
    if stop > end:
        raise malformed("a value ends after the data")
    start = at + (4 if code & 0x10 else 1)
    kind = code & 0xEF
    try:
        if kind == 0xA0:
            return data[start:stop], stop
        if kind == 0xA1:
            return data[start:stop].decode("utf-8"), stop
        return Symbol(data[start:stop].decode("ascii")), stop
    except UnicodeDecodeError:
        raise malformed("text that cannot be decoded") from None


def _decode_body(code: int, data: bytes, at: int, end: int, depth: int, budget: Budget) -> tuple[Any, int]:
    if code in _SIMPLE:
        return _decode_simple(code, data, at, end)
    stop = _end_of(data, at, code, end)
    if stop > end:
        raise malformed("a value ends after the data")
    wide = code & 0x10
    start = at + (4 if wide else 1)
    kind = code & 0xEF
    if kind not in (0xC0, 0xC1, 0xE0):
        raise malformed(f"type 0x{code:02x} is unknown")
    if not depth:
        raise malformed(f"values nested more than {DEPTH_MAX} deep")
    inside = start + (4 if wide else 1)
    if inside > stop:
        raise malformed("a compound value is cut off")
    count = _unpack_u32(data, start)[0] if wide else data[start]
    if kind == 0xE0:
        return _decode_array(count, data, inside, stop, depth - 1, budget), stop
    if count > stop - inside:
        raise malformed("a compound value claims more elements than it has bytes")
    take(budget, count)
    values = _decode_elements(data, inside, stop, count, depth - 1, budget)
    return (values if kind == 0xC0 else _as_map(values)), stop


def _decode_elements(data: bytes, at: int, end: int, count: int, depth: int, budget: Budget) -> list[Any]:
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
                value, at = _decode(data, at, end, depth, budget)
                append(value)
    except UnicodeDecodeError:
        raise malformed("text that cannot be decoded") from None
    except IndexError:
        raise malformed("a value is missing") from None
    if at != end:
        raise malformed("a compound value and its elements differ in size")
    return values


def _decode_array(count: int, data: bytes, at: int, end: int, depth: int, budget: Budget) -> Array:
    if at >= end:
        raise malformed("an array without a type")
    descriptor = None
    code = data[at]
    if not code:
        descriptor, at = _decode(data, at + 1, end, depth - 1, budget) if depth else (None, end)
        if at >= end:
            raise malformed("an array without a type")
        code = data[at]
    at += 1
    if code in _EMPTY:
        budget[1] -= count
        if budget[1] < 0:
            raise _too_many(f"arrays have more than {EMPTY_ELEMENTS_MAX} elements without bytes")
    elif count > end - at:
        raise malformed("an array claims more elements than it has bytes")
    take(budget, count)
    values = Array()
    for _ in range(count):
        value, at = _decode_body(code, data, at, end, depth, budget)
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
