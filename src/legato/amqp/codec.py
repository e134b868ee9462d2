"""AMQP's type system in plain Python (AMQP 1.6): for message sections, where the engine only carries bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
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

__all__ = [
    "Array",
    "Byte",
    "Char",
    "Decimal",
    "Described",
    "Float",
    "Int",
    "Short",
    "Symbol",
    "Timestamp",
    "UByte",
    "UInt",
    "ULong",
    "UShort",
    "decode_value",
    "encode_value",
    "skip_value",
]

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


def _sized(narrow: int, wide: int) -> Callable[[bytes], bytes]:
    prefixes = [bytes((narrow, size)) for size in range(256)]
    wide_prefix = bytes((wide,))

    def encode(raw: bytes) -> bytes:
        size = len(raw)
        return prefixes[size] + raw if size < 256 else wide_prefix + _U32.pack(size) + raw

    return encode


_encode_binary = _sized(0xA0, 0xB0)
_encode_utf8 = _sized(0xA1, 0xB1)
_encode_ascii = _sized(0xA3, 0xB3)
encode_binary = _encode_binary


def encode_string(text: str) -> bytes:
    """Encode a string."""
    return _encode_utf8(text.encode("utf-8"))


def encode_symbol(name: str) -> bytes:
    """Encode a symbol; raises ValueError if it is not ASCII."""
    return _encode_ascii(name.encode("ascii"))


def encode_uint(value: int) -> bytes:
    """Encode an unsigned integer of 32 bits in its shortest form."""
    if value == 0:
        return b"\x43"
    return bytes((0x52, value)) if value < 256 else b"\x70" + _U32.pack(value)


def encode_ulong(value: int) -> bytes:
    """Encode an unsigned integer of 64 bits in its shortest form."""
    if value == 0:
        return b"\x44"
    return bytes((0x53, value)) if value < 256 else b"\x80" + value.to_bytes(8, "big")


def _encode_signed(narrow: int, wide: int, width_bytes: int) -> Callable[[int], bytes]:
    def encode(value: int) -> bytes:
        if -128 <= value < 128:
            return bytes((narrow, value & 0xFF))
        return bytes((wide,)) + value.to_bytes(width_bytes, "big", signed=True)

    return encode


def _packed(code: int, layout: str) -> Callable[[Any], bytes]:
    pack, prefix = struct.Struct(layout).pack, bytes((code,))
    return lambda value: prefix + pack(value)


_DECIMALS = {4: b"\x74", 8: b"\x84", 16: b"\x94"}

_ENCODERS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda value: b"\x40",
    bool: lambda value: b"\x41" if value else b"\x42",
    UByte: _packed(0x50, ">B"),
    Byte: _packed(0x51, ">b"),
    UShort: _packed(0x60, ">H"),
    Short: _packed(0x61, ">h"),
    UInt: encode_uint,
    Int: _encode_signed(0x54, 0x71, 4),
    ULong: encode_ulong,
    int: _encode_signed(0x55, 0x81, 8),
    Timestamp: _packed(0x83, ">q"),
    Float: _packed(0x72, ">f"),
    float: _packed(0x82, ">d"),
    Char: lambda value: b"\x73" + _U32.pack(ord(value)),
    UUID: lambda value: b"\x98" + value.bytes,
    Decimal: lambda value: _DECIMALS[len(value)] + bytes(value),
    bytes: _encode_binary,
    str: encode_string,
    Symbol: encode_symbol,
}

_ARRAY_ELEMENTS: dict[type, tuple[int, Callable[[Any], bytes]]] = {
    bool: (0x56, lambda value: b"\x01" if value else b"\x00"),
    UByte: (0x50, struct.Struct(">B").pack),
    Byte: (0x51, struct.Struct(">b").pack),
    UShort: (0x60, struct.Struct(">H").pack),
    Short: (0x61, struct.Struct(">h").pack),
    UInt: (0x70, _U32.pack),
    Int: (0x71, struct.Struct(">i").pack),
    ULong: (0x80, struct.Struct(">Q").pack),
    int: (0x81, struct.Struct(">q").pack),
    Timestamp: (0x83, struct.Struct(">q").pack),
    Float: (0x72, struct.Struct(">f").pack),
    float: (0x82, struct.Struct(">d").pack),
    Char: (0x73, lambda value: _U32.pack(ord(value))),
    UUID: (0x98, lambda value: value.bytes),
    bytes: (0xB0, lambda value: _U32.pack(len(value)) + value),
    str: (0xB1, lambda value: _U32.pack(len(raw := value.encode("utf-8"))) + raw),
    Symbol: (0xB3, lambda value: _U32.pack(len(raw := value.encode("ascii"))) + raw),
}


def encode_value(value: Any) -> bytes:
    """Encode a value; a plain `int` becomes a long, a plain `float` a double.

    Raises:
        TypeError: AMQP has no type for it.
        ValueError: a number or text is out of its type's range (`struct.error` and `OverflowError` are turned into it).
    """
    encoder = _ENCODERS.get(type(value))
    if encoder is not None:
        try:
            return encoder(value)
        except (struct.error, OverflowError) as error:
            raise ValueError(f"{value!r} does not fit an AMQP {type(value).__name__}") from error
    if isinstance(value, Described):
        return b"\x00" + encode_value(value.descriptor) + encode_value(value.value)
    if isinstance(value, Array):
        return _encode_array(value)
    if isinstance(value, Mapping):
        return encode_compound(0xC1, [part for pair in value.items() for part in map(encode_value, pair)])
    if isinstance(value, (list, tuple)):
        return encode_compound(0xC0, [encode_value(item) for item in value]) if value else b"\x45"
    if isinstance(value, (bytearray, memoryview)):
        return _encode_binary(bytes(value))
    raise TypeError(f"AMQP has no type for a {type(value).__name__}")


def encode_compound(code: int, parts: list[bytes]) -> bytes:
    """Encode a list (`code` 0xC0) or a map (0xC1) of elements that are encoded already."""
    inside = b"".join(parts)
    size, count = len(inside), len(parts)
    if size < 255 and count < 256:
        return bytes((code, size + 1, count)) + inside
    return bytes((code | 0x10,)) + _U32.pack(size + 4) + _U32.pack(count) + inside


def _encode_array(values: Array) -> bytes:
    kind = type(values[0]) if values else Symbol
    code, encode = _ARRAY_ELEMENTS[kind]
    if any(type(value) is not kind for value in values):
        raise TypeError("the values of an array are of one type")
    inside = bytes((code,)) + b"".join([encode(value) for value in values])
    return b"\xf0" + _U32.pack(len(inside) + 4) + _U32.pack(len(values)) + inside
