"""The program of the README, and what the objects in it are."""

from __future__ import annotations

from typing import assert_type

from legato.client import (
    Connection,
    ConnectionFactory,
    JMSConsumer,
    JMSContext,
    JMSProducer,
    MapMessage,
    Message,
    MessageConsumer,
    MessageProducer,
    Queue,
    QueueBrowser,
    Session,
    TemporaryQueue,
    TextMessage,
)

with ConnectionFactory("amqp://localhost:5672,localhost:5673").create_connection() as connection:
    connection.start()
    with connection.create_session(transacted=True) as session:
        orders = session.create_queue("orders")
        session.create_producer(orders).send(TextMessage("one pound of tea"))
        session.commit()

        if message := session.create_consumer(orders).receive(TextMessage, timeout_s=5):
            print(message.text)
        session.commit()

assert_type(connection, Connection)
assert_type(session, Session)
assert_type(orders, Queue)


def everything(factory: ConnectionFactory, queue: Queue) -> None:
    """What each method that makes something makes."""
    session = factory.create_connection().create_session()
    assert_type(session.create_producer(queue), MessageProducer)
    assert_type(session.create_consumer(queue), MessageConsumer)
    assert_type(session.create_browser(queue), QueueBrowser)
    assert_type(session.create_temporary_queue(), TemporaryQueue)
    consumer = session.create_consumer(queue)
    assert_type(consumer.receive(), Message | None)
    assert_type(consumer.receive(5), Message | None)
    assert_type(consumer.receive(timeout_s=5), Message | None)
    assert_type(consumer.receive(TextMessage), TextMessage | None)
    assert_type(consumer.receive(MapMessage, 5), MapMessage | None)
    assert_type(consumer.receive(TextMessage, timeout_s=None), TextMessage | None)
    assert_type(consumer.receive_no_wait(), Message | None)
    assert_type(consumer.receive_no_wait(TextMessage), TextMessage | None)
    assert_type(session.commit_outcome(b""), bool | None)
    for each in session.create_consumer(queue):
        assert_type(each, Message)
    for each in session.create_browser(queue):
        assert_type(each, Message)


def simplified(factory: ConnectionFactory, queue: Queue) -> None:
    """The same of the simplified API."""
    with factory.create_context() as context:
        assert_type(context, JMSContext)
        assert_type(context.create_producer(), JMSProducer)
        assert_type(context.create_producer().send(queue, "tea"), JMSProducer)
        assert_type(context.create_consumer(queue), JMSConsumer)
        assert_type(context.create_browser(queue), QueueBrowser)
        assert_type(context.create_consumer(queue).receive(TextMessage, timeout_s=5), TextMessage | None)
        assert_type(context.create_consumer(queue).receive_body(str, timeout_s=5), str | None)
