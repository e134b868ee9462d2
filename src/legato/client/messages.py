"""Messages as applications see them: headers, properties, bodies (Jakarta Messaging 3)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, MutableMapping
from enum import IntEnum
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar, overload

from legato.client.destinations import Destination
from legato.errors import IllegalStateError, MessageFormatError, MessageNotWriteableError

PRIORITY_DEFAULT = 4

PropertyValue = bool | int | float | str | None
"""What a property may hold (Jakarta Messaging 3.5.4); an integer must fit 64 bits."""


class DeliveryMode(IntEnum):
    """Whether a message outlives its broker (Jakarta Messaging 3.4.2)."""

    NON_PERSISTENT = 1
    PERSISTENT = 2


class Source(Protocol):
    """A received message in the form in which it came; read only as far as the application asks."""

    def headers(self) -> dict[str, Any]:
        """Header values by their attribute names, with `properties` as a plain dict."""

    def body(self) -> Any:
        """The body's value."""


_T = TypeVar("_T")


class _Header(Generic[_T]):
    """A header attribute; a received message's headers are decoded when the first one is asked for."""

    def __init__(self, default: _T, doc: str) -> None:
        self._default = default
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self._slot = "_" + name

    @overload
    def __get__(self, message: None, owner: type) -> _Header[_T]: ...
    @overload
    def __get__(self, message: Message, owner: type) -> _T: ...
    def __get__(self, message: Message | None, owner: type) -> _Header[_T] | _T:
        if message is None:
            return self
        if message._headers_unread:
            message._read_headers()
        value: _T = message.__dict__.get(self._slot, self._default)
        return value

    def __set__(self, message: Message, value: _T) -> None:
        if message._headers_unread:
            message._read_headers()
        message.__dict__[self._slot] = value


class Message:
    """A message without a body, and the base of the others (Jakarta Messaging 3.4).

    `send()` sets `message_id`, `timestamp`, `expiration`, `delivery_mode`, `priority` and `destination`. A received
    message's body and properties are read-only until `clear_body()` and `clear_properties()`.
    """

    message_id = _Header[str | None](None, "Unique name of the message, begins with `ID:` (JMSMessageID).")
    correlation_id = _Header["str | bytes | None"](None, "Links a message with another (JMSCorrelationID).")
    reply_to = _Header[Destination | None](None, "Where a reply should go (JMSReplyTo).")
    destination = _Header[Destination | None](None, "Where the message was sent (JMSDestination).")
    timestamp = _Header[int](0, "When it was sent, in milliseconds since 1970 (JMSTimestamp).")
    expiration = _Header[int](0, "When it expires, in milliseconds since 1970; 0 is never (JMSExpiration).")
    delivery_mode = _Header[DeliveryMode](DeliveryMode.PERSISTENT, "Whether it outlives its broker (JMSDeliveryMode).")
    priority = _Header[int](PRIORITY_DEFAULT, "0 to 9, higher first (JMSPriority).")
    type = _Header[str | None](None, "The application's name for this kind of message (JMSType).")
    redelivered = _Header[bool](False, "Whether it may have been delivered before (JMSRedelivered).")
    delivery_count = _Header[int](1, "How often it was delivered, this time included (JMSXDeliveryCount).")

    _headers_unread = False
    _body_unread = False
    _body_read_only = False
    _body_value: Any = None
    _properties: Properties | None = None
    _source: Source
    _acknowledge: Callable[[Message], None] | None = None

    @classmethod
    def received(cls, source: Source, acknowledge: Callable[[Message], None]) -> Any:
        """A message that came from a broker."""
        message = cls.__new__(cls)
        # One update of the instance's dict: this runs for each message received.
        message.__dict__ = {
            "_source": source,
            "_acknowledge": acknowledge,
            "_headers_unread": True,
            "_body_unread": True,
            "_body_read_only": True,
        }
        return message

    @property
    def properties(self) -> Properties:
        """The application's properties, a mapping with the rules of Jakarta Messaging 3.5."""
        if self._headers_unread:
            self._read_headers()
        if self._properties is None:
            self._properties = Properties()
        return self._properties

    def set_property(self, name: str, value: PropertyValue) -> None:
        """Set a property.

        Raises:
            MessageFormatError: the name or the value is not one that Jakarta Messaging 3.5 allows.
            MessageNotWriteableError: the message was received and `clear_properties()` was not called.
        """
        self.properties[name] = value

    def clear_properties(self) -> None:
        """Remove all properties and make them writable (Jakarta Messaging 3.5.2)."""
        if self._headers_unread:
            self._read_headers()
        self._properties = Properties()

    @property
    def body(self) -> Any:
        """The body's value: a `str`, `bytes`, None, or what a foreign client's message decodes to."""
        return self._read_body()

    def clear_body(self) -> None:
        """Empty the body and make it writable (Jakarta Messaging 3.11.2)."""
        self._body_unread = False
        self._body_read_only = False
        self._body_value = self._empty_body()

    def acknowledge(self) -> None:
        """In CLIENT_ACKNOWLEDGE: acknowledge all messages its session has received (CONTRACT C7); else harmless.

        Returns once the broker has made it durable.

        Raises:
            IllegalStateError: a message went to another receiver after a failover (CONTRACT B12; `recover()` goes on),
                or the session is closed, or the message was not received.
        """
        if self._acknowledge is None:
            raise IllegalStateError("This message was not received from a consumer; there is nothing to acknowledge.")
        self._acknowledge(self)

    def _read_headers(self) -> None:
        values = self._source.headers()
        self._headers_unread = False
        self._properties = Properties(values.pop("properties"), read_only=True)
        for name, value in values.items():
            self.__dict__["_" + name] = value

    def _read_body(self) -> Any:
        if self._body_unread:
            self._body_value = self._source.body()
            self._body_unread = False
        return self._body_value

    def _write_body(self, value: Any) -> None:
        if self._body_read_only:
            raise MessageNotWriteableError("A received message's body is read-only; call clear_body() first.")
        self._body_value = value

    def _empty_body(self) -> Any:
        return None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.message_id or 'not sent'}>"


class TextMessage(Message):
    """A message whose body is a string, or None."""

    def __init__(self, text: str | None = None) -> None:
        self.text = text

    @property
    def text(self) -> str | None:
        """The body."""
        value: str | None = self._read_body()
        return value

    @text.setter
    def text(self, value: str | None) -> None:
        if value is not None and not isinstance(value, str):
            raise MessageFormatError(f"A text message's body is a str or None, not {type(value).__name__}.")
        self._write_body(value)


class BytesMessage(Message):
    """A message whose body is bytes."""

    def __init__(self, body: bytes = b"") -> None:
        self.body = body

    @property
    def body(self) -> bytes:
        """The body."""
        value: bytes = self._read_body()
        return value

    @body.setter
    def body(self, value: bytes) -> None:
        if type(value) is not bytes:
            if not isinstance(value, (bytes, bytearray, memoryview)):
                raise MessageFormatError(f"A bytes message's body is bytes, not {type(value).__name__}.")
            value = bytes(value)
        self._write_body(value)

    def _empty_body(self) -> bytes:
        return b""


class Properties(MutableMapping[str, PropertyValue]):
    """Properties of a message, checked as they are set (Jakarta Messaging 3.5)."""

    __slots__ = ("_read_only", "_values")

    def __init__(self, values: dict[str, PropertyValue] | None = None, *, read_only: bool = False) -> None:
        self._values = {} if values is None else values
        self._read_only = read_only

    def __getitem__(self, name: str) -> PropertyValue:
        return self._values[name]

    def __setitem__(self, name: str, value: PropertyValue) -> None:
        self._check_writable()
        _check_name(name)
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise MessageFormatError(f"The property {name} holds {value}, which does not fit 64 bits.")
        if value is not None and not isinstance(value, bool | int | float | str):
            raise MessageFormatError(
                f"The property {name} may be a bool, int, float, str or None, not {type(value).__name__}."
            )
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        self._check_writable()
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Properties({self._values!r})"

    def _check_writable(self) -> None:
        if self._read_only:
            raise MessageNotWriteableError(
                "A received message's properties are read-only; call clear_properties() first."
            )


_IDENTIFIER = re.compile(r"[^\W\d]\w*|[$_][\w$]*|[^\W\d][\w$]*")
_RESERVED = {"NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"}
_SETTABLE_JMSX = {"JMSXGroupID", "JMSXGroupSeq"}


@lru_cache(maxsize=4096)
def _check_name(name: str) -> None:
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name) or name.upper() in _RESERVED:
        raise MessageFormatError(
            f"{name!r} cannot name a property: names are identifiers, and not words of the selector language."
        )
    if name.startswith("JMSX") and name not in _SETTABLE_JMSX:
        raise MessageFormatError(
            f"The property {name} is set by the broker or the client library, not by applications."
        )
