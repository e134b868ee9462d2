"""Factory of destinations and messages in a session; it needs no broker."""

from __future__ import annotations

from typing import Any, BinaryIO

from legato.client.calls.session_guard import SessionGuard
from legato.client.messages import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from legato.client.messages.destinations import Queue, Topic, checked_queue, checked_topic
from legato.client.messages.sendable import json_message


class SessionMessages:
    """Destinations and messages, of a session that is open."""

    __slots__ = ("_guard",)

    def __init__(self, guard: SessionGuard) -> None:
        self._guard = guard

    def create_queue(self, name: str) -> Queue:
        """The queue of that name; the broker creates it when it is first used."""
        self._guard.check_open()
        return checked_queue(Queue(name))

    def create_topic(self, name: str) -> Topic:
        """The topic of that name; the broker creates it when it is first used."""
        self._guard.check_open()
        return checked_topic(Topic(name))

    def create_message(self) -> Message:
        """A message without a body."""
        self._guard.check_open()
        return Message()

    def create_text_message(self, text: str | None = None) -> TextMessage:
        """A message whose body is `text`."""
        self._guard.check_open()
        return TextMessage(text)

    def create_json_message(self, body: Any) -> TextMessage:
        """A text message whose body is an object as JSON; its content type is `application/json`.

        Args:
            body: a dict, a list, a dataclass, a Struct of msgspec or a model of pydantic; dates, UUIDs, decimals,
                enumerations and bytes in it go as text. Not-a-number and infinities go as `null`.

        Raises:
            MessageFormatError: it cannot be said in JSON.
        """
        self._guard.check_open()
        return json_message(body)

    def create_bytes_message(self, body: bytes = b"", *, stream: BinaryIO | None = None) -> BytesMessage:
        """A message whose body is `body`, or what is in the binary file `stream`, sent without being held in memory."""
        self._guard.check_open()
        return BytesMessage(body, stream=stream)

    def create_map_message(self) -> MapMessage:
        """A message whose body has names with values."""
        self._guard.check_open()
        return MapMessage()

    def create_stream_message(self) -> StreamMessage:
        """A message whose body is a stream of values."""
        self._guard.check_open()
        return StreamMessage()

    def create_object_message(self, body: Any = None) -> ObjectMessage:
        """A message whose body is an object that AMQP can carry."""
        self._guard.check_open()
        return ObjectMessage(body)
