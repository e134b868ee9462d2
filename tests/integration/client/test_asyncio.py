"""What only the asyncio twin has: cancellation, coroutine listeners, the loop's other tasks."""

from __future__ import annotations

import asyncio
import textwrap
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import legato.client.aio
from legato.client import AcknowledgeMode, IllegalStateError, JMSError, Message, TextMessage
from legato.client.aio import Connection, ConnectionFactory, MessageConsumer
from tests.integration.client.helpers import NOTHING_COMES_S, WAIT_S
from tests.support.broker import BrokerPair

Story = Callable[[Connection], Coroutine[Any, Any, None]]


@pytest.fixture
def tell(calm_pair: BrokerPair) -> Callable[..., None]:
    """Runs a story with a started connection."""

    def run(story: Story, **options: Any) -> None:
        async def main() -> None:
            async with ConnectionFactory(calm_pair.url, **options).create_connection() as connection:
                connection.start()
                await asyncio.wait_for(story(connection), 4 * WAIT_S)

        asyncio.run(main())

    return run


async def send(connection: Connection, queue: str, *texts: str) -> None:
    session = connection.create_session()
    async with session, session.create_producer(session.create_queue(queue)) as producer:
        for text in texts:
            await producer.send(TextMessage(text))


async def text_of(consumer: MessageConsumer, timeout_s: float = WAIT_S) -> Any:
    message = await consumer.receive(timeout_s)
    return None if message is None else message.body


def test_the_example_of_the_package_works(calm_pair: BrokerPair, capsys: pytest.CaptureFixture[str]) -> None:
    example = (
        (legato.client.aio.__doc__ or "")
        .partition("```python\n")[2]
        .partition("```")[0]
        .replace("amqp://one:5672,two:5672", calm_pair.url)
    )
    exec(textwrap.dedent(example), {"__name__": "__main__"})
    assert capsys.readouterr().out == "one pound of tea\n"


def test_a_cancelled_receive_loses_no_message(tell: Callable[..., None], queue_name: str) -> None:
    async def story(connection: Connection) -> None:
        session = connection.create_session()
        consumer = await session.create_consumer(session.create_queue(queue_name))
        other = asyncio.create_task(send(connection, queue_name, *map(str, range(100))))
        got: list[str] = []
        while len(got) < 100:
            receiving = asyncio.create_task(text_of(consumer))
            await asyncio.sleep(0)
            receiving.cancel()
            try:
                got.append(await receiving)
            except asyncio.CancelledError:
                await asyncio.sleep(0.001)
        await other
        assert got == list(map(str, range(100)))

    tell(story)


def test_a_receive_in_a_time_out_loses_no_message(tell: Callable[..., None], queue_name: str) -> None:
    async def story(connection: Connection) -> None:
        session = connection.create_session()
        consumer = await session.create_consumer(session.create_queue(queue_name))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.receive(), 0.01)
        await send(connection, queue_name, "tea")
        assert await text_of(consumer) == "tea"

    tell(story)


def test_a_cancelled_commit_goes_on_and_the_next_call_knows_its_outcome(
    tell: Callable[..., None], queue_name: str
) -> None:
    async def story(connection: Connection) -> None:
        session = connection.create_session(transacted=True)
        producer = await session.create_producer(session.create_queue(queue_name))
        cancelled = 0
        for number in range(20):
            await producer.send(TextMessage(str(number)))
            committing = asyncio.create_task(session.commit())
            await asyncio.sleep(0)
            # On a busy machine one may be over by now.
            if committing.cancel():
                cancelled += 1
                with pytest.raises(asyncio.CancelledError):
                    await committing
            await producer.send(TextMessage(f"{number} and a half"))
            await session.rollback()
        assert cancelled
        reader = connection.create_session()
        consumer = await reader.create_consumer(reader.create_queue(queue_name))
        assert [await text_of(consumer) for _ in range(20)] == list(map(str, range(20)))

    tell(story)


def test_a_cancelled_send_is_stored_all_the_same(tell: Callable[..., None], queue_name: str) -> None:
    async def story(connection: Connection) -> None:
        session = connection.create_session()
        producer = await session.create_producer(session.create_queue(queue_name))
        sending = asyncio.create_task(producer.send(TextMessage("tea")))
        await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        consumer = await session.create_consumer(session.create_queue(queue_name))
        assert await text_of(consumer) == "tea"

    tell(story)


def test_a_cancelled_acknowledge_goes_on(tell: Callable[..., None], queue_name: str) -> None:
    async def story(connection: Connection) -> None:
        await send(connection, queue_name, "tea")
        async with connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT) as session:
            consumer = await session.create_consumer(session.create_queue(queue_name))
            message = await consumer.receive(WAIT_S)
            assert message is not None
            acknowledging = asyncio.ensure_future(message.acknowledge())
            await asyncio.sleep(0)
            acknowledging.cancel()
            with pytest.raises(asyncio.CancelledError):
                await acknowledging
        session = connection.create_session()
        consumer = await session.create_consumer(session.create_queue(queue_name))
        assert await consumer.receive_no_wait() is None

    tell(story)


def test_a_listener_may_be_a_coroutine_and_use_its_session(tell: Callable[..., None], queue_name: str) -> None:
    async def story(connection: Connection) -> None:
        session = connection.create_session()
        replies = await session.create_producer()
        answered = asyncio.Event()
        running: list[str] = []

        async def answer(message: Message) -> None:
            running.append("begin")
            await asyncio.sleep(0)
            await replies.send(TextMessage(f"re: {message.body}"), destination=session.create_queue(f"{queue_name}.re"))
            running.append("end")
            if len(running) == 6:
                answered.set()

        for name in ("a", "b", "c"):
            consumer = await session.create_consumer(session.create_queue(f"{queue_name}.{name}"))
            consumer.message_listener = answer
        for name in ("a", "b", "c"):
            await send(connection, f"{queue_name}.{name}", name)
        await answered.wait()
        assert running == ["begin", "end"] * 3
        reader = connection.create_session()
        consumer = await reader.create_consumer(reader.create_queue(f"{queue_name}.re"))
        assert sorted([await text_of(consumer) for _ in range(3)]) == ["re: a", "re: b", "re: c"]

    tell(story)


def test_completion_listeners_may_be_coroutines_and_are_awaited_in_order(
    tell: Callable[..., None], queue_name: str
) -> None:
    async def story(connection: Connection) -> None:
        heard: list[str] = []

        async def listener(message: Message, error: JMSError | None) -> None:
            assert error is None
            await asyncio.sleep(0)
            heard.append(message.body)

        session = connection.create_session()
        producer = await session.create_producer(session.create_queue(queue_name))
        for number in range(200):
            await producer.send(TextMessage(str(number)), completion_listener=listener)
        await producer.flush(WAIT_S)
        assert heard == list(map(str, range(200)))

    tell(story)


def test_two_tasks_in_a_session_at_once_are_told(tell: Callable[..., None], queue_name: str) -> None:
    """Jakarta Messaging 6.2."""

    async def story(connection: Connection) -> None:
        session = connection.create_session()
        consumer = await session.create_consumer(session.create_queue(queue_name))
        receiving = asyncio.create_task(consumer.receive())
        await asyncio.sleep(0)
        with pytest.raises(IllegalStateError, match="one thread or task"):
            await session.create_producer()
        await consumer.close()
        assert await receiving is None

    tell(story)


def test_a_busy_consumer_lets_other_tasks_run(tell: Callable[..., None], queue_name: str) -> None:
    async def story(connection: Connection) -> None:
        count = 500
        await send(connection, queue_name, *map(str, range(count)))
        session = connection.create_session()
        consumer = await session.create_consumer(session.create_queue(queue_name))
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        for _ in range(count):
            await consumer.receive(WAIT_S)
        task.cancel()
        assert turns > 3

    tell(story)


def test_a_timed_receive_waits_no_longer_than_asked(tell: Callable[..., None], queue_name: str) -> None:
    async def story(connection: Connection) -> None:
        session = connection.create_session()
        consumer = await session.create_consumer(session.create_queue(queue_name))
        assert await consumer.receive(NOTHING_COMES_S) is None

    tell(story)


def test_a_cancelled_connecting_leaves_no_thread_behind() -> None:
    async def connect() -> Connection:
        return await ConnectionFactory("amqp://127.0.0.1:1", connect_attempts=-1).create_connection()

    async def main() -> None:
        connecting = asyncio.create_task(connect())
        await asyncio.sleep(0.01)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting

    before = set(threading.enumerate())
    asyncio.run(main())
    for thread in set(threading.enumerate()) - before:
        thread.join(WAIT_S)
        assert not thread.is_alive()


def test_a_cancelled_close_ends_the_connection_all_the_same(calm_pair: BrokerPair, queue_name: str) -> None:
    async def main() -> None:
        connection = await ConnectionFactory(calm_pair.url).create_connection()
        session = connection.create_session()
        await session.create_consumer(session.create_queue(queue_name))
        closing = asyncio.create_task(connection.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing

    before = set(threading.enumerate())
    asyncio.run(main())
    for thread in set(threading.enumerate()) - before:
        thread.join(WAIT_S)
        assert not thread.is_alive()


def test_what_is_not_awaited_yet_says_so(tell: Callable[..., None], queue_name: str) -> None:
    """The first slip of who comes from the blocking client: `'Opening' object has no attribute 'send'`."""

    async def story(connection: Connection) -> None:
        session: Any = connection.create_session()
        with pytest.raises(AttributeError, match="write `await` in front of the call"):
            session.create_producer(session.create_queue(queue_name)).send(TextMessage("tea"))

    tell(story)
