"""The program of the README, and what the objects in it are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

import msgspec

from legato.client import (
    Connection,
    ConnectionFactory,
    ConnectionOptions,
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

OPTIONS: ConnectionOptions = {"prefetch": 10, "close_timeout_s": 5}
assert_type(ConnectionFactory("amqp://localhost:5672", **OPTIONS), ConnectionFactory)
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


@dataclass
class Order:
    """What is ordered."""

    item: str


class Price(msgspec.Struct):
    """What it costs."""

    amount: float


def objects(producer: MessageProducer, consumer: MessageConsumer, message: Message) -> None:
    """JSON bodies, sent as objects and received typed."""
    for body in ("tea", b"tea"):
        producer.send(body)
    producer.send(Order("tea"))
    producer.send(Price(1.5))
    producer.send({"item": "tea", "prices": [1, 2]})
    producer.send([Order("tea")])
    assert_type(message.json(), Any)
    assert_type(message.json(Order), Order)
    assert_type(message.json(list[Order]), list[Order])
    assert_type(message.json(dict[str, Price]), dict[str, Price])
    assert_type(message.get_body(Order), Order | None)
    assert_type(consumer.receive_body(Order), Order | None)
    assert_type(consumer.receive_body(Price, 5), Price | None)
    assert_type(consumer.receive_body(list[Order], timeout_s=5), list[Order] | None)
    assert_type(consumer.receive_body_no_wait(str), str | None)


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
        assert_type(context.create_consumer(queue).receive_body(Order, timeout_s=5), Order | None)
        assert_type(context.create_json_message(Order("tea")), TextMessage)
