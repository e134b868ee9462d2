"""The same program with asyncio, and what the objects in it are."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import assert_type

from legato.client import Message, Queue, TextMessage
from legato.client.aio import (
    Connection,
    ConnectionFactory,
    JMSConsumer,
    JMSContext,
    JMSProducer,
    MessageConsumer,
    MessageProducer,
    QueueBrowser,
    Session,
)


async def main() -> None:
    """The program of the README."""
    async with ConnectionFactory("amqp://localhost:5672,localhost:5673").create_connection() as connection:
        assert_type(connection, Connection)
        connection.start()
        async with connection.create_session(transacted=True) as session:
            assert_type(session, Session)
            orders = session.create_queue("orders")
            producer = await session.create_producer(orders)
            await producer.send(TextMessage("one pound of tea"))
            await session.commit()

            consumer = await session.create_consumer(orders)
            if message := await consumer.receive(TextMessage, timeout_s=5):
                print(message.text)
            await session.commit()


async def everything(factory: ConnectionFactory, queue: Queue) -> None:
    """What each method that makes something makes, awaited or entered."""
    connection = await factory.create_connection()
    session = connection.create_session()
    assert_type(await session.create_producer(queue), MessageProducer)
    assert_type(await session.create_consumer(queue), MessageConsumer)
    assert_type(session.create_browser(queue), QueueBrowser)
    assert_type(await session.commit_outcome(b""), bool | None)
    async with session.create_consumer(queue) as consumer:
        assert_type(consumer, MessageConsumer)
        assert_type(await consumer.receive(), Message | None)
        assert_type(await consumer.receive(5), Message | None)
        assert_type(await consumer.receive(TextMessage, timeout_s=5), TextMessage | None)
        assert_type(await consumer.receive_no_wait(TextMessage), TextMessage | None)
        async for each in consumer:
            assert_type(each, Message)
    async for each in session.create_browser(queue):
        assert_type(each, Message)


@dataclass
class Order:
    """What is ordered."""

    item: str


async def objects(producer: MessageProducer, consumer: MessageConsumer) -> None:
    """JSON bodies, sent as objects and received typed."""
    await producer.send(Order("tea"))
    await producer.send({"item": "tea"})
    await producer.send("tea")
    assert_type(await consumer.receive_body(Order, timeout_s=5), Order | None)
    assert_type(await consumer.receive_body_no_wait(list[Order]), list[Order] | None)
    async for each in consumer:
        assert_type(each.json(Order), Order)


async def simplified(factory: ConnectionFactory, queue: Queue) -> None:
    """The same of the simplified API."""
    async with factory.create_context() as context:
        assert_type(context, JMSContext)
        assert_type(context.create_producer(), JMSProducer)
        assert_type(await context.create_producer().send(queue, "tea"), JMSProducer)
        async with context.create_consumer(queue) as consumer:
            assert_type(consumer, JMSConsumer)
            assert_type(await consumer.receive_body(str, timeout_s=5), str | None)


asyncio.run(main())
