"""The base of all messages: headers, properties, a body (Jakarta Messaging 3.4 to 3.7)."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from enum import IntEnum
from types import UnionType
from typing import Any, Generic, Protocol, TypeVar, overload

from legato.amqp.codec.types import Int
from legato.amqp.codec.values import encode_value
from legato.client.messages.destinations import Destination
from legato.client.messages.json_text import convert, is_class, is_json, is_model, name_of, read_json
from legato.client.messages.large import Region
from legato.client.messages.properties import DELIVERY_COUNT, Properties
from legato.client.messages.typed_properties import TypedProperties
from legato.errors import IllegalStateError, MessageFormatError, MessageNotWriteableError
from legato.quoting import quoted

PRIORITY_DEFAULT = 4
VALUE_PREFIX = b"\x00\x53\x77"
"""What an AMQP section of one value begins with."""


class DeliveryMode(IntEnum):
    """Whether a message outlives its broker (Jakarta Messaging 3.4.2)."""

    NON_PERSISTENT = 1
    PERSISTENT = 2


class Source(Protocol):
    """A received message's bytes, decoded on demand."""

    def headers(self) -> dict[str, Any]:
        """Header values by their attribute names, with `properties` as a plain dict."""

    def body(self) -> Any:
        """The body's value."""

    def body_sections(self) -> bytes:
        """The body as it goes out, up to what is in `stream`."""

    @property
    def stream(self) -> Region | None:
        """The rest of it, if it is not in memory."""

    def content(self) -> Region | None:
        """The bytes of the body, if they are in a file."""


_T = TypeVar("_T")


class _Header(Generic[_T]):
    """A header attribute; a received message's headers are decoded when the first one is asked for."""

    def __init__(self, default: _T, doc: str, *types: type, called: str = "") -> None:
        self._default = default
        """Of the class, under the name of the message's own attribute with the value. Where nobody asks for a message's
        `__dict__` it has none, which takes less memory, and less time of the garbage collector."""
        self.__doc__ = doc
        self._types = types
        """What it may be set to, besides None; anything if there are none."""
        self._called = called

    def __set_name__(self, owner: type, name: str) -> None:
        self._slot = "_" + name
        setattr(owner, self._slot, self._default)

    @overload
    def __get__(self, message: None, owner: type) -> _Header[_T]: ...
    @overload
    def __get__(self, message: Message, owner: type) -> _T: ...
    def __get__(self, message: Message | None, owner: type) -> _Header[_T] | _T:
        if message is None:
            return self
        if message._headers_unread:
            message._read_headers()
        value: _T = getattr(message, self._slot)
        return value

    def __set__(self, message: Message, value: _T) -> None:
        if value is not None and self._types and not isinstance(value, self._types):
            raise MessageFormatError(f"{self._slot[1:]} must be {self._called} or None, not {value!r:.80}.")
        if message._headers_unread:
            message._read_headers()
        setattr(message, self._slot, value)


class Message(TypedProperties):
    """A message without a body, and the base of the others (Jakarta Messaging 3.4).

    `send()` sets `message_id`, `timestamp`, `expiration`, `delivery_time`, `delivery_mode`, `priority` and
    `destination`. A received message's body and properties are read-only until `clear_body()` and
    `clear_properties()`; sent on without these, it goes with the body's bytes as they came.
    """

    message_id = _Header[str | None](None, "Unique name of the message, begins with `ID:` (JMSMessageID).")
    correlation_id = _Header["str | bytes | None"](
        None, "Links a message with another (JMSCorrelationID).", str, bytes, called="text or bytes"
    )
    reply_to = _Header[Destination | None](
        None, "Where a reply should go (JMSReplyTo).", Destination, called="a Queue or a Topic"
    )
    destination = _Header[Destination | None](None, "Where the message was sent (JMSDestination).")
    timestamp = _Header[int](0, "When it was sent, in milliseconds since 1970 (JMSTimestamp).")
    expiration = _Header[int](0, "When it expires, in milliseconds since 1970; 0 is never (JMSExpiration).")
    delivery_time = _Header[int](0, "When it could be delivered first, in milliseconds since 1970 (JMSDeliveryTime).")
    delivery_mode = _Header[DeliveryMode](DeliveryMode.PERSISTENT, "Whether it outlives its broker (JMSDeliveryMode).")
    priority = _Header[int](PRIORITY_DEFAULT, "0 to 9, higher first (JMSPriority).")
    type = _Header[str | None](None, "The application's name for this kind of message (JMSType).", str, called="text")
    content_type = _Header[str | None](
        None, "What kind of data the body is, for AMQP clients of other kinds.", str, called="text"
    )
    content_encoding = _Header[str | None](
        None, "How the body is encoded on top of that, such as `gzip`.", str, called="text"
    )
    redelivered = _Header[bool](False, "Whether it may have been delivered before (JMSRedelivered).")
    delivery_count = _Header[int](1, "How often it was delivered, this time included (JMSXDeliveryCount).")

    duplicate = False
    """Whether the broker dropped it when it was sent last, because it remembers its duplicate id."""

    _message_id: str | None
    _correlation_id: str | bytes | None
    _reply_to: Destination | None
    _destination: Destination | None
    _timestamp: int
    _expiration: int
    _delivery_time: int
    _delivery_mode: DeliveryMode
    _priority: int
    _type: str | None
    _content_type: str | None
    _content_encoding: str | None

    _headers_unread = False
    _body_unread = False
    _body_read_only = False
    _body_value: Any = None
    _properties: Properties | None = None
    _source: Source | None = None
    """Where a received message's body comes from, until it is cleared."""
    _acknowledge: Callable[..., Any] | None = None
    """Takes the message, and `typed=True` if the outcome is to be returned."""
    _delivery: object = None
    """As which it was received, where its session says only later what becomes of it."""

    @classmethod
    def received(cls, source: Source, acknowledge: Callable[..., Any]) -> Any:
        """A message that came from a broker."""
        message = cls.__new__(cls)
        message._source = source
        message._acknowledge = acknowledge
        message._headers_unread = message._body_unread = message._body_read_only = True
        return message

    @property
    def properties(self) -> Properties:
        """The application's properties, a mapping with the rules of Jakarta Messaging 3.5."""
        if self._headers_unread:
            self._read_headers()
        if self._properties is None:
            self._properties = Properties()
        return self._properties

    def clear_properties(self) -> None:
        """Remove all properties and make them writable (Jakarta Messaging 3.5.7)."""
        if self._headers_unread:
            self._read_headers()
        self._properties = Properties()

    @property
    def body(self) -> Any:
        """The body's value: what kind it is depends on the class of the message."""
        return self._read_body()

    def clear_body(self) -> None:
        """Empty the body and make it writable (Jakarta Messaging 3.11.1)."""
        if self._headers_unread:
            self._read_headers()
        self._source = None
        self._content_type = self._content_encoding = None
        self._body_unread = False
        self._body_read_only = False
        self._body_value = self._empty_body()

    def is_body_assignable_to(self, kind: builtins.type) -> bool:
        """Whether `get_body(kind)` returns the body; a message without one has one of any type."""
        try:
            self._body_as(kind)
        except MessageFormatError:
            return False
        return True

    def get_body(self, kind: builtins.type[_T]) -> _T | None:
        """The body, if it is of a type; None if there is no body.

        Args:
            kind: `str`, `bytes`, `dict`, or a base of these; or a dataclass, a Struct of msgspec, a model of pydantic,
                a TypedDict or `list[Order]`, for which the body is read as `json()` does. Where the content type is
                `application/json` any type that JSON fits, such as `dict` or `int`.

        Raises:
            MessageFormatError: it is of another type, or this is a stream message.
        """
        value: _T | None = self._body_as(kind)
        return value

    @overload
    def json(self) -> Any: ...
    @overload
    def json(self, kind: builtins.type[_T]) -> _T: ...
    @overload
    def json(self, kind: UnionType) -> Any: ...
    def json(self, kind: Any = Any) -> Any:
        """The body as an object: JSON in text or bytes, or the values of a map or object message.

        Args:
            kind: what it is to be: a dataclass, a Struct of msgspec, a model of pydantic, a TypedDict, `list[Order]`,
                or any other type that msgspec reads. Unknown fields are ignored unless the type forbids them.

        Raises:
            MessageFormatError: there is no body, or it is not JSON, or does not fit `kind`.
            JMSError: `kind` is no type that can be read from JSON.
        """
        value = self._assignable_body()
        if value is None:
            raise MessageFormatError(f"The message {self.message_id or 'that was not sent'} has no body.")
        return read_json(value, kind) if isinstance(value, str | bytes) else convert(value, kind)

    def acknowledge(self) -> Any:
        """In CLIENT_ACKNOWLEDGE: acknowledge all messages its session has received (CONTRACT C7); else harmless.

        Returns once the broker has made it durable; with `legato.client.aio` the result has to be awaited for that.

        Raises:
            IllegalStateError: a message went to another receiver after a failover (CONTRACT B12; `recover()` goes on),
                or the session is closed, or the message was not received.
            TransactionRolledBackError: with the failover contract `gigaspaces`, if a failover came before or during it
                (CONTRACT A10): all messages come again.
            JMSError: with the failover contract `hornetq`, if a failover came during it (`UNBLOCKED`, CONTRACT E11).
        """
        if self._acknowledge is None:
            raise IllegalStateError("This message was not received from a consumer; there is nothing to acknowledge.")
        return self._acknowledge(self)

    def try_acknowledge(self) -> Any:
        """As `acknowledge()`, but a late acknowledgement is no error: says what became of this message (promise 5).

        Under every failover contract it waits for the truth, over failovers too.

        Returns:
            An `AcknowledgementOutcome`; with `legato.client.aio` it has to be awaited.

        Raises:
            IllegalStateError: the session is transacted or closed, or the message was not received.
            JMSError: the connection is gone for good.
        """
        if self._acknowledge is None:
            raise IllegalStateError("This message was not received from a consumer; there is nothing to acknowledge.")
        return self._acknowledge(self, typed=True)

    def _body_as(self, kind: Any) -> Any:
        value = self._assignable_body()
        if value is None or (is_class(kind) and isinstance(value, kind)):
            return value
        if is_model(kind) or (is_json(self.content_type) and isinstance(value, str | bytes)):
            return self.json(kind)
        raise MessageFormatError(f"The message's body is of type {type(value).__name__}, not {name_of(kind)}.")

    def _mark_redelivered(self, times: int) -> None:
        """It was presented so often before, which the broker has not counted."""
        self.redelivered = True
        self.delivery_count += times
        values = self.properties._values | {DELIVERY_COUNT: Int(self.delivery_count)}
        self._properties = Properties(values, read_only=True)

    def _read_headers(self) -> None:
        source = self._source
        if source is None:
            self._headers_unread = False
            return
        values = source.headers()
        self._properties = Properties(values.pop("properties"), read_only=True)
        for name, value in values.items():
            setattr(self, "_" + name, value)
        self._headers_unread = False

    def _read_body(self) -> Any:
        if self._body_unread:
            source = self._source
            self._body_value = None if source is None else source.body()
            self._body_unread = False
        return self._body_value

    def _write_body(self, value: Any) -> None:
        self._check_writable()
        self._body_value = value

    def _check_writable(self) -> None:
        if self._body_read_only:
            raise MessageNotWriteableError("The message's body is read-only; call clear_body() first.")

    def _empty_body(self) -> Any:
        return None

    def _assignable_body(self) -> Any:
        """The body that `get_body()` can return; None if there is none."""
        return None

    def _encoded_body(self) -> bytes:
        """The body's AMQP sections; raises TypeError or ValueError if AMQP cannot carry it."""
        return VALUE_PREFIX + encode_value(self._body_value)

    def __repr__(self) -> str:
        kind = type(self).__name__
        try:
            name, destination, count = self.message_id, self.destination, self.delivery_count
        except Exception:  # what a debugger shows does not fail
            return f"<{kind} with headers that cannot be read>"
        if name is None and destination is None:
            return f"<{kind} not sent>"
        to = "" if destination is None else f" to {destination!r}"
        again = f", attempt {count}" if count > 1 else ""
        return f"<{kind} {'without an id' if name is None else quoted(name)}{to}{again}>"
