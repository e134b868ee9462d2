"""Small words that the chapters' stories are told with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from legato.client import Connection, Destination, JMSContext, Message, TextMessage
from tests.integration.client.helpers import NOTHING_COMES_S, WAIT_S, receive, texts

Connect = Callable[..., Connection]
MakeContext = Callable[..., JMSContext]

__all__ = [
    "NOTHING_COMES_S",
    "WAIT_S",
    "Connect",
    "MakeContext",
    "body_of",
    "nothing_comes",
    "receive",
    "send",
    "texts",
]


def send(connection: Connection, destination: Destination, *bodies: str, **properties: Any) -> list[Message]:
    """Send texts to a queue or topic, with properties, and wait until they are stored."""
    sent: list[Message] = []
    with connection.create_session() as session, session.create_producer(destination) as producer:
        for body in bodies:
            message = TextMessage(body)
            for name, value in properties.items():
                message.set_property(name, value)
            producer.send(message)
            sent.append(message)
    return sent


def body_of(message: Message | None) -> Any:
    """A message's body; fails if there is no message."""
    assert message is not None, "no message came"
    return message.body


def nothing_comes(consumer: Any) -> bool:
    """Whether the broker has nothing for a consumer."""
    return consumer.receive_no_wait() is None
