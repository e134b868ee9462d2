"""A consumer that is closed while its listener runs: the close waits for it, and its message does not come again."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from legato.client import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    IllegalStateError,
    Message,
    MessageConsumer,
    Session,
    aio,
)
from legato.client.links.deliveries import Delivery
from legato.client.steps import Steps
from tests.integration.client.calling import Calling, until
from tests.integration.client.helpers import WAIT_S, drain, receive, send
from tests.support.broker import BrokerPair

Connect = Callable[..., Connection]


class Listener:
    """A listener that is about to return, until it may."""

    def __init__(self, ends: Callable[[Message], Any] = lambda message: None) -> None:
        self._ends = ends
        self.is_called = threading.Event()
        self.goes_on = threading.Event()
        self.heard: list[str] = []

    def __call__(self, message: Message) -> None:
        self.is_called.set()
        assert self.goes_on.wait(WAIT_S)
        self.heard.append(message.body)
        self._ends(message)


def listening(session: Session, queue: str, listener: Listener) -> MessageConsumer:
    """A consumer whose listener has a message."""
    consumer = session.create_consumer(session.create_queue(queue))
    consumer.message_listener = listener
    assert listener.is_called.wait(WAIT_S)
    return consumer


def closing(what: Any, session: Session) -> Calling:
    """Close it in a thread of its own; returns once that waits, or did not."""
    call = Calling(what.close)
    until(lambda: session._channel.gate.is_awaited or not call.is_alive())
    return call


MODES = {
    "AUTO": (False, AcknowledgeMode.AUTO),
    "DUPS_OK": (False, AcknowledgeMode.DUPS_OK),
    "CLIENT": (False, AcknowledgeMode.CLIENT),
    "INDIVIDUAL": (False, AcknowledgeMode.INDIVIDUAL),
    "transacted": (True, AcknowledgeMode.AUTO),
}


def test_a_session_is_free_before_its_listener_counts_as_done_with(
    connect: Connect, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who had closed the consumer was told a moment before, so that the next call was one of two at a time."""
    connection = connect()
    session = connection.create_session()
    send(connection, queue_name, "1")
    listener = Listener()
    consumer = listening(session, queue_name, listener)
    dispatcher, turn = session._listeners.dispatcher, session._guard.turn
    assert dispatcher is not None
    served: list[object] = []
    release = turn.release

    def released() -> None:
        if dispatcher.is_current:
            served.append(dispatcher.serving)
        release()

    monkeypatch.setattr(turn, "release", released)
    listener.goes_on.set()
    consumer.close()
    connection.close()  # waits for the thread of listeners
    assert served
    assert None not in served


@pytest.mark.parametrize("mode", MODES)
def test_close_waits_for_the_listener_and_its_message_is_done_with(
    connect: Connect, queue_name: str, mode: str
) -> None:
    connection = connect()
    transacted, acknowledge_mode = MODES[mode]
    session = connection.create_session(transacted, acknowledge_mode)
    send(connection, queue_name, "1", "2")

    def end(message: Message) -> None:
        if transacted:
            session.commit()
        else:
            message.acknowledge()

    listener = Listener(end)
    consumer = listening(session, queue_name, listener)
    call = closing(consumer, session)
    listener.goes_on.set()
    call.outcome()
    assert listener.heard == ["1"]
    # The session can be used as ever, and what the listener did not get comes to the next consumer.
    again = receive(session.create_consumer(session.create_queue(queue_name)), 1)
    assert [(message.body, message.redelivered) for message in again] == [("2", False)]
    end(again[0])
    session.close()
    assert drain(connection, queue_name) == []


def test_what_a_listener_raises_while_its_consumer_is_closed_has_the_message_come_again(
    connect: Connect, queue_name: str
) -> None:
    connection = connect()
    session = connection.create_session()
    send(connection, queue_name, "1", "2")

    def fail(message: Message) -> None:
        raise ValueError("broken")

    listener = Listener(fail)
    consumer = listening(session, queue_name, listener)
    call = closing(consumer, session)
    listener.goes_on.set()
    call.outcome()
    again = receive(session.create_consumer(session.create_queue(queue_name)), 2)
    assert [(message.body, message.delivery_count) for message in again] == [("1", 2), ("2", 1)]


@pytest.mark.parametrize("what", ["session", "connection"])
def test_a_session_or_connection_that_closes_at_the_same_time_waits_too(
    connect: Connect, queue_name: str, what: str
) -> None:
    connection = connect()
    session = connection.create_session()
    send(connection, queue_name, "1")
    listener = Listener()
    consumer = listening(session, queue_name, listener)
    calls = [closing(consumer, session), closing(consumer, session), closing(locals()[what], session)]
    listener.goes_on.set()
    for call in calls:
        call.outcome()
    assert listener.heard == ["1"]
    assert drain(connect(), queue_name) == []


def test_a_listener_may_close_its_own_consumer_while_another_thread_does(connect: Connect, queue_name: str) -> None:
    connection = connect()
    session = connection.create_session()
    send(connection, queue_name, "1")
    consumers: list[MessageConsumer] = []
    listener = Listener(lambda message: consumers[0].close())
    consumers.append(listening(session, queue_name, listener))
    call = closing(consumers[0], session)
    listener.goes_on.set()
    call.outcome()
    session.close()
    assert drain(connection, queue_name) == []


def test_a_listener_may_close_another_consumer_of_its_session(connect: Connect, queue_name: str) -> None:
    connection = connect()
    session = connection.create_session()
    others = [f"{queue_name}.other", f"{queue_name}.mine"]
    other = session.create_consumer(session.create_queue(others[0]))
    heard: list[str] = []
    other.message_listener = lambda message: heard.append(message.body)
    listener = Listener(lambda message: other.close())
    send(connection, others[1], "1")
    mine = listening(session, others[1], listener)
    send(connection, others[0], "2")
    until(lambda: other._inbox)
    call = closing(mine, session)
    listener.goes_on.set()
    call.outcome()
    assert heard == []
    assert [drain(connection, name) for name in others] == [["2"], []]


def test_a_broker_that_dies_meanwhile_keeps_no_close_waiting(
    pair: BrokerPair, connect: Connect, queue_name: str
) -> None:
    connection = connect()
    session = connection.create_session()
    send(connection, queue_name, "1", "2")
    listener = Listener()
    consumer = listening(session, queue_name, listener)
    call = closing(consumer, session)
    pair.kill_primary()
    until(lambda: connection._transport.outages.is_open or connection.failovers)
    listener.goes_on.set()
    call.outcome()
    pair.swap()
    session.close()
    assert listener.heard == ["1"]
    assert drain(connection, queue_name) == ["2"]


def test_a_close_that_was_interrupted_is_done_when_the_listener_has_returned(
    calm_pair: BrokerPair, queue_name: str
) -> None:
    with ConnectionFactory(calm_pair.url).create_connection() as connection:
        connection.start()
        session = connection.create_session()
        send(connection, queue_name, "1", "2")
        listener = Listener()
        consumer = listening(session, queue_name, listener)
        interrupted(consumer._close())
        session._interrupted(KeyboardInterrupt())
        assert not consumer._end.closing
        listener.goes_on.set()
        until(lambda: consumer._end.closed)
        consumer.close()
        assert session._members.consumers == []
        assert drain(connection, queue_name) == ["2"]


def interrupted(steps: Steps[None]) -> None:
    """Interrupt a close, or such, where it first waits."""
    next(steps)
    with pytest.raises(KeyboardInterrupt):
        steps.throw(KeyboardInterrupt())


def test_a_subscription_whose_close_was_interrupted_is_free_when_the_listener_has_returned(
    calm_pair: BrokerPair, queue_name: str
) -> None:
    with ConnectionFactory(calm_pair.url, client_id=queue_name).create_connection() as connection:
        connection.start()
        session = connection.create_session()
        topic = session.create_topic(queue_name)
        listener = Listener()
        consumer = session.create_durable_consumer(topic, queue_name)
        consumer.message_listener = listener
        with connection.create_session() as sending:
            sending.create_producer(topic).send(sending.create_text_message("1"))
        assert listener.is_called.wait(WAIT_S)
        interrupted(consumer._close())
        session._interrupted(KeyboardInterrupt())
        listener.goes_on.set()
        until(lambda: consumer._end.closed and session._channel.gate.is_awaited)
        session.create_durable_consumer(topic, queue_name).close()
        session.unsubscribe(queue_name)
        assert not session._channel.listening


@pytest.mark.parametrize("transacted", [False, True])
def test_a_session_whose_close_was_interrupted_ends_when_the_listener_has_returned(
    calm_pair: BrokerPair, queue_name: str, transacted: bool
) -> None:
    """What it had ready is another one's, and so is its subscription."""
    with ConnectionFactory(calm_pair.url, client_id=queue_name).create_connection() as connection:
        connection.start()
        session = connection.create_session(transacted)
        topic = session.create_topic(queue_name)
        listener = Listener()
        consumer = session.create_durable_consumer(topic, queue_name)
        consumer.message_listener = listener
        with connection.create_session() as sending:
            producer = sending.create_producer(topic)
            for body in ("1", "2"):
                producer.send(sending.create_text_message(body))
        assert listener.is_called.wait(WAIT_S)
        interrupted(session._close())
        session._interrupted(KeyboardInterrupt())
        assert not session._channel.closing
        listener.goes_on.set()
        until(lambda: session._channel.closed)
        again = connection.create_session().create_durable_consumer(topic, queue_name)
        assert [message.body for message in receive(again, 1)] == ["1" if transacted else "2"]
        assert listener.heard == ["1"]
        session.close()
        assert session not in connection._sessions


def test_a_close_before_the_listener_is_called_loses_no_message(calm_pair: BrokerPair, queue_name: str) -> None:
    """Its message was on its way, and could be acknowledged without a listener that heard it."""
    with ConnectionFactory(calm_pair.url).create_connection() as connection:
        connection.start()
        session = connection.create_session()
        listener = Listener()
        listener.goes_on.set()
        consumer = session.create_consumer(session.create_queue(queue_name))
        take = consumer._take_for_listener
        calls: list[Calling] = []

        def take_and_close() -> Any:
            taken = take()
            if taken is not None:
                calls.append(closing(consumer, session))
            return taken

        consumer._take_for_listener = take_and_close  # type: ignore[method-assign]
        consumer.message_listener = listener
        send(connection, queue_name, "1")
        until(lambda: calls)
        calls[0].outcome()
        session.close()
        assert listener.heard == ["1"]
        assert drain(connection, queue_name) == []


# -- asyncio ---------------------------------------------------------------------------------------------


class Task:
    """A coroutine listener that is about to return, until it may."""

    def __init__(self) -> None:
        self.is_called = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.heard: list[str] = []

    async def __call__(self, message: Message) -> None:
        self.is_called.set()
        await self.goes_on.wait()
        self.heard.append(message.body)


async def cancelled(call: Coroutine[Any, Any, None]) -> None:
    """Cancel a close where it first waits."""
    task = asyncio.create_task(call)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def tell(url: str, story: Callable[[aio.Connection], Any], client_id: str | None = None) -> None:
    """Tell a story with a started connection."""

    async def main() -> None:
        async with aio.ConnectionFactory(url, client_id=client_id).create_connection() as connection:
            connection.start()
            await asyncio.wait_for(story(connection), WAIT_S)

    asyncio.run(main())


def left(url: str, queue: str, *sent: str) -> list[str]:
    """Send messages, or with none see what is in the queue."""
    with ConnectionFactory(url).create_connection() as connection:
        connection.start()
        send(connection, queue, *sent)
        return [] if sent else drain(connection, queue)


def test_who_leaves_the_block_of_a_consumer_waits_for_its_listener(calm_pair: BrokerPair, queue_name: str) -> None:
    left(calm_pair.url, queue_name, "1", "2")

    async def story(connection: aio.Connection) -> None:
        listener = Task()
        session = connection.create_session()
        async with session.create_consumer(session.create_queue(queue_name)) as consumer:
            consumer.message_listener = listener
            await listener.is_called.wait()
            asyncio.get_running_loop().call_soon(listener.goes_on.set)
        assert listener.heard == ["1"]

    tell(calm_pair.url, story)
    assert left(calm_pair.url, queue_name) == ["2"]


def test_a_cancelled_close_is_done_when_the_listener_has_returned(calm_pair: BrokerPair, queue_name: str) -> None:
    left(calm_pair.url, queue_name, "1", "2")

    async def story(connection: aio.Connection) -> None:
        listener = Task()
        session = connection.create_session()
        consumer = await session.create_consumer(session.create_queue(queue_name))
        consumer.message_listener = listener
        await listener.is_called.wait()
        await cancelled(consumer.close())
        listener.goes_on.set()
        await asyncio.to_thread(until, lambda: consumer._end.closed)
        await consumer.close()
        assert session._members.consumers == []
        assert listener.heard == ["1"]

    tell(calm_pair.url, story)
    assert left(calm_pair.url, queue_name) == ["2"]


def test_a_subscription_whose_close_was_cancelled_is_free_when_the_listener_has_returned(
    calm_pair: BrokerPair, queue_name: str
) -> None:
    async def story(connection: aio.Connection) -> None:
        listener = Task()
        session = connection.create_session()
        topic = session.create_topic(queue_name)
        consumer = await session.create_durable_consumer(topic, queue_name)
        consumer.message_listener = listener
        async with connection.create_session() as sending:
            await (await sending.create_producer(topic)).send(sending.create_text_message("1"))
        await listener.is_called.wait()
        await cancelled(consumer.close())
        listener.goes_on.set()
        await asyncio.to_thread(until, lambda: consumer._end.closed)
        await (await session.create_durable_consumer(topic, queue_name)).close()
        await session.unsubscribe(queue_name)
        assert not session._channel.listening

    tell(calm_pair.url, story, client_id=queue_name)


@pytest.mark.parametrize("transacted", [False, True])
def test_a_session_whose_close_was_cancelled_ends_when_the_listener_has_returned(
    calm_pair: BrokerPair, queue_name: str, transacted: bool
) -> None:
    """What it had ready is another one's, and so is its subscription."""

    async def story(connection: aio.Connection) -> None:
        listener = Task()
        session = connection.create_session(transacted)
        topic = session.create_topic(queue_name)
        consumer = await session.create_durable_consumer(topic, queue_name)
        consumer.message_listener = listener
        async with connection.create_session() as sending:
            producer = await sending.create_producer(topic)
            for body in ("1", "2"):
                await producer.send(sending.create_text_message(body))
        await listener.is_called.wait()
        await cancelled(session.close())
        assert not session._channel.closing
        listener.goes_on.set()
        await asyncio.to_thread(until, lambda: session._channel.closed)
        again = await connection.create_session().create_durable_consumer(topic, queue_name)
        message = await again.receive(WAIT_S)
        assert message is not None
        assert message.body == ("1" if transacted else "2")
        assert listener.heard == ["1"]
        await session.close()
        assert session not in connection._sessions

    tell(calm_pair.url, story, client_id=queue_name)


def test_a_listener_may_wait_for_a_task_of_its_own_that_closes_its_consumer(
    calm_pair: BrokerPair, queue_name: str
) -> None:
    left(calm_pair.url, queue_name, "1", "2")

    async def story(connection: aio.Connection) -> None:
        session = connection.create_session()
        consumer = await session.create_consumer(session.create_queue(queue_name))
        heard = asyncio.get_running_loop().create_future()

        async def listener(message: Message) -> None:
            await asyncio.create_task(consumer.close())
            heard.set_result(message.body)

        consumer.message_listener = listener
        assert await heard == "1"
        await session.close()

    tell(calm_pair.url, story)
    assert left(calm_pair.url, queue_name) == ["2"]


CALLS: dict[str, Callable[[aio.Connection, aio.Session], Coroutine[Any, Any, None]]] = {
    "session.close": lambda connection, session: session.close(),
    "connection.close": lambda connection, session: connection.close(),
    "connection.stop": lambda connection, session: connection.stop(),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_task_that_the_listener_waits_for_is_told_that_it_would_wait_for_itself(
    calm_pair: BrokerPair, queue_name: str, call: str
) -> None:
    left(calm_pair.url, queue_name, "1", "2")

    async def story(connection: aio.Connection) -> None:
        session = connection.create_session()
        consumer = await session.create_consumer(session.create_queue(queue_name))
        told = asyncio.get_running_loop().create_future()

        async def listener(message: Message) -> None:
            try:
                # Python 3.11 makes a task of it, as `create_task` does.
                await asyncio.wait_for(CALLS[call](connection, session), WAIT_S)
            except IllegalStateError as error:
                consumer.message_listener = None
                told.set_result(str(error))

        consumer.message_listener = listener
        assert "A message listener cannot" in await told
        await session.close()

    tell(calm_pair.url, story)
    assert left(calm_pair.url, queue_name) == ["2"]


def test_a_task_that_the_listener_began_closes_the_session_when_it_has_returned(
    calm_pair: BrokerPair, queue_name: str
) -> None:
    left(calm_pair.url, queue_name, "1", "2")

    async def story(connection: aio.Connection) -> None:
        session = connection.create_session()
        consumer = await session.create_consumer(session.create_queue(queue_name))
        begun = asyncio.get_running_loop().create_future()

        async def listener(message: Message) -> None:
            begun.set_result(asyncio.create_task(session.close()))

        consumer.message_listener = listener
        await (await begun)

    tell(calm_pair.url, story)
    assert left(calm_pair.url, queue_name) == ["2"]


def test_a_listener_that_is_cancelled_keeps_no_close_waiting(calm_pair: BrokerPair, queue_name: str) -> None:
    """Its message comes again."""
    left(calm_pair.url, queue_name, "1", "2")

    async def story(connection: aio.Connection) -> None:
        listener = Task()
        session = connection.create_session()
        consumer = await session.create_consumer(session.create_queue(queue_name))
        tasks: list[asyncio.Task[Any] | None] = []

        async def called(message: Message) -> None:
            tasks.append(asyncio.current_task())
            await listener(message)

        consumer.message_listener = called
        await listener.is_called.wait()
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        assert tasks[0] is not None
        tasks[0].cancel()
        await closing

    tell(calm_pair.url, story)
    assert left(calm_pair.url, queue_name) == ["1", "2"]


def test_a_task_that_the_listener_began_does_not_keep_its_message(calm_pair: BrokerPair, queue_name: str) -> None:
    """As large as it may be, and as long as the task may live."""
    left(calm_pair.url, queue_name, "1")

    async def story(connection: aio.Connection) -> None:
        session = connection.create_session()
        consumer = await session.create_consumer(session.create_queue(queue_name))
        ends = asyncio.Event()
        tasks: list[asyncio.Task[Any]] = []

        def listener(message: Message) -> None:
            tasks.append(asyncio.create_task(ends.wait()))

        def is_gone() -> bool:
            return bool(tasks) and not any(
                type(each) is Delivery and each.consumer is consumer._end for each in gc.get_objects()
            )

        consumer.message_listener = listener
        await asyncio.to_thread(until, is_gone)
        assert not tasks[0].done()
        ends.set()

    tell(calm_pair.url, story)
