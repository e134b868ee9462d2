"""The message class that fits a body, and the body's value for that class (as in Apache Qpid JMS)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from legato.amqp.codec.header import DATA, SEQUENCE, VALUE
from legato.client.messages import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from legato.client.messages.content_types import charset_of
from legato.client.messages.java_object import CONTENT_TYPE as JAVA_OBJECT
from legato.client.messages.java_object import JavaObject

BODIES = frozenset((DATA, SEQUENCE, VALUE))
"""The sections that are bodies."""

_OCTETS = "application/octet-stream"
_TEXT_OR_NULL = (0x40, 0xA1, 0xB1)
_BINARY = (0xA0, 0xB0)


def guessed_kind(section: int, constructor: int, content_type: Callable[[], str | None]) -> type[Message]:
    """The class for a message of a client that knows nothing of Jakarta Messaging.

    Args:
        section: which the body begins with; none of `BODIES` if there is no body.
        constructor: the type of the value, if that section is one.
        content_type: asked only if it matters.
    """
    if section == VALUE:
        if constructor in _TEXT_OR_NULL:
            return TextMessage
        return BytesMessage if constructor in _BINARY else ObjectMessage
    if section == SEQUENCE:
        return ObjectMessage
    kind = content_type()
    if kind is None or kind == _OCTETS:
        return BytesMessage
    if kind == JAVA_OBJECT:
        return ObjectMessage
    if charset_of(kind) is not None:
        return TextMessage
    return BytesMessage if section == DATA else Message


def fitting(kind: type[Message], value: Any, section: int, content_type: Callable[[], str | None]) -> Any:
    """A body's value as a message of the class `kind` holds it.

    Raises:
        ValueError: such a message cannot hold it, or a text's bytes are not in its charset.
    """
    if kind is TextMessage:
        if isinstance(value, bytes):
            return value.decode(charset_of(content_type() or "text/plain") or "utf-8")
        if value is None or isinstance(value, str):
            return value
    elif kind is BytesMessage:
        if value is None or isinstance(value, bytes):
            return value or b""
    elif kind is MapMessage:
        if value is None or isinstance(value, dict):
            return {name if type(name) is str else str(name): item for name, item in (value or {}).items()}
    elif kind is StreamMessage:
        if value is None or isinstance(value, list):
            return value or []
    elif kind is ObjectMessage and section == DATA and content_type() == JAVA_OBJECT:
        found = JavaObject(value)
        return None if found.is_null else found
    else:
        return value
    raise ValueError(f"a {kind.__name__} does not hold a {type(value).__name__}")
