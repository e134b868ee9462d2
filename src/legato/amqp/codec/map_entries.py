"""Entries of a message's maps: find one value, and step over the others."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from legato import limits
from legato.amqp.codec.types import Byte, Float, Int, Short, Symbol, Timestamp, UByte, UInt, ULong, UShort
from legato.amqp.codec.values import decode_value, malformed, skip_value
from legato.errors import ProtocolError

_PLAIN: dict[type, Callable[[Any], Any]] = {
    **dict.fromkeys((UByte, UShort, UInt, ULong, Byte, Short, Int, Timestamp), int),
    Symbol: str,
    Float: float,
}
LONG_MAP_BYTES = 64 << 10
"""In a shorter map there cannot be so many entries that a search takes long."""
_STRING = 0xA1
_SIZES = [(1 << (code >> 4)) >> 5 if 0x40 <= code < 0xA0 else -1 for code in range(256)]
"""The bytes after a constructor, -1 if they differ: its upper half says so (AMQP 1.2)."""


def _reader(layout: str) -> Callable[[bytes, int], Any]:
    unpack = struct.Struct(layout).unpack_from
    return lambda data, at: unpack(data, at)[0]


_READERS: dict[int, Callable[[bytes, int], Any]] = {
    0x41: lambda data, at: True,
    0x42: lambda data, at: False,
    0x51: _reader(">b"),
    0x54: _reader(">b"),
    0x55: _reader(">b"),
    0x71: _reader(">i"),
    0x81: _reader(">q"),
    0x82: _reader(">d"),
}
"""How the types of JMS properties are read at the place after their constructor."""


def plain(value: Any) -> Any:
    """A value as selectors know it: str, int, float, bool, or None; what is none of these comes as it is."""
    convert = _PLAIN.get(value.__class__)
    return value if convert is None else convert(value)


def map_entries(data: bytes, at: int) -> tuple[int, int]:
    """Extent of the keys and values of the map at `at`.

    Raises:
        ProtocolError: there is no map.
    """
    end = skip_value(data, at)
    code = data[at]
    begin = at + 3 if code == 0xC1 else at + 9
    if code not in (0xC1, 0xD1) or begin > end:
        raise malformed("a section is no map")
    return begin, end


def check_entries(data: bytes, at: int) -> None:
    """Look whether the map at `at` has so few entries that it can be searched often.

    Raises:
        ProtocolError: there is no map, or one of too many entries.
    """
    begin, end = map_entries(data, at)
    if end - begin <= LONG_MAP_BYTES:
        return
    at = begin
    for _ in range(limits.DECODED_ELEMENTS_MAX):
        if at >= end:
            return
        at = skip_value(data, at)
    raise ProtocolError("a section has too many entries", "amqp:resource-limit-exceeded")


def find_entry(data: bytes, begin: int, end: int, key: bytes, name: str) -> int:
    """Place of the value of a map's entry, -1 if the map has none.

    Args:
        key: the name as most clients encode it, a short string.

    Raises:
        ProtocolError: the map is malformed, as far as it was looked at.
        IndexError: likewise.
    """
    at = begin
    startswith, sizes = data.startswith, _SIZES
    while at < end:
        if startswith(key, at):
            return at + len(key)
        if data[at] == _STRING:
            at += 2 + data[at + 1]
        else:
            other, at = decode_value(data, at)
            if other == name:
                return at
        code = data[at]
        size = sizes[code]
        if size >= 0:
            at += 1 + size
        elif code == _STRING:
            at += 2 + data[at + 1]
        else:
            at = skip_value(data, at)
    if at != end:
        raise malformed("a map and its entries differ in size")
    return -1


def entry_places(data: bytes, begin: int, end: int) -> dict[str, int]:
    """Places of a map's values, by key; of equal keys the first counts, as in `find_entry`.

    Raises:
        ProtocolError: the map is malformed.
        IndexError: likewise.
    """
    places: dict[str, int] = {}
    at = begin
    while at < end:
        key, at = decode_value(data, at)
        if isinstance(key, str):
            places.setdefault(key, at)
        at = skip_value(data, at)
    if at != end:
        raise malformed("a map and its entries differ in size")
    return places


def read_entry(data: bytes, at: int, end: int) -> Any:
    """The value at `at`, as `plain` values are, in a map that ends at `end`.

    Raises:
        ProtocolError: it is malformed.
        IndexError: likewise.
    """
    code = data[at]
    if code == _STRING:
        stop = at + 2 + data[at + 1]
        if stop <= end:
            try:
                return data[at + 2 : stop].decode()
            except UnicodeDecodeError:
                raise malformed("text that cannot be decoded") from None
    elif (read := _READERS.get(code)) is not None:
        if at + 1 + _SIZES[code] <= end:
            return read(data, at + 1)
    else:
        value, stop = decode_value(data, at)
        if stop <= end:
            return plain(value)
    raise malformed("a value ends after its map")
