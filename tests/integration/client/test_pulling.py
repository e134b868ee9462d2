"""Consumers without a prefetch: each message is asked for, and what was asked for is not forgotten."""

from __future__ import annotations

import asyncio
import time

from legato.client import AcknowledgeMode, ConnectionFactory, Queue, TextMessage
from legato.client.aio import Connection, MessageConsumer
from legato.client.aio import ConnectionFactory as AsyncConnectionFactory
from tests.integration.client.helpers import WAIT_S
from tests.support.broker import BrokerPair


async def consumer_of(connection: Connection, queue: str) -> MessageConsumer:
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.INDIVIDUAL)
    return await session.create_consumer(Queue(queue), prefetch=0)


def send(url: str, queue: str, text: str) -> None:
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        session.create_producer(Queue(queue)).send(TextMessage(text))


def test_a_message_that_came_and_was_lost_with_its_connection_before_anybody_saw_it_is_asked_for_again(
    pair: BrokerPair,
) -> None:
    """It had answered the request. A service stood still for ever after a kill at that moment."""

    async def story() -> None:
        async with AsyncConnectionFactory(pair.url).create_connection() as connection:
            connection.start()
            consumer = await consumer_of(connection, "orders")
            receiving = asyncio.create_task(consumer.receive(timeout_s=WAIT_S))
            await asyncio.sleep(0)
            # From here on the loop stands still: the client's own thread has the message, the task does not.
            send(pair.url, "orders", "tea")
            until_s = time.monotonic() + WAIT_S
            while not consumer._inbox:
                assert time.monotonic() < until_s
                time.sleep(0.001)  # noqa: ASYNC251 - the loop is to stand still
            lost = connection.host
            pair.fail_over()
            while connection.host in (None, lost):
                assert time.monotonic() < until_s
                time.sleep(0.001)  # noqa: ASYNC251
            message = await receiving
            assert message is not None
            assert message.body == "tea"

    asyncio.run(story())


def test_who_asks_again_right_after_a_cancelled_receive_gets_the_next_message(
    calm_pair: BrokerPair, queue_name: str
) -> None:
    """The answer to the withdrawal of the first request came after the second, and was taken for its answer."""

    async def story() -> None:
        async with AsyncConnectionFactory(calm_pair.url).create_connection() as connection:
            connection.start()
            consumer = await consumer_of(connection, queue_name)
            for number in range(20):
                first = asyncio.create_task(consumer.receive())
                await asyncio.sleep(0.01)
                first.cancel()
                await asyncio.wait([first])
                second = asyncio.create_task(consumer.receive(timeout_s=WAIT_S))
                await asyncio.sleep(0.01)
                await asyncio.to_thread(send, calm_pair.url, queue_name, str(number))
                message = await second
                assert message is not None, number
                assert message.body == str(number)
                await message.acknowledge()

    asyncio.run(story())
