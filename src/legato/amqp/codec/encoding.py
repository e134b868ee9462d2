"""Values to bytes of AMQP's type system (AMQP 1.6), in plain Python."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

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

_U32 = struct.Struct(">I")


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
    raise TypeError(f"AMQP has no type for {type(value).__name__!r}")


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
