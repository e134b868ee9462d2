"""What selectors and queues ask of a message, found in its bytes without decoding the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from legato.amqp.codec import decode_value, encode_string, malformed, skip_value
from legato.amqp.fields import (
    CORRELATION_ID,
    CREATION,
    GROUP,
    GROUP_SEQUENCE,
    MESSAGE_ID,
    SUBJECT,
    USER_ID,
    field_places,
)
from legato.amqp.sections import Sections, scan
from legato.amqp.special import PRIORITY_MAX, group_at
from legato.amqp.types import Byte, Char, Float, Int, Short, Symbol, Timestamp, UByte, UInt, ULong, UShort

_PLAIN: dict[type, Callable[[Any], Any]] = {
    **dict.fromkeys((bool, int, float, str), lambda value: value),
    **dict.fromkeys((UByte, UShort, UInt, ULong, Byte, Short, Int, Timestamp), int),
    **dict.fromkeys((Symbol, Char), str),
    Float: float,
}


def plain(value: Any) -> Any:
    """A value as selectors know it: str, int, float, bool, or None; what is none of these comes as it is."""
    convert = _PLAIN.get(value.__class__)
    return value if convert is None else convert(value)


class View:
    """The identifiers of one message (AMQP.md A3)."""

    __slots__ = ("_data", "_sections")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._sections: Sections | None = None

    def get(self, name: str) -> Any:
        """The value of a header field or property, None if the message has none.

        Raises:
            ProtocolError: the message is malformed.
        """
        sections = self._sections
        if sections is None:
            sections = self._sections = scan(self._data)
        if name.startswith("JMS"):
            read = _FIELDS.get(name)
            if read is not None:
                return read(sections)
        at = sections.application_properties_at
        return None if at < 0 else plain(_entry(self._data, at, name))


def group_of(body: bytes) -> tuple[str, bool]:
    """The message's group, empty if it is of none, and whether it closes the group (JMSXGroupID, JMSXGroupSeq -1).

    Raises:
        ProtocolError: the message is malformed.
    """
    sections = scan(body)
    return group_at(body, field_places(body, sections.properties_at))


def read_properties(body: bytes, names: Iterable[str]) -> dict[str, Any]:
    """Those of the named application properties that the message has, as `plain` values.

    Raises:
        ProtocolError: the message is malformed.
    """
    view = View(body)
    at = scan(body).application_properties_at
    found = {name: plain(_entry(view._data, at, name)) for name in names if at >= 0}
    return {name: value for name, value in found.items() if value is not None}


def map_items(data: bytes, at: int) -> tuple[int, int, int]:
    """Where the elements of the map at `at` begin and end, and how many they are, keys and values.

    Raises:
        ProtocolError: it is no map.
    """
    end = skip_value(data, at)
    if data[at] == 0xC1:
        begin, count = at + 3, data[at + 2]
    elif data[at] == 0xD1:
        begin, count = at + 9, int.from_bytes(data[at + 5 : at + 9], "big")
    else:
        raise malformed("the application properties are no map")
    if begin > end or count % 2:
        raise malformed("a map is cut off")
    return begin, end, count


def _entry(data: bytes, at: int, name: str) -> Any:
    """The value in the map at `at`."""
    at, end, count = map_items(data, at)
    key = encode_string(name)
    size = len(key)
    for _ in range(count // 2):
        if at >= end:
            raise malformed("a map is cut off")
        if data.startswith(key, at):
            return decode_value(data, at + size)[0]
        if data[at] == 0xA1:
            at += 2 + data[at + 1]
        else:
            other, at = decode_value(data, at)
            if other == name:
                return decode_value(data, at)[0]
        at = skip_value(data, at)
    return None


def _property(sections: Sections, index: int) -> Any:
    places = field_places(sections.data, sections.properties_at)
    return decode_value(sections.data, places[index])[0] if index < len(places) - 1 else None


def id_value(value: Any) -> str | None:
    """A message or correlation id as JMS clients spell it (AMQP JMS mapping 3.2.1.1)."""
    if isinstance(value, str) or value is None:
        return value
    if isinstance(value, bytes):
        return "ID:AMQP_BINARY:" + value.hex().upper()
    if isinstance(value, UUID):
        return f"ID:AMQP_UUID:{value}"
    if isinstance(value, int):
        return f"ID:AMQP_ULONG:{int(value)}"
    raise malformed("an id of a type AMQP does not allow")


def _group_sequence(sections: Sections) -> Any:
    """As Java shows it: an unsigned integer of 32 bits with a sign."""
    value = plain(_property(sections, GROUP_SEQUENCE))
    return value - (1 << 32) if value.__class__ is int and value >> 31 == 1 else value


def _user(sections: Sections) -> Any:
    value = _property(sections, USER_ID)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


_FIELDS: dict[str, Callable[[Sections], Any]] = {
    "JMSMessageID": lambda sections: id_value(_property(sections, MESSAGE_ID)),
    "JMSCorrelationID": lambda sections: id_value(_property(sections, CORRELATION_ID)),
    "JMSType": lambda sections: plain(_property(sections, SUBJECT)),
    "JMSPriority": lambda sections: min(sections.priority, PRIORITY_MAX),
    "JMSDeliveryMode": lambda sections: "PERSISTENT" if sections.durable else "NON_PERSISTENT",
    "JMSTimestamp": lambda sections: plain(_property(sections, CREATION)),
    "JMSXGroupID": lambda sections: plain(_property(sections, GROUP)),
    "JMSXGroupSeq": _group_sequence,
    "JMSXUserID": _user,
    "JMSXDeliveryCount": lambda sections: None,
}
