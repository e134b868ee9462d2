"""Messages made of bodies. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from legato.client.messages.bytes_message import BytesMessage
from legato.client.messages.destinations import Destination
from legato.client.messages.json_text import JSON_TYPE, JsonBody, is_model, is_text, json_text
from legato.client.messages.map_message import MapMessage
from legato.client.messages.message import Message
from legato.client.messages.object_message import ObjectMessage
from legato.client.messages.text_message import TextMessage
from legato.errors import MessageFormatError

Sendable: TypeAlias = Message | str | bytes | JsonBody
"""What a producer sends: a message, or the body of one."""


def json_message(value: Any) -> TextMessage:
    """A text message whose body is an object as JSON, with the content type that says so.

    Raises:
        MessageFormatError: the object cannot be said in JSON.
    """
    message = TextMessage(json_text(value))
    message.content_type = JSON_TYPE
    return message


def encoded_message(body: bytes, content_type: str | None) -> Message:
    """A message with a body that is encoded already; JSON and text are text on the wire, so that tools show them."""
    message: Message = TextMessage(body.decode()) if is_text(content_type) else BytesMessage(body)
    message.content_type = content_type
    return message


def message_of(body: object) -> Message:
    """The message that `MessageProducer.send()` sends.

    Raises:
        MessageFormatError: it is not a message, and no body of one.
    """
    if isinstance(body, Message):
        return body
    if isinstance(body, str):
        return TextMessage(body)
    if isinstance(body, bytes | bytearray | memoryview):
        return BytesMessage(bytes(body))
    if isinstance(body, Mapping | list | tuple) or is_model(type(body)):
        return json_message(body)
    hint = ""
    if isinstance(body, Destination):
        hint = " A session's producer has its destination from create_producer(queue): send(message)."
    elif isinstance(body, bool | int | float):
        hint = f" As JSON it is session.create_json_message({body!r}), as text str({body!r})."
    raise MessageFormatError(
        "A message is needed, such as TextMessage('tea'), or a body: text, bytes, or a dict, list, dataclass, Struct "
        f"or pydantic model, which goes as JSON; this is {body!r}.{hint}"
    )


def jakarta_message_of(body: Any) -> Message:
    """The message that `JMSProducer.send()` sends: a dict is a map message (Jakarta Messaging 7.10).

    Raises:
        MessageFormatError: no message can have that body.
    """
    if body is None:
        return Message()
    if isinstance(body, Message | str | bytes | bytearray | memoryview) or is_model(type(body)):
        return message_of(body)
    if isinstance(body, dict):
        return MapMessage(body)
    return ObjectMessage(body)
