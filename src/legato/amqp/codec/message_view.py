"""View of a message for selectors and queues: reads single fields from its bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any
from uuid import UUID

from legato.amqp.codec.delivery_options import PRIORITY_MAX, group_at
from legato.amqp.codec.fields import (
    CORRELATION_ID,
    CREATION,
    GROUP,
    GROUP_SEQUENCE,
    MESSAGE_ID,
    SUBJECT,
    USER_ID,
    field_places,
)
from legato.amqp.codec.flow_calls import FLOW_KEY, FlowCall, flow_calls
from legato.amqp.codec.header import APPLICATION_PROPERTIES, PROPERTIES, scan_header, section_at
from legato.amqp.codec.map_entries import entry_places, find_entry, map_entries, plain, read_entry
from legato.amqp.codec.sections import scan
from legato.amqp.codec.values import decode_value, encode_string, malformed, skip_value

_NAMES = 1024
_SECTIONS_BYTES = 4096
"""In so many bytes the application properties of a flow's message have begun."""


class View:
    """The identifiers of one message (amqp.md A3).

    Args:
        data: the message.
        begin: where the keys and values of its application properties begin, as `entries_of` says.
        end: where they end.
    """

    __slots__ = ("_begin", "_data", "_end", "_places")

    def __init__(self, data: bytes, begin: int, end: int) -> None:
        self._data = data
        self._begin = begin
        self._end = end
        self._places: list[int] | None = None

    def get(self, name: str) -> Any:
        """The value of a header field or property, None if the message has none.

        Raises:
            ProtocolError: the message is malformed.
            IndexError: likewise.
        """
        key = _key(name)
        if key is None:
            return _FIELDS[name](self)
        data, end = self._data, self._end
        at = find_entry(data, self._begin, end, key, name)
        return None if at < 0 else read_entry(data, at, end)

    def field(self, index: int) -> Any:
        """A field of the message's properties (AMQP 3.2.4)."""
        places = self._places
        data = self._data
        if places is None:
            places = self._places = field_places(data, _section(data, PROPERTIES))
        return decode_value(data, places[index])[0] if index < len(places) - 1 else None

    @property
    def priority(self) -> int:
        """0 to 9."""
        return min(scan_header(self._data)[0].priority, PRIORITY_MAX)

    @property
    def durable(self) -> bool:
        """Whether the sender wants the message to survive."""
        return scan_header(self._data)[0].durable


class Memo(View):
    """The identifiers of a message with many properties, or for a selector that names many.

    One pass over the map finds all of them, for all selectors that the message is held against in turn.
    """

    __slots__ = ("_known", "_values")

    _latest: tuple[bytes, dict[str, int]] = (b"", {})

    def __init__(self, data: bytes, begin: int, end: int) -> None:
        super().__init__(data, begin, end)
        self._known: dict[str, int] | None = None
        self._values: dict[str, Any] = {}

    def get(self, name: str) -> Any:
        """See `View.get`."""
        values = self._values
        if name in values:
            return values[name]
        if _key(name) is None:
            value = _FIELDS[name](self)
        else:
            if self._known is None:
                latest = Memo._latest
                if latest[0] is not self._data:
                    latest = Memo._latest = self._data, entry_places(self._data, self._begin, self._end)
                self._known = latest[1]
            at = self._known.get(name, -1)
            value = None if at < 0 else read_entry(self._data, at, self._end)
        values[name] = value
        return value


def entries_of(data: bytes) -> tuple[int, int]:
    """Extent of the keys and values of a message's application properties.

    If there are none, both are where the sections before them end: header fields are looked for up to there.

    Raises:
        ProtocolError: the message is malformed.
        IndexError: likewise.
    """
    at, size = 0, len(data)
    while at < size:
        code, value_at = section_at(data, at)
        if code == APPLICATION_PROPERTIES:
            return map_entries(data, value_at)
        if code > APPLICATION_PROPERTIES:
            break
        at = skip_value(data, value_at)
    return at, at


def group_of(body: bytes) -> tuple[str, bool]:
    """The message's group, empty if it is of none, and whether it closes the group (JMSXGroupID, JMSXGroupSeq -1).

    Raises:
        ProtocolError: the message is malformed.
    """
    return group_at(body, field_places(body, scan(body).properties_at))


def flow_calls_of(body: bytes) -> tuple[FlowCall, ...]:
    """The calls of flows that a message carries (`legato.amqp.codec.flow_calls`).

    Raises:
        ProtocolError: the message is malformed.
        IndexError: likewise.
    """
    return flow_calls(body, *entries_of(body)) if body.find(FLOW_KEY, 0, _SECTIONS_BYTES) >= 0 else ()


def read_properties(body: bytes, names: Iterable[str]) -> dict[str, Any]:
    """The named application properties that the message has, as `plain` values.

    Raises:
        ProtocolError: the message is malformed.
    """
    try:
        view = View(body, *entries_of(body))
        found = {name: view.get(name) for name in names}
    except IndexError:
        raise malformed("the message is cut off") from None
    return {name: value for name, value in found.items() if value is not None}


def _section(data: bytes, wanted: int) -> int:
    """Place of the value of a section before the body, -1 if there is none."""
    at, size = 0, len(data)
    while at < size:
        code, at = section_at(data, at)
        if code >= wanted:
            return at if code == wanted else -1
        at = skip_value(data, at)
    return -1


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


def _group_sequence(view: View) -> Any:
    """As Java shows it: an unsigned integer of 32 bits with a sign."""
    value = plain(view.field(GROUP_SEQUENCE))
    return value - (1 << 32) if value.__class__ is int and value >> 31 == 1 else value


def _user(view: View) -> Any:
    value = view.field(USER_ID)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


_FIELDS: dict[str, Callable[[View], Any]] = {
    "JMSMessageID": lambda view: id_value(view.field(MESSAGE_ID)),
    "JMSCorrelationID": lambda view: id_value(view.field(CORRELATION_ID)),
    "JMSType": lambda view: plain(view.field(SUBJECT)),
    "JMSPriority": lambda view: view.priority,
    "JMSDeliveryMode": lambda view: "PERSISTENT" if view.durable else "NON_PERSISTENT",
    "JMSTimestamp": lambda view: plain(view.field(CREATION)),
    "JMSXGroupID": lambda view: plain(view.field(GROUP)),
    "JMSXGroupSeq": _group_sequence,
    "JMSXUserID": _user,
    "JMSXDeliveryCount": lambda view: None,
}


def is_field(name: str) -> bool:
    """Whether an identifier means a header field or one of AMQP's properties, not an application property."""
    return name in _FIELDS


@lru_cache(_NAMES)
def _key(name: str) -> bytes | None:
    """An identifier as most clients encode it in a map, None if it is not looked for there."""
    return None if name in _FIELDS else encode_string(name)
