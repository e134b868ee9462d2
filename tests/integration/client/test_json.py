"""JSON through a broker: sent as objects, received typed, with threads, with asyncio and with FastStream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from legato.client import (
    AcknowledgeMode,
    Connection,
    JMSContext,
    JMSError,
    Message,
    MessageFormatError,
    TextMessage,
    aio,
)
from legato.faststream import LegatoBroker
from legato.testing import BrokerPair
from tests.integration.client.helpers import WAIT_S

Connect = Callable[..., Connection]


@dataclass
class Order:
    item: str
    quantity: int = 1


def test_objects_are_sent_by_a_producer_and_received_as_objects(connect: Connect, queue_name: str) -> None:
    session = connect().create_session()
    orders = session.create_queue(queue_name)
    producer, consumer = session.create_producer(orders), session.create_consumer(orders)
    producer.send(Order("tea", 2))
    producer.send({"item": "coffee"})
    producer.send([{"item": "cocoa"}])
    producer.send("plain")
    message = session.create_json_message(Order("milk"))
    message.set_property("origin", "Assam")
    producer.send(message)
    assert consumer.receive_body(Order, WAIT_S) == Order("tea", 2)
    assert consumer.receive_body(Order, timeout_s=WAIT_S) == Order("coffee")
    assert consumer.receive_body(list[Order], WAIT_S) == [Order("cocoa")]
    assert consumer.receive_body(str, WAIT_S) == "plain"
    last = consumer.receive(TextMessage, WAIT_S)
    assert last
    assert (last.json(Order), last.json(), last.get_string_property("origin")) == (
        Order("milk"),
        {"item": "milk", "quantity": 1},
        "Assam",
    )
    assert consumer.receive_body_no_wait(Order) is None


def test_a_listener_reads_json(connect: Connect, queue_name: str) -> None:
    import queue

    heard: queue.Queue[Order] = queue.Queue()
    connection = connect()
    session = connection.create_session()
    consumer = session.create_consumer(session.create_queue(queue_name))
    consumer.message_listener = lambda message: heard.put(message.json(Order))
    sender = connection.create_session()
    sender.create_producer(sender.create_queue(queue_name)).send(Order("tea"))
    assert heard.get(timeout=WAIT_S) == Order("tea")


def test_a_body_that_does_not_fit_stays_the_next_message_where_it_would_be_lost(
    connect: Connect, queue_name: str
) -> None:
    """Jakarta Messaging 8.6."""
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    consumer = session.create_consumer(queue)
    session.create_producer(queue).send({"price": 1})
    for _ in range(2):
        with pytest.raises(MessageFormatError, match="missing required field `item`"):
            consumer.receive_body(Order, WAIT_S)
    message = consumer.receive(WAIT_S)
    assert message
    assert message.json() == {"price": 1}
    assert not message.redelivered


def test_a_body_that_does_not_fit_can_be_rejected_where_the_application_acknowledges(
    connect: Connect, queue_name: str
) -> None:
    session = connect().create_session(acknowledge_mode=AcknowledgeMode.INDIVIDUAL)
    queue = session.create_queue(queue_name)
    consumer = session.create_consumer(queue)
    session.create_producer(queue).send({"price": 1})
    message = consumer.receive(WAIT_S)
    assert message
    with pytest.raises(MessageFormatError) as raised:
        message.json(Order)
    session.reject(message, str(raised.value))
    dead = session.create_consumer(session.create_queue(f"DLQ.{queue_name}")).receive(WAIT_S)
    assert dead
    assert dead.json() == {"price": 1}
    assert dead.content_type == "application/json"


def test_receive_says_which_call_returns_bodies(connect: Connect, queue_name: str) -> None:
    session = connect().create_session()
    consumer = session.create_consumer(session.create_queue(queue_name))
    with pytest.raises(JMSError, match=r"call receive_body\(Order\)"):
        consumer.receive(Order)  # type: ignore[type-var]


def test_the_simplified_api_receives_the_same_types(context: Callable[..., JMSContext], queue_name: str) -> None:
    with context() as one:
        queue = one.create_queue(queue_name)
        one.create_producer().send(queue, Order("tea")).send(queue, {"item": "milk"}).send(
            queue, one.create_json_message({"item": {"nested": 1}})
        )
        consumer = one.create_consumer(queue)
        assert consumer.receive_body(Order, WAIT_S) == Order("tea")
        assert consumer.receive_body(Order, WAIT_S) == Order("milk")
        assert consumer.receive_body(dict, WAIT_S) == {"item": {"nested": 1}}
        assert consumer.receive_body_no_wait(Order) is None


def test_objects_go_to_faststream_and_come_from_it_in_one_form(shared_pair: BrokerPair, queue_name: str) -> None:
    async def story() -> None:
        broker = LegatoBroker(shared_pair.url)
        handled: asyncio.Queue[Order] = asyncio.Queue()

        @broker.subscriber(queue_name)
        async def handle(order: Order) -> None:
            await handled.put(order)
            await broker.publish(order, f"{queue_name}.back")

        async with broker, aio.ConnectionFactory(shared_pair.url).create_connection() as connection:
            await broker.start()
            connection.start()
            session = connection.create_session()
            producer = await session.create_producer(session.create_queue(queue_name))
            await producer.send(Order("tea", 2))
            assert await asyncio.wait_for(handled.get(), WAIT_S) == Order("tea", 2)
            consumer = await session.create_consumer(session.create_queue(f"{queue_name}.back"))
            message: Message | None = await consumer.receive(WAIT_S)
            assert message is not None
            assert (type(message), message.content_type) == (TextMessage, "application/json")
            assert message.json(Order) == Order("tea", 2)
            await producer.send(Order("milk"))
            assert await consumer.receive_body(Order, WAIT_S) == Order("milk")
            assert await consumer.receive_body_no_wait(Order) is None

    asyncio.run(story())
