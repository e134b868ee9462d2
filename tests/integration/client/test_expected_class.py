"""`receive(TextMessage)`: what is returned is of that class, and a message of another class is not lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from legato.client import (
    AcknowledgeMode,
    BytesMessage,
    Connection,
    JMSContext,
    JMSError,
    Message,
    MessageConsumer,
    MessageFormatError,
    Session,
    TextMessage,
)
from tests.integration.client.helpers import NOTHING_COMES_S, WAIT_S

Connect = Callable[..., Connection]
AUTOMATIC = [AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK]
BY_APPLICATION = [AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL, AcknowledgeMode.SESSION_TRANSACTED]


def fill(connection: Connection, queue: str, *messages: Message) -> None:
    with connection.create_session() as session:
        producer = session.create_producer(session.create_queue(queue))
        for message in messages:
            producer.send(message)


def opened(connection: Connection, queue: str, mode: AcknowledgeMode) -> tuple[Session, MessageConsumer]:
    session = connection.create_session(mode is AcknowledgeMode.SESSION_TRANSACTED, mode)
    return session, session.create_consumer(session.create_queue(queue))


@pytest.mark.parametrize("prefetch", [None, 0])
def test_a_message_of_the_expected_class_or_of_a_class_below_it_is_returned(
    connect: Connect, queue_name: str, prefetch: int | None
) -> None:
    connection = connect()
    fill(connection, queue_name, *(TextMessage(text) for text in "12345"))
    session = connection.create_session()
    consumer = session.create_consumer(session.create_queue(queue_name), prefetch=prefetch)
    got = [
        consumer.receive(TextMessage, WAIT_S),
        consumer.receive(TextMessage, timeout_s=WAIT_S),
        consumer.receive(TextMessage),
        consumer.receive(Message, WAIT_S),
        consumer.receive_no_wait(TextMessage),
    ]
    assert [message and message.body for message in got] == ["1", "2", "3", "4", "5"]
    assert consumer.receive(TextMessage, NOTHING_COMES_S) is None
    assert consumer.receive_no_wait(TextMessage) is None
    assert consumer.receive(NOTHING_COMES_S) is None
    assert consumer.receive(0) is None


@pytest.mark.parametrize("mode", AUTOMATIC)
def test_where_receiving_acknowledges_a_message_of_another_class_stays_the_next_one(
    connect: Connect, queue_name: str, mode: AcknowledgeMode
) -> None:
    """As Jakarta Messaging 8.6 says of bodies."""
    connection = connect()
    fill(connection, queue_name, BytesMessage(b"tea"), TextMessage("coffee"))
    session, consumer = opened(connection, queue_name, mode)
    with pytest.raises(MessageFormatError, match="is a BytesMessage and not a TextMessage"):
        consumer.receive(TextMessage, WAIT_S)
    with pytest.raises(MessageFormatError):
        consumer.receive_no_wait(TextMessage)
    got = consumer.receive(BytesMessage, WAIT_S)
    assert got is not None
    assert (got.body, got.redelivered) == (b"tea", False)
    got_text = consumer.receive(TextMessage, WAIT_S)
    assert got_text is not None
    assert got_text.text == "coffee"
    session.close()
    _, after = opened(connection, queue_name, mode)
    assert after.receive(NOTHING_COMES_S) is None


@pytest.mark.parametrize("mode", AUTOMATIC)
def test_a_message_that_stays_the_next_one_is_for_others_once_its_consumer_closes(
    connect: Connect, queue_name: str, mode: AcknowledgeMode
) -> None:
    connection = connect()
    fill(connection, queue_name, BytesMessage(b"tea"))
    session, consumer = opened(connection, queue_name, mode)
    with pytest.raises(MessageFormatError):
        consumer.receive(TextMessage, WAIT_S)
    session.close()
    _, other = opened(connection, queue_name, mode)
    got = other.receive(BytesMessage, WAIT_S)
    assert got is not None
    assert got.body == b"tea"


@pytest.mark.parametrize("mode", BY_APPLICATION)
def test_where_the_application_acknowledges_a_message_of_another_class_is_received_and_comes_again(
    connect: Connect, queue_name: str, mode: AcknowledgeMode
) -> None:
    """It counts as delivered, so that a queue's bound on attempts makes a dead letter of it at last."""
    connection = connect()
    fill(connection, queue_name, BytesMessage(b"tea"), TextMessage("coffee"))
    session, consumer = opened(connection, queue_name, mode)
    with pytest.raises(MessageFormatError):
        consumer.receive(TextMessage, WAIT_S)
    got = consumer.receive(TextMessage, WAIT_S)
    assert got is not None
    assert got.text == "coffee"
    if mode is AcknowledgeMode.SESSION_TRANSACTED:
        session.rollback()
    else:
        session.recover()
    again = consumer.receive(BytesMessage, WAIT_S)
    assert again is not None
    assert (again.body, again.redelivered, again.delivery_count) == (b"tea", True, 2)


def test_the_simplified_api_expects_classes_too(context: Callable[..., JMSContext], queue_name: str) -> None:
    made = context()
    queue = made.create_queue(queue_name)
    made.create_producer().send(queue, "tea").send(queue, b"coffee")
    consumer = made.create_consumer(queue)
    got = consumer.receive(TextMessage, WAIT_S)
    assert got is not None
    assert got.text == "tea"
    with pytest.raises(MessageFormatError):
        consumer.receive_no_wait(TextMessage)
    got_bytes = consumer.receive(BytesMessage, timeout_s=WAIT_S)
    assert got_bytes is not None
    assert got_bytes.body == b"coffee"


def test_what_is_no_class_of_messages_is_refused_and_nothing_is_received(connect: Connect, queue_name: str) -> None:
    connection = connect()
    fill(connection, queue_name, TextMessage("tea"))
    _, consumer = opened(connection, queue_name, AcknowledgeMode.AUTO)
    receive: Any = consumer.receive
    with pytest.raises(JMSError, match=r"receive_body\(str\)"):
        receive(str, timeout_s=WAIT_S)
    for wrong in ("TextMessage", TextMessage("tea"), b""):
        with pytest.raises(JMSError, match="A class of messages is needed"):
            receive(wrong, timeout_s=WAIT_S)
    no_wait: Any = consumer.receive_no_wait
    with pytest.raises(JMSError, match="A class of messages is needed"):
        no_wait(5)
    with pytest.raises(JMSError, match="two times"):
        receive(5, timeout_s=5)
    got = consumer.receive(WAIT_S)
    assert got is not None
    assert got.body == "tea"
