"""Dead-letter properties: application properties that say why a message was moved (CONTRACT D)."""

from __future__ import annotations

from collections.abc import Mapping

from legato.amqp.codec.header import section_at
from legato.amqp.codec.map_entries import map_entries
from legato.amqp.codec.sections import scan
from legato.amqp.codec.values import Int, decode_value, encode_compound, encode_string, encode_value, skip_value
from legato.errors import ProtocolError

_APPLICATION_PROPERTIES = b"\x00\x53\x74"
_INT_MAX = 1 << 31
_LONG_MAX = (1 << 63) - 1


def annotate(body: bytes, properties: Mapping[str, str | int]) -> bytes:
    """The message with these application properties, in place of those of the same names.

    All else stays as it is, byte by byte. A message whose application properties cannot be read is returned
    unchanged: it is better kept without a reason than lost.

    Args:
        body: a message as it is stored.
        properties: truth values stay such, whole numbers become ints, and longs where that is too small; those that
            no long can be become the nearest one, since receivers give numbers that are too large, too.
    """
    added = [part for name, value in properties.items() for part in (encode_string(name), _encoded(value))]
    if not added:
        return body
    try:
        sections = scan(body)
        at = sections.application_properties_at
        if at < 0:
            begin = end = sections.body_at
            kept: list[bytes] = []
        else:
            begin, end = _section_begin(body, at), skip_value(body, at)
            kept = _others(body, at, properties)
    except ProtocolError:
        return body
    return b"".join((body[:begin], _APPLICATION_PROPERTIES, encode_compound(0xC1, kept + added), body[end:]))


def _section_begin(data: bytes, value_at: int) -> int:
    """Start of the section whose value is at `value_at`; descriptors have several encodings."""
    at = 0
    while (place := section_at(data, at)[1]) < value_at:
        at = skip_value(data, place)
    return at


def _encoded(value: str | int) -> bytes:
    if isinstance(value, str):
        return encode_string(value)
    if isinstance(value, bool):
        return encode_value(value)
    nearest = max(-_LONG_MAX - 1, min(value, _LONG_MAX))
    return encode_value(Int(nearest) if -_INT_MAX <= nearest < _INT_MAX else int(nearest))


def _others(data: bytes, at: int, replaced: Mapping[str, str | int]) -> list[bytes]:
    """The keys and values, as they are, of a map's entries that are not replaced."""
    begin, end = map_entries(data, at)
    kept: list[bytes] = []
    while begin < end:
        key, middle = decode_value(data, begin)
        after = skip_value(data, middle)
        if not isinstance(key, str) or key not in replaced:
            kept += (data[begin:middle], data[middle:after])
        begin = after
    if begin != end:
        raise ProtocolError("a map and its entries differ in size", "amqp:decode-error")
    return kept
