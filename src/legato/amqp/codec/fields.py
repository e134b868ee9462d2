"""Locate the fields of a message's properties (AMQP 3.2.4) without decoding them."""

from __future__ import annotations

from legato.amqp.codec.values import malformed, skip_value

MESSAGE_ID, USER_ID, TO, SUBJECT, REPLY_TO, CORRELATION_ID = range(6)
EXPIRY, CREATION, GROUP, GROUP_SEQUENCE = 8, 9, 10, 11
_NULL = 0x40
_FIELDS_MAX = 64
"""AMQP has 13."""


def field_places(data: bytes, at: int) -> list[int]:
    """The places of the fields of the list at `at`, and where it ends, in one list.

    Args:
        at: -1 if the message has no properties.

    Raises:
        ProtocolError: there is no list, or its fields do not fill it.
    """
    if at < 0 or data[at] == 0x45:
        return [at + 1]
    end = skip_value(data, at)
    if data[at] == 0xC0:
        at, count = at + 3, data[at + 2]
    elif data[at] == 0xD0:
        at, count = at + 9, int.from_bytes(data[at + 5 : at + 9], "big")
    else:
        raise malformed("the properties are no list")
    if count > min(end - at, _FIELDS_MAX):
        raise malformed("the properties claim more fields than they have bytes, or than AMQP knows")
    places = []
    for _ in range(count):
        places.append(at)
        code = data[at] if at < end else 0
        if code == _NULL:
            at += 1
        elif (code == 0xA1 or code == 0xA3) and at + 1 < end:
            at += 2 + data[at + 1]
        elif code == 0x83:
            at += 9
        else:
            at = skip_value(data, at)
    if at != end:
        raise malformed("the properties and their fields differ in size")
    places.append(at)
    return places


def has_field(data: bytes, places: list[int], index: int) -> bool:
    """Whether a field is there, and not null."""
    return index < len(places) - 1 and data[places[index]] != _NULL
