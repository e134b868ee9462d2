"""Messages as plain objects that JSON can say, and back: nothing of a body or property is lost, nor its type.

What JSON has a type for is as it is: texts, booleans, None, integers of 32 bits (Jakarta Messaging's `int`), doubles.
Everything else is an object with one name, its type: `{"long": 5}`, `{"bytes": "<base64>"}`, `{"float": 1.5}`,
`{"map": [[name, value], ...]}`.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from legato.amqp.codec.types import Byte, Char, Float, Int, Short, Symbol, Timestamp, UByte, UInt, ULong, UShort
from legato.amqp.codec.values import decode_value, encode_value
from legato.client.messages.bytes_message import BytesMessage
from legato.client.messages.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
from legato.client.messages.java_object import CONTENT_TYPE, JavaObject
from legato.client.messages.map_message import MapMessage
from legato.client.messages.message import PRIORITY_DEFAULT, DeliveryMode, Message
from legato.client.messages.object_message import ObjectMessage
from legato.client.messages.properties import DELIVERY_COUNT, USER_ID, Properties
from legato.client.messages.stream_message import StreamMessage
from legato.client.messages.text_message import TextMessage
from legato.errors import LegatoError, MessageFormatError

KINDS: dict[str, type[Message]] = {
    "text": TextMessage,
    "bytes": BytesMessage,
    "map": MapMessage,
    "stream": StreamMessage,
    "object": ObjectMessage,
    "message": Message,
}
"""What the classes of messages are called."""

_NAMES = {kind: name for name, kind in KINDS.items()}
_INTEGERS: dict[str, type[int]] = {
    kind.__name__.lower(): kind for kind in (Byte, Short, Int, UByte, UShort, UInt, ULong, Timestamp)
}
_INT_MAX = (1 << 31) - 1
_SET_ANEW = frozenset((USER_ID, DELIVERY_COUNT))
"""Properties that are not the sender's."""

Plain = dict[str, Any]


def as_plain(message: Message, *, body: bool = True) -> Plain:
    """A message as an object for JSON; what has its default is left out.

    Args:
        body: whether the body is in it too.
    """
    plain: Plain = {"kind": kind_of(message), "message_id": message.message_id, "timestamp": message.timestamp}
    headers = {
        "correlation_id": None if message.correlation_id is None else tagged(message.correlation_id),
        "type": message.type,
        "reply_to": None if message.reply_to is None else _destination_text(message.reply_to),
        "content_type": message.content_type,
        "content_encoding": message.content_encoding,
        "expiration": message.expiration or None,
        "priority": None if message.priority == PRIORITY_DEFAULT else message.priority,
        "persistent": None if message.delivery_mode == DeliveryMode.PERSISTENT else False,
    }
    plain |= {name: value for name, value in headers.items() if value is not None}
    if properties := {
        name: tagged(value) for name, value in message.properties._values.items() if name not in _SET_ANEW
    }:
        plain["properties"] = properties
    if body:
        plain["body"] = body_of(message)
    return plain


def kind_of(message: Message) -> str:
    """What the class of a message is called in `KINDS`."""
    return next(_NAMES[base] for base in type(message).__mro__ if base in _NAMES)


def body_of(message: Message) -> Any:
    """The body as an object for JSON."""
    value = message._read_body()
    if isinstance(message, BytesMessage):
        return base64.b64encode(message.body).decode()
    if isinstance(message, MapMessage):
        return {name: tagged(item) for name, item in value.items()}
    if isinstance(message, StreamMessage):
        return [tagged(item) for item in value]
    return tagged(value)


def from_plain(plain: Mapping[str, Any], body: Message | None = None) -> Message:
    """The message of an object that `as_plain` made, or that somebody wrote.

    Args:
        body: a message that has its body already.

    Raises:
        MessageFormatError: it says something that no message has. The sentence names it.
    """
    unknown = plain.keys() - _FIELDS
    if unknown:
        raise MessageFormatError(f"{', '.join(sorted(map(repr, unknown)))}: known are {', '.join(sorted(_FIELDS))}.")
    try:
        message = _with_body(plain) if body is None else body
        _set_headers(message, plain)
        values = {str(name): untagged(value) for name, value in _mapping(plain.get("properties")).items()}
        message._properties = Properties({name: value for name, value in values.items() if name not in _SET_ANEW})
    except (LegatoError, TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise MessageFormatError(str(error), linked=error) from error
    return message


_FIELDS = frozenset(
    (
        *("kind", "message_id", "timestamp", "correlation_id", "type", "reply_to", "content_type", "content_encoding"),
        *("expiration", "priority", "persistent", "properties", "body"),
    )
)


def _with_body(plain: Mapping[str, Any]) -> Message:
    kind = plain.get("kind", "text")
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; it must be one of {', '.join(KINDS)}.")
    message = KINDS[kind]()
    body = plain.get("body")
    if kind == "text":
        message._body_value = _text(body, "body")
    elif kind == "bytes":
        message._body_value = _decoded(body or "")
    elif kind == "map":
        message._body_value = {str(name): untagged(value) for name, value in _mapping(body).items()}
    elif kind == "stream":
        if not isinstance(body, list | None):
            raise ValueError("The body of a stream message is a list.")
        message._body_value = [untagged(value) for value in body or []]
    else:
        message._body_value = untagged(body)
        if isinstance(message._body_value, JavaObject):
            message.content_type = CONTENT_TYPE
    message._encoded_body()
    return message


def _set_headers(message: Message, plain: Mapping[str, Any]) -> None:
    correlation_id = untagged(plain.get("correlation_id"))
    if not isinstance(correlation_id, str | bytes | None):
        raise ValueError("correlation_id is a text, or bytes.")
    message.correlation_id = correlation_id
    message.type = _text(plain.get("type"), "type")
    if (content_type := _text(plain.get("content_type"), "content_type")) is not None:
        message.content_type = content_type
    message.content_encoding = _text(plain.get("content_encoding"), "content_encoding")
    if (reply_to := _text(plain.get("reply_to"), "reply_to")) is not None:
        message.reply_to = _destination(reply_to)
    message.expiration = _integer(plain.get("expiration"), "expiration", 0, 1 << 62) or 0
    priority = _integer(plain.get("priority"), "priority", 0, 9)
    message.priority = PRIORITY_DEFAULT if priority is None else priority
    persistent = plain.get("persistent", True)
    if not isinstance(persistent, bool):
        raise ValueError("persistent is true or false.")
    message.delivery_mode = DeliveryMode.PERSISTENT if persistent else DeliveryMode.NON_PERSISTENT


def _text(value: Any, name: str) -> str | None:
    if not isinstance(value, str | None):
        raise ValueError(f"{name} is a text, not {value!r}.")
    return value


def _integer(value: Any, name: str, least: int, most: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{name} is a whole number from {least} to {most}, not {value!r}.")
    return value


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping | None):
        raise ValueError(f"An object is needed, not {value!r}.")
    return value or {}


_DESTINATIONS: dict[str, type[Destination]] = {
    "queue": Queue,
    "topic": Topic,
    "temp-queue": TemporaryQueue,
    "temp-topic": TemporaryTopic,
}


def _destination_text(destination: Destination) -> str:
    kind = next(name for name, kind in _DESTINATIONS.items() if kind.kind == destination.kind)
    return f"{kind}://{destination.name}"


def _destination(text: str) -> Destination:
    kind, separator, name = text.partition("://")
    if not separator:
        return Queue(text)
    if kind not in _DESTINATIONS:
        raise ValueError(
            f"reply_to is {text!r}; it must begin with {', '.join(f'{each}://' for each in _DESTINATIONS)}."
        )
    return _DESTINATIONS[kind](name)


def tagged(value: Any) -> Any:
    """A value of a body or property, as JSON has it."""
    kind = type(value)
    if value is None or kind in (str, bool) or (kind is Int):
        return int(value) if kind is Int else value
    if kind is float:
        return value if math.isfinite(value) else {"double": str(value)}
    if kind is int:
        return {"long": value}
    if kind in _INTEGERS.values():
        return {kind.__name__.lower(): int(value)}
    if kind in (bytes, JavaObject):
        return {"java" if kind is JavaObject else "bytes": base64.b64encode(value).decode()}
    if kind is Float:
        return {"float": float(value) if math.isfinite(value) else str(value)}
    if kind is Char:
        return {"char": str(value)}
    if kind is Symbol:
        return {"symbol": str(value)}
    if kind is UUID:
        return {"uuid": str(value)}
    if kind is list:
        return [tagged(item) for item in value]
    if kind is dict:
        return {"map": [[tagged(name), tagged(item)] for name, item in value.items()]}
    return {"amqp": base64.b64encode(encode_value(value)).decode()}


def untagged(value: Any) -> Any:
    """The value that `tagged` made this of.

    Raises:
        ValueError: it has none.
    """
    if value is None or isinstance(value, str | bool | float):
        return value
    if isinstance(value, int):
        return Int(value) if -_INT_MAX - 1 <= value <= _INT_MAX else value
    if isinstance(value, list):
        return [untagged(item) for item in value]
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError(f"{value!r} is no value: a type and a value are needed, such as {{'long': 5}}.")
    ((kind, content),) = value.items()
    if kind in _INTEGERS or kind == "long":
        number = _INTEGERS.get(kind, int)(content)
        if isinstance(content, bool) or not isinstance(content, int):
            raise ValueError(f"{content!r} is no {kind}.")
        encode_value(number)
        return number
    if kind not in _UNTAGGED:
        raise ValueError(f"There is no type {kind!r}; there are long, {', '.join([*_INTEGERS, *_UNTAGGED])}.")
    return _UNTAGGED[kind](content)


def _decoded(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise ValueError(f"{str(text)[:60]!r} is not base64: {error}.") from None


_UNTAGGED: dict[str, Callable[[Any], Any]] = {
    "double": float,
    "float": lambda number: Float(float(number)),
    "bytes": _decoded,
    "java": lambda text: JavaObject(_decoded(text)),
    "char": lambda text: Char(str(text)),
    "symbol": lambda text: Symbol(str(text)),
    "uuid": lambda text: UUID(str(text)),
    "map": lambda items: {untagged(name): untagged(item) for name, item in items},
    "amqp": lambda text: decode_value(_decoded(text), 0)[0],
}
