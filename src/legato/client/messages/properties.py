"""A message's properties: a mapping that checks names and values as they are set (Jakarta Messaging 3.5)."""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping
from functools import lru_cache
from typing import Any

from legato.client.messages.values import PROPERTIES, Kind, read_as, shown, stored, stored_as
from legato.errors import MessageFormatError, MessageNotWriteableError

PropertyValue = bool | int | float | str | None
"""What a property may hold (Jakarta Messaging 3.5.4); an integer must fit 64 bits."""

GROUP_ID = "JMSXGroupID"
GROUP_SEQUENCE = "JMSXGroupSeq"
USER_ID = "JMSXUserID"
DELIVERY_COUNT = "JMSXDeliveryCount"
HEADER_PROPERTIES = frozenset((GROUP_ID, GROUP_SEQUENCE, USER_ID, DELIVERY_COUNT))
"""Properties that AMQP carries in fields of its own."""

_SETTABLE = {GROUP_ID: Kind.STRING, GROUP_SEQUENCE: Kind.INT}
_LEGATO = "JMS_LEGATO_"
_PROPERTY = "The property"
_HEADERS = frozenset(
    "JMS" + header
    for header in (
        "MessageID",
        "Timestamp",
        "CorrelationID",
        "ReplyTo",
        "Destination",
        "DeliveryMode",
        "Redelivered",
        "Type",
        "Expiration",
        "DeliveryTime",
        "Priority",
    )
)
_IDENTIFIER = re.compile(r"[^\W\d]\w*|[$_][\w$]*|[^\W\d][\w$]*")
_RESERVED = {"NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"}


class Properties(MutableMapping[str, PropertyValue]):
    """Properties of a message, checked as they are set (Jakarta Messaging 3.5).

    A value keeps its type (`legato.client.messages.values`): what is copied from a received message is sent as it came.
    """

    __slots__ = ("_read_only", "_values")

    def __init__(self, values: dict[str, Any] | None = None, *, read_only: bool = False) -> None:
        self._values: dict[str, Any] = {} if values is None else values
        self._read_only = read_only

    def __getitem__(self, name: str) -> PropertyValue:
        value: PropertyValue = shown(self._values[name])
        return value

    def __setitem__(self, name: str, value: PropertyValue) -> None:
        self._check_writable()
        check_name(name)
        kind = _SETTABLE.get(name)
        if kind is None or value is None:
            self._values[name] = stored(value, PROPERTIES, _PROPERTY, name)
        else:
            self._values[name] = stored_as(value, kind, _PROPERTY, name)

    def __delitem__(self, name: str) -> None:
        self._check_writable()
        del self._values[name]

    def __contains__(self, name: object) -> bool:
        # The mapping's own would raise and catch an error for each that is not there.
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Properties({self._values!r})"

    def set_as(self, name: str, value: object, kind: Kind) -> None:
        """Set a property of a type.

        Raises:
            MessageFormatError: the name is not allowed, or the value is none of that type.
            MessageNotWriteableError: the properties are those of a received message.
        """
        self._check_writable()
        check_name(name)
        if _SETTABLE.get(name, kind) is not kind:
            raise MessageFormatError(f"The property {name} is a {_SETTABLE[name]}.")
        self._values[name] = stored_as(value, kind, _PROPERTY, name)

    def read_as(self, name: str, kind: Kind) -> Any:
        """A property's value as one of a type (Jakarta Messaging 3.5.4); one that is not there is read as None is.

        Raises:
            MessageFormatError: it cannot be read as that type.
        """
        return read_as(self._values.get(name), kind, PROPERTIES, f"The property {name}")

    def _check_writable(self) -> None:
        if self._read_only:
            raise MessageNotWriteableError(
                "A received message's properties are read-only; call clear_properties() first."
            )


@lru_cache(maxsize=4096)
def check_name(name: str) -> None:
    """See that applications may give a property that name (Jakarta Messaging 3.5.1).

    Raises:
        MessageFormatError: they may not.
    """
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name) or name.upper() in _RESERVED:
        raise MessageFormatError(
            f"{name!r} cannot name a property: names are identifiers, and not words of the selector language."
        )
    if name.startswith(_LEGATO) or (name.startswith("JMSX") and name not in _SETTABLE):
        raise MessageFormatError(
            f"The property {name} is set by the broker or the client library, not by applications."
        )
    if name in _HEADERS:
        raise MessageFormatError(f"{name} is a header, not a property: set the message's attribute for it.")
