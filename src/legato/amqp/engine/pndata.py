"""Conversion between the engine's `pn_data_t` trees and Python values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import cproton
from cproton import ffi, lib

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
"""Nested compounds deeper than this are refused, lest a peer exhausts our stack."""

NODE_BYTES, VALUE_BYTES = 105, 30
"""What an element takes in a tree of the engine's, and as a value of Python's, about, besides its text."""
_COMPOUNDS = (lib.PN_LIST, lib.PN_ARRAY, lib.PN_MAP, lib.PN_DESCRIBED)


def decode_error(what: str) -> ProtocolError:
    """The error for bytes of a peer that are not what their type says (AMQP 2.8.15)."""
    return ProtocolError(what, "amqp:decode-error")


def c_text(pointer: Any) -> str | None:
    """Copy a C string; raises ProtocolError if it is not UTF-8."""
    if not pointer:
        return None
    try:
        return ffi.string(pointer).decode("utf-8")  # type: ignore[no-any-return]
    except UnicodeDecodeError:
        raise decode_error("a string is not UTF-8") from None


def c_bytes(span: Any) -> bytes:
    """Copy a `pn_bytes_t` out of C memory, which does not outlive the next call."""
    return ffi.unpack(span.start, span.size) if span.size else b""


def read(data: Any) -> Any:
    """Read the first value of `data`, None if there is none.

    Raises:
        ProtocolError: text that is not UTF-8 or ASCII, nesting or elements without end, unhashable map keys.
    """
    if not data:
        return None
    lib.pn_data_rewind(data)
    if not lib.pn_data_next(data):
        return None
    return _read(data, DEPTH_MAX, [limits.FRAME_ELEMENTS_MAX])


def _read_text(data: Any) -> str:
    try:
        return c_bytes(lib.pn_data_get_string(data)).decode("utf-8")
    except UnicodeDecodeError:
        raise decode_error("a string is not UTF-8") from None


def _read_symbol(data: Any) -> Symbol:
    try:
        return Symbol(c_bytes(lib.pn_data_get_symbol(data)).decode("ascii"))
    except UnicodeDecodeError:
        raise decode_error("a symbol is not ASCII") from None


def _read_char(data: Any) -> Char:
    try:
        return Char(chr(lib.pn_data_get_char(data)))
    except (ValueError, OverflowError):
        raise decode_error("a char is no character") from None


_READERS: dict[int, Callable[[Any], Any]] = {
    lib.PN_NULL: lambda data: None,
    lib.PN_BOOL: lambda data: lib.pn_data_get_bool(data),
    lib.PN_UBYTE: lambda data: UByte(lib.pn_data_get_ubyte(data)),
    lib.PN_BYTE: lambda data: Byte(lib.pn_data_get_byte(data)),
    lib.PN_USHORT: lambda data: UShort(lib.pn_data_get_ushort(data)),
    lib.PN_SHORT: lambda data: Short(lib.pn_data_get_short(data)),
    lib.PN_UINT: lambda data: UInt(lib.pn_data_get_uint(data)),
    lib.PN_INT: lambda data: Int(lib.pn_data_get_int(data)),
    lib.PN_CHAR: _read_char,
    lib.PN_ULONG: lambda data: ULong(lib.pn_data_get_ulong(data)),
    lib.PN_LONG: lambda data: int(lib.pn_data_get_long(data)),
    lib.PN_TIMESTAMP: lambda data: Timestamp(lib.pn_data_get_timestamp(data)),
    lib.PN_FLOAT: lambda data: Float(lib.pn_data_get_float(data)),
    lib.PN_DOUBLE: lambda data: float(lib.pn_data_get_double(data)),
    lib.PN_DECIMAL32: lambda data: Decimal(lib.pn_data_get_decimal32(data).to_bytes(4, "big")),
    lib.PN_DECIMAL64: lambda data: Decimal(lib.pn_data_get_decimal64(data).to_bytes(8, "big")),
    lib.PN_DECIMAL128: lambda data: Decimal(cproton.pn_data_get_decimal128(data)),
    lib.PN_UUID: cproton.pn_data_get_uuid,
    lib.PN_BINARY: lambda data: c_bytes(lib.pn_data_get_binary(data)),
    lib.PN_STRING: _read_text,
    lib.PN_SYMBOL: _read_symbol,
}


def _read(data: Any, depth: int, budget: list[int]) -> Any:
    kind = lib.pn_data_type(data)
    reader = _READERS.get(kind)
    if reader is not None:
        return reader(data)
    if not depth:
        raise decode_error(f"values nested more than {DEPTH_MAX} deep")
    described = kind == lib.PN_ARRAY and lib.pn_data_is_array_described(data)
    lib.pn_data_enter(data)
    values: list[Any] = []
    while lib.pn_data_next(data):
        if len(values) >= budget[0]:
            raise ProtocolError("a value has too many elements", "amqp:resource-limit-exceeded")
        values.append(_read(data, depth - 1, budget))
    budget[0] -= len(values)
    lib.pn_data_exit(data)
    if kind == lib.PN_LIST:
        return values
    if kind == lib.PN_ARRAY:
        return Array(values[1:] if described else values)
    if kind == lib.PN_MAP:
        return _as_map(values)
    if kind == lib.PN_DESCRIBED and len(values) == 2:
        return Described(values[0], values[1])
    raise decode_error("a value of an unknown type")


def _as_map(flat: list[Any]) -> dict[Any, Any]:
    if len(flat) % 2:
        raise decode_error("a map has a key without a value")
    try:
        return dict(zip(flat[::2], flat[1::2], strict=True))
    except TypeError:
        raise decode_error("a map's key is a compound value") from None


def kept_bytes(*trees: Any, trees_kept: int = 1) -> int:
    """What trees of a peer's take in memory, about, in the engine and as values. They have been read: they are finite.

    Args:
        trees_kept: how many of each the engine has.
    """
    return sum(_kept_bytes(data, trees_kept) for data in trees if data)


def _kept_bytes(data: Any, trees_kept: int) -> int:
    size: int = lib.pn_data_encoded_size(data)
    if size <= 0:
        return 0
    elements = depth = 0
    lib.pn_data_rewind(data)
    while True:
        if lib.pn_data_next(data):
            elements += 1
            if lib.pn_data_type(data) in _COMPOUNDS:
                lib.pn_data_enter(data)
                depth += 1
        elif depth:
            lib.pn_data_exit(data)
            depth -= 1
        else:
            return elements * (trees_kept * NODE_BYTES + VALUE_BYTES) + size * (trees_kept + 1)


def read_map(data: Any) -> dict[str, Any]:
    """Read a map with text keys, empty if absent or of another type; keys of other types are left out."""
    value = read(data)
    if not isinstance(value, dict):
        return {}
    return {str(key): item for key, item in value.items() if isinstance(key, str)}


def read_symbols(data: Any) -> list[str]:
    """Read capabilities, which peers write as one symbol or as an array of them (AMQP 1.4: multiple); what is none is
    left out."""
    value = read(data)
    if isinstance(value, str):
        value = [value]
    if isinstance(value, list):
        return [str(item) for item in value if isinstance(item, str) and item.isascii()]
    return []


def _put_bytes(put: Callable[[Any, Any], int], data: Any, raw: bytes) -> None:
    put(data, (len(raw), ffi.from_buffer(raw)))


def _put_decimal(data: Any, value: Decimal) -> None:
    if len(value) == 16:
        cproton.pn_data_put_decimal128(data, value)
    else:
        put_decimal = lib.pn_data_put_decimal32 if len(value) == 4 else lib.pn_data_put_decimal64
        put_decimal(data, int.from_bytes(value, "big"))


_WRITERS: dict[type, Callable[[Any, Any], Any]] = {
    type(None): lambda data, value: lib.pn_data_put_null(data),
    bool: lib.pn_data_put_bool,
    UByte: lib.pn_data_put_ubyte,
    Byte: lib.pn_data_put_byte,
    UShort: lib.pn_data_put_ushort,
    Short: lib.pn_data_put_short,
    UInt: lib.pn_data_put_uint,
    Int: lib.pn_data_put_int,
    ULong: lib.pn_data_put_ulong,
    int: lib.pn_data_put_long,
    Timestamp: lib.pn_data_put_timestamp,
    Float: lib.pn_data_put_float,
    float: lib.pn_data_put_double,
    Char: lambda data, value: lib.pn_data_put_char(data, ord(value)),
    UUID: cproton.pn_data_put_uuid,
    bytes: lambda data, value: _put_bytes(lib.pn_data_put_binary, data, value),
    str: lambda data, value: _put_bytes(lib.pn_data_put_string, data, value.encode("utf-8")),
    Symbol: lambda data, value: _put_bytes(lib.pn_data_put_symbol, data, value.encode("ascii")),
    Decimal: lambda data, value: _put_decimal(data, value),
}

_DECIMALS: dict[int, int] = {4: lib.PN_DECIMAL32, 8: lib.PN_DECIMAL64, 16: lib.PN_DECIMAL128}
_ARRAY_TYPES: dict[type, int] = {
    type(None): lib.PN_NULL,
    list: lib.PN_LIST,
    dict: lib.PN_MAP,
    Array: lib.PN_ARRAY,
    bool: lib.PN_BOOL,
    UByte: lib.PN_UBYTE,
    Byte: lib.PN_BYTE,
    UShort: lib.PN_USHORT,
    Short: lib.PN_SHORT,
    UInt: lib.PN_UINT,
    Int: lib.PN_INT,
    ULong: lib.PN_ULONG,
    int: lib.PN_LONG,
    Timestamp: lib.PN_TIMESTAMP,
    Float: lib.PN_FLOAT,
    float: lib.PN_DOUBLE,
    Char: lib.PN_CHAR,
    UUID: lib.PN_UUID,
    bytes: lib.PN_BINARY,
    str: lib.PN_STRING,
    Symbol: lib.PN_SYMBOL,
}


def _array_type(array: Array) -> int:
    if not array:
        return _ARRAY_TYPES[Symbol]
    first = array[0]
    return _DECIMALS[len(first)] if type(first) is Decimal else _ARRAY_TYPES[type(first)]


def put(data: Any, value: Any) -> None:
    """Append `value` to `data`; raises TypeError for a Python type without an AMQP one."""
    writer = _WRITERS.get(type(value))
    if writer is not None:
        writer(data, value)
    elif isinstance(value, Described):
        lib.pn_data_put_described(data)
        _put_inside(data, (value.descriptor, value.value))
    elif isinstance(value, Array):
        lib.pn_data_put_array(data, False, _array_type(value))
        _put_inside(data, value)
    elif isinstance(value, Mapping):
        lib.pn_data_put_map(data)
        _put_inside(data, [part for pair in value.items() for part in pair])
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        lib.pn_data_put_list(data)
        _put_inside(data, value)
    else:
        raise TypeError(f"no AMQP type for {type(value).__name__}")


def _put_inside(data: Any, values: Sequence[Any]) -> None:
    lib.pn_data_enter(data)
    for value in values:
        put(data, value)
    lib.pn_data_exit(data)


def write_map(data: Any, items: Mapping[str, Any]) -> None:
    """Replace `data` by a map with symbol keys; by nothing if `items` is empty.

    A key that is no symbol, which a peer wrote as a string, is written as one: whoever echoes it cannot choose.
    """
    lib.pn_data_clear(data)
    if items:
        put(data, {Symbol(key) if str(key).isascii() else key: value for key, value in items.items()})


def write_symbols(data: Any, names: Sequence[str]) -> None:
    """Replace `data` by an array of symbols; by nothing if `names` is empty."""
    lib.pn_data_clear(data)
    if names:
        put(data, Array(Symbol(name) for name in names))
