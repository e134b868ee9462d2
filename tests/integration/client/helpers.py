"""Small words that the client's stories are told with."""

from __future__ import annotations

from collections.abc import Iterable

from legato.client import Connection, Message, MessageConsumer, TextMessage

WAIT_S = 60.0
"""Longer than anything takes; a test that waits so long fails."""
NOTHING_COMES_S = 0.3


def send(connection: Connection, queue: str, *texts: str) -> None:
    """Send messages and wait until they are stored."""
    with connection.create_session() as session, session.create_producer(session.create_queue(queue)) as producer:
        for text in texts:
            producer.send(TextMessage(text))


def receive(consumer: MessageConsumer, count: int) -> list[Message]:
    """So many messages, or fail."""
    messages: list[Message] = []
    for _ in range(count):
        message = consumer.receive(WAIT_S)
        assert message is not None, f"only {len(messages)} of {count} messages came"
        messages.append(message)
    return messages


def texts(messages: Iterable[Message]) -> list[str]:
    """Their bodies."""
    return [message.body for message in messages]


def drain(connection: Connection, queue: str) -> list[str]:
    """All that waits in a queue, consumed."""
    with connection.create_session() as session, session.create_consumer(session.create_queue(queue)) as consumer:
        return texts(iter(consumer.receive_no_wait, None))
