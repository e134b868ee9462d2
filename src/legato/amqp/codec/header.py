"""The header section and the codes of all sections of a message (AMQP 3.2)."""

from __future__ import annotations

from typing import Any

import msgspec

from legato.amqp.codec.types import UInt
from legato.amqp.codec.values import decode_value, encode_compound, encode_uint, malformed

HEADER = 0x70
DELIVERY_ANNOTATIONS = 0x71
MESSAGE_ANNOTATIONS = 0x72
PROPERTIES = 0x73
APPLICATION_PROPERTIES = 0x74
DATA = 0x75
SEQUENCE = 0x76
VALUE = 0x77
FOOTER = 0x78

_CODES_BY_NAME = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}
_PRIORITY_DEFAULT = 4


class Header(msgspec.Struct, frozen=True, gc=False):
    """AMQP 3.2.1, with its defaults."""

    durable: bool = False
    priority: int = _PRIORITY_DEFAULT
    ttl_ms: int | None = None
    first_acquirer: bool = False
    delivery_count: int = 0


_NO_HEADER = Header()
_HEADERS: dict[bytes, Header] = {}
_HEADERS_MAX = 4096
_HEADER_BYTES_MAX = 64
"""Longer ones have what AMQP does not know, and are not remembered."""


def section_at(data: bytes, at: int) -> tuple[int, int]:
    """The code of the section at `at`, and where its value begins.

    Raises:
        ProtocolError: there is no section.
    """
    size = len(data)
    if at + 2 < size and data[at] == 0:
        constructor = data[at + 1]
        if constructor == 0x53:
            return data[at + 2], at + 3
        if constructor in (0x80, 0xA3, 0xB3):
            descriptor, value_at = decode_value(data, at + 1)
            code = _CODES_BY_NAME.get(descriptor, 0) if isinstance(descriptor, str) else descriptor
            return int(code), value_at
    raise malformed("a message section is expected")


def scan_header(data: bytes) -> tuple[Header, int]:
    """The header and where it ends: the defaults and 0 if there is none."""
    if not data:
        return _NO_HEADER, 0
    if data[:3] == b"\x00\x53\x70":
        value_at = 3
    else:
        code, value_at = section_at(data, 0)
        if code != HEADER:
            return _NO_HEADER, 0
    if len(data) > 4 and data[value_at] == 0xC0:
        end = value_at + 2 + data[value_at + 1]
        raw = data[value_at:end]
        known = _HEADERS.get(raw)
        if known is not None:
            return known, end
    fields, end = decode_value(data, value_at)
    if not isinstance(fields, list):
        raise malformed("the header is no list")
    header = header_of(fields)
    if len(_HEADERS) < _HEADERS_MAX and end - value_at <= _HEADER_BYTES_MAX:
        _HEADERS[data[value_at:end]] = header
    return header, end


def header_of(fields: list[Any]) -> Header:
    durable, priority, ttl_ms, first_acquirer, delivery_count, *_ = [*fields, None, None, None, None, None]
    for flag in (durable, first_acquirer):
        if flag is not None and not isinstance(flag, bool):
            raise malformed("a flag of the header is no boolean")
    for number in (priority, ttl_ms, delivery_count):
        if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 0):
            raise malformed("a number of the header is of another type")
    return Header(
        bool(durable),
        _PRIORITY_DEFAULT if priority is None else int(priority),
        None if ttl_ms is None else int(ttl_ms),
        bool(first_acquirer),
        int(delivery_count or 0),
    )


def encode_header(header: Header) -> bytes:
    """The header section, without the fields that have their default at its end."""
    parts = [
        b"\x41" if header.durable else b"\x42",
        b"\x40" if header.priority == _PRIORITY_DEFAULT else bytes((0x50, min(header.priority, 255))),
        b"\x40" if header.ttl_ms is None else encode_uint(UInt(min(header.ttl_ms, 0xFFFFFFFF))),
        b"\x41" if header.first_acquirer else b"\x40",
        b"\x40" if not header.delivery_count else encode_uint(UInt(min(header.delivery_count, 0xFFFFFFFF))),
    ]
    while len(parts) > 1 and parts[-1] == b"\x40":
        parts.pop()
    return b"\x00\x53\x70" + encode_compound(0xC0, parts)
