"""Listeners that raise what ends a thread or a task: an exit, a cancellation. All others are called all the same."""

from __future__ import annotations

import asyncio
import logging

import pytest

from legato.client import ConnectionFactory, JMSError, Message, TextMessage, aio
from tests.integration.client.calling import until
from tests.integration.client.helpers import WAIT_S, send
from tests.support.broker import BrokerPair

ENDS = [SystemExit, asyncio.CancelledError, KeyboardInterrupt]


@pytest.mark.parametrize("end", ENDS)
def test_a_completion_listener_that_ends_its_thread_is_logged(
    calm_pair: BrokerPair, queue_name: str, end: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def listener(message: Message, error: JMSError | None) -> None:
        heard.append(message.body)
        raise end

    heard: list[str] = []
    with ConnectionFactory(calm_pair.url).create_connection() as connection:
        session = connection.create_session(transacted=True)
        producer = session.create_producer(session.create_queue(queue_name))
        for text in "123":
            producer.send(TextMessage(text), completion_listener=listener)
        producer.flush(WAIT_S)
        assert heard == ["1", "2", "3"]
        producer.send(TextMessage("4"), completion_listener=listener)
        session.commit()
        assert heard == ["1", "2", "3", "4"]
    assert caplog.messages.count("a completion listener raised") == len(heard)


@pytest.mark.parametrize("end", ENDS)
def test_an_exception_listener_that_ends_its_thread_hears_of_the_next_error(
    calm_pair: BrokerPair, end: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def listener(error: JMSError) -> None:
        heard.append(str(error))
        raise end

    heard: list[str] = []
    with ConnectionFactory(calm_pair.url).create_connection() as connection:
        connection.exception_listener = listener
        for text in "12":
            connection._transport.report(JMSError(text))
        until(lambda: heard == ["1", "2"])
    assert caplog.messages.count("a listener of the application raised") == len(heard)


@pytest.mark.parametrize("end", ENDS)
def test_a_message_listener_that_ends_its_thread_gets_the_message_again(
    calm_pair: BrokerPair, queue_name: str, end: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def listener(message: Message) -> None:
        heard.append((message.body, message.redelivered))
        if not message.redelivered and message.body == "1":
            raise end

    heard: list[tuple[str, bool]] = []
    told: list[JMSError] = []
    with ConnectionFactory(calm_pair.url).create_connection() as connection:
        connection.exception_listener = told.append
        connection.start()
        session = connection.create_session()
        session.create_consumer(session.create_queue(queue_name)).message_listener = listener
        send(connection, queue_name, "1", "2")
        until(lambda: sorted(heard) == [("1", False), ("1", True), ("2", False)])
        until(lambda: told)
    assert (told[0].code, type(told[0].linked)) == ("LISTENER", end)
    assert "raised" in caplog.text


def test_listeners_of_asyncio_may_be_cancelled_in_what_they_await(
    calm_pair: BrokerPair, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []

    async def cancelled() -> None:
        awaited = asyncio.get_running_loop().create_future()
        awaited.cancel()
        await awaited

    async def completed(message: Message, error: JMSError | None) -> None:
        heard.append(f"sent {message.body}")
        await cancelled()

    async def received(message: Message) -> None:
        heard.append(f"got {message.body}")
        if not message.redelivered:
            await cancelled()

    async def failed(error: JMSError) -> None:
        heard.append("error")
        await cancelled()

    async def story() -> None:
        async with aio.ConnectionFactory(calm_pair.url).create_connection() as connection:
            connection.exception_listener = failed
            connection.start()
            session = connection.create_session()
            producer = await session.create_producer(session.create_queue(queue_name))
            await producer.send(TextMessage("1"), completion_listener=completed)
            await producer.send(TextMessage("2"), completion_listener=completed)
            await producer.flush(WAIT_S)
            receiving = connection.create_session()
            consumer = await receiving.create_consumer(receiving.create_queue(queue_name))
            consumer.message_listener = received
            await asyncio.to_thread(until, lambda: heard.count("error") == 2 and len(heard) == 8)

    with caplog.at_level(logging.CRITICAL):
        asyncio.run(asyncio.wait_for(story(), WAIT_S))
    assert sorted(heard) == ["error"] * 2 + ["got 1"] * 2 + ["got 2"] * 2 + ["sent 1", "sent 2"]


@pytest.mark.parametrize("ends_by", ["exit", "cancellation"])
def test_what_ends_the_program_of_asyncio_in_a_listener_leaves_nobody_waiting(
    calm_pair: BrokerPair, queue_name: str, ends_by: str
) -> None:
    """The listener of the first send ends the program, whose close waits for the others."""
    heard: list[str] = []
    sessions: list[aio.Session] = []
    waits_for_ever: list[asyncio.Future[None]] = []

    async def completed(message: Message, error: JMSError | None) -> None:
        heard.append(message.body)
        await asyncio.to_thread(until, lambda: sessions[0]._guard.completions.taken == 3)
        if len(heard) == 1 and ends_by == "exit":
            raise SystemExit(3)
        if len(heard) == 1:
            for task in asyncio.all_tasks():
                task.cancel()
            waits_for_ever.append(asyncio.get_running_loop().create_future())
            await waits_for_ever[0]

    async def story() -> None:
        async with aio.ConnectionFactory(calm_pair.url).create_connection() as connection:
            session = connection.create_session()
            sessions.append(session)
            producer = await session.create_producer(session.create_queue(queue_name))
            for text in "123":
                await producer.send(TextMessage(text), completion_listener=completed)
            await producer.flush()

    with pytest.raises((SystemExit, asyncio.CancelledError)):
        asyncio.run(story())
    assert heard == ["1", "2", "3"]
