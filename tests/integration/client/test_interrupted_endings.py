"""A commit or rollback whose caller was interrupted: the session's next call waits for its end, whatever it is to do.

The client's I/O thread is held meanwhile, so that what does not wait is seen not to.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from legato.amqp.engine.events import Closed
from legato.client import ConnectionFactory, JMSConsumer, Message, TextMessage, TransactionRolledBackError, aio
from legato.client.links.transport import Transport
from legato.client.steps import Steps
from tests.integration.client.calling import Calling, drop, held_back, until, until_blocked
from tests.integration.client.helpers import WAIT_S, drain, send
from tests.stress import cancelling
from tests.support.broker import BrokerPair, broker_pair

LOOKS = 20
"""Turns of the event loop in which a call that waits for nothing would have returned."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerPair]:
    """Brokers that refuse what an address has no room for."""
    directory: Path = tmp_path_factory.mktemp("small")
    configuration = directory / "legato.toml"
    configuration.write_text('[[address]]\nmatch = "fail.#"\nmax_messages = 1\nwhen_full = "fail"\n')
    with broker_pair(directory, "--config", str(configuration)) as pair:
        yield pair


async def interrupted(connection: aio.Connection, call: Awaitable[object]) -> None:
    """Begin a call while the I/O thread is held, and cancel it."""
    task = asyncio.ensure_future(call)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def waits(call: Awaitable[Any]) -> asyncio.Future[Any]:
    """The call, which is seen not to return."""
    task = asyncio.ensure_future(call)
    for _ in range(LOOKS):
        await asyncio.sleep(0)
    assert not task.done(), f"it did not wait for the outcome: {task}"
    return task


async def _first_of(consumer: aio.MessageConsumer) -> Message | None:
    async for message in consumer:
        return message
    return None


async def _body(consumer: aio.MessageConsumer) -> Message | None:
    body = await aio.JMSConsumer(consumer).receive_body(str, WAIT_S)
    return None if body is None else TextMessage(body)


WAYS: dict[str, Callable[[aio.MessageConsumer], Awaitable[Message | None]]] = {
    "receive": lambda consumer: consumer.receive(WAIT_S),
    "receive_no_wait": lambda consumer: consumer.receive_no_wait(),
    "iteration": _first_of,
    "simplified receive": lambda consumer: aio.JMSConsumer(consumer).receive(WAIT_S),
    "simplified receive_no_wait": lambda consumer: aio.JMSConsumer(consumer).receive_no_wait(),
    "receive_body": _body,
    "receive_body_no_wait": lambda consumer: _body_no_wait(consumer),
}


async def _body_no_wait(consumer: aio.MessageConsumer) -> Message | None:
    body = await aio.JMSConsumer(consumer).receive_body_no_wait(str)
    return None if body is None else TextMessage(body)


@pytest.mark.parametrize("way", WAYS)
def test_whatever_receives_waits_for_the_end_of_a_cancelled_rollback(
    calm_pair: BrokerPair, queue_name: str, way: str
) -> None:
    """A message that came while a cancelled rollback went on was given back, and the next commit() returned."""

    async def story() -> None:
        async with aio.ConnectionFactory(calm_pair.url).create_connection() as connection:
            connection.start()
            session = connection.create_session(transacted=True)
            consumer = await session.create_consumer(session.create_queue(queue_name))
            first = await consumer.receive(WAIT_S)
            assert first is not None
            await asyncio.to_thread(until, lambda: len(consumer._inbox) == 2)
            with held_back(connection):
                await interrupted(connection, session.rollback())
                receiving = await waits(WAYS[way](consumer))
            again = await asyncio.wait_for(receiving, WAIT_S)
            assert again.body == "0", "what was rolled back comes again, first"
            await session.commit()

    with ConnectionFactory(calm_pair.url).create_connection() as connection:
        connection.start()
        send(connection, queue_name, "0", "1", "2")
        asyncio.run(asyncio.wait_for(story(), 4 * WAIT_S))
        assert drain(connection, queue_name) == ["1", "2"]


def test_what_came_while_a_listener_was_cancelled_in_its_rollback_waits(calm_pair: BrokerPair, queue_name: str) -> None:
    heard: list[str] = []

    async def story() -> None:
        async with aio.ConnectionFactory(calm_pair.url).create_connection() as connection:
            session = connection.create_session(transacted=True)
            consumer = await session.create_consumer(session.create_queue(queue_name))
            done = asyncio.Event()
            held = contextlib.ExitStack()

            async def listen(message: Message) -> None:
                heard.append(message.body)
                if len(heard) > 1:
                    await session.commit()
                    done.set()
                    consumer.message_listener = None
                    return
                await asyncio.to_thread(until, lambda: consumer._inbox)
                held.enter_context(held_back(connection))
                asyncio.get_running_loop().call_later(0.05, held.close)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0):
                        await session.rollback()

            consumer.message_listener = listen
            connection.start()
            await done.wait()

    with ConnectionFactory(calm_pair.url).create_connection() as connection:
        connection.start()
        send(connection, queue_name, "0", "1")
        asyncio.run(asyncio.wait_for(story(), 4 * WAIT_S))
        assert heard == ["0", "0"]
        assert drain(connection, queue_name) == ["1"]


async def _refused_and_interrupted(
    connection: aio.Connection, session: aio.Session, consumer: aio.MessageConsumer, full: str
) -> None:
    """Receive, send to an address that is full, and be cancelled in commit()."""
    assert await consumer.receive(WAIT_S) is not None
    producer = await session.create_producer(session.create_queue(full))
    await producer.send(TextMessage("no room"))
    with held_back(connection):
        await interrupted(connection, session.commit())


@pytest.fixture
def full(small: BrokerPair, queue_name: str) -> str:
    """A queue that has no room."""
    name = f"fail.{queue_name}"
    with ConnectionFactory(small.url).create_connection() as connection:
        send(connection, name, "there")
    return name


def test_receive_waits_for_the_refusal_of_a_cancelled_commit(small: BrokerPair, queue_name: str, full: str) -> None:
    async def story() -> None:
        async with aio.ConnectionFactory(small.url).create_connection() as connection:
            connection.start()
            session = connection.create_session(transacted=True)
            consumer = await session.create_consumer(session.create_queue(queue_name))
            await _refused_and_interrupted(connection, session, consumer, full)
            with held_back(connection):
                receiving = await waits(consumer.receive(WAIT_S))
            message = await receiving
            assert message is not None
            assert (message.body, message.redelivered) == ("0", True)
            await session.commit()

    with ConnectionFactory(small.url).create_connection() as connection:
        connection.start()
        send(connection, queue_name, "0", "1")
        asyncio.run(asyncio.wait_for(story(), 4 * WAIT_S))
        assert drain(connection, queue_name) == ["1"]


def test_commit_called_again_raises_what_the_cancelled_one_could_not_say(
    small: BrokerPair, queue_name: str, full: str
) -> None:
    """It returned, about the empty transaction that followed."""

    async def story() -> None:
        async with aio.ConnectionFactory(small.url).create_connection() as connection:
            connection.start()
            session = connection.create_session(transacted=True)
            consumer = await session.create_consumer(session.create_queue(queue_name))
            await _refused_and_interrupted(connection, session, consumer, full)
            since = await session.create_producer(session.create_queue(queue_name))
            await since.send(TextMessage("sent since"))
            with pytest.raises(TransactionRolledBackError):
                await session.commit()
            assert session.replay() == 2, "what was sent since belonged to what was taken for committed"
            with pytest.raises(TransactionRolledBackError):
                await session.commit()
            await session.commit()  # told once

    with ConnectionFactory(small.url).create_connection() as connection:
        connection.start()
        send(connection, queue_name, "0")
        asyncio.run(asyncio.wait_for(story(), 4 * WAIT_S))
        assert drain(connection, queue_name) == ["0"]


def test_replay_sends_what_each_of_several_cancelled_commits_held(
    small: BrokerPair, queue_name: str, full: str
) -> None:
    """Promise 3: the second one rolled back what was sent after the first, and nobody knew of that any more."""

    async def story() -> None:
        async with aio.ConnectionFactory(small.url).create_connection() as connection:
            connection.start()
            session = connection.create_session(transacted=True)
            consumer = await session.create_consumer(session.create_queue(queue_name))
            await _refused_and_interrupted(connection, session, consumer, full)
            since = await session.create_producer(session.create_queue(queue_name))
            for text in ("first", "second"):
                await since.send(TextMessage(text))
                with held_back(connection):
                    await interrupted(connection, session.commit())
            await since.send(TextMessage("third"))
            with pytest.raises(TransactionRolledBackError):
                await session.commit()
            with ConnectionFactory(small.url).create_connection() as other:
                other.start()
                assert drain(other, full) == ["there"]
            assert session.replay() == 4
            await session.commit()
            assert session.replay() == 0

    with ConnectionFactory(small.url).create_connection() as connection:
        connection.start()
        send(connection, queue_name, "0")
        asyncio.run(asyncio.wait_for(story(), 4 * WAIT_S))
        assert drain(connection, full) == ["no room"]
        assert drain(connection, queue_name) == ["0", "first", "second", "third"]


def _interrupt(steps: Steps[Any]) -> None:
    """Begin a call, and interrupt it where it waits, as a signal handler that raises does."""
    next(steps)
    with pytest.raises(KeyboardInterrupt):
        steps.throw(KeyboardInterrupt())


BLOCKING: dict[str, Callable[[Any], Message | None]] = {
    "receive": lambda consumer: consumer.receive(WAIT_S),
    "receive_no_wait": lambda consumer: consumer.receive_no_wait(),
    "iteration": lambda consumer: next(iter(consumer)),
    "simplified receive": lambda consumer: JMSConsumer(consumer).receive(WAIT_S),
    "receive_body": lambda consumer: TextMessage(JMSConsumer(consumer).receive_body(str, WAIT_S)),
}


@pytest.mark.parametrize("way", BLOCKING)
def test_a_blocking_receive_waits_for_the_end_of_an_interrupted_rollback(
    calm_pair: BrokerPair, queue_name: str, way: str
) -> None:
    with ConnectionFactory(calm_pair.url).create_connection() as connection:
        connection.start()
        send(connection, queue_name, "0", "1", "2")
        with connection.create_session(transacted=True) as session:
            consumer = session.create_consumer(session.create_queue(queue_name))
            assert consumer.receive(WAIT_S) is not None
            until(lambda: len(consumer._inbox) == 2)
            with held_back(connection):
                _interrupt(session._transactions.rollback())
                receiving = Calling(lambda: BLOCKING[way](consumer))
                until_blocked(session)
            again = receiving.outcome()
            assert again is not None
            assert again.body == "0"
            session.commit()
        assert drain(connection, queue_name) == ["1", "2"]


@pytest.mark.parametrize("call", ["receive", "commit"])
def test_who_was_interrupted_in_a_receive_that_was_to_raise_hears_it_from_the_next_call(
    calm_pair: BrokerPair, queue_name: str, call: str
) -> None:
    """CONTRACT A11, promise 3: what the interrupted one rolled back can be replayed."""
    factory = ConnectionFactory(calm_pair.url, failover_contract="gigaspaces")
    with factory.create_connection() as connection:
        connection.start()
        with connection.create_session(transacted=True) as session:
            consumer = session.create_consumer(session.create_queue(f"{queue_name}.in"))
            producer = session.create_producer(session.create_queue(queue_name))
            producer.send(TextMessage("0"))
            drop(connection)
            until(lambda: session._channel.aborted)
            with held_back(connection):
                _interrupt(consumer._receive(WAIT_S))
            with pytest.raises(TransactionRolledBackError):
                consumer.receive(WAIT_S) if call == "receive" else session.commit()
            assert session.replay() == 1
            session.commit()
        assert drain(connection, queue_name) == ["0"]


def test_a_consumer_closed_after_an_interrupted_commit_takes_its_messages_along(
    calm_pair: BrokerPair, queue_name: str
) -> None:
    """Its link closed before the transaction had what it received: the commit went on without it."""
    with ConnectionFactory(calm_pair.url).create_connection() as connection:
        connection.start()
        send(connection, queue_name, "0")
        with connection.create_session(transacted=True) as session:
            consumer = session.create_consumer(session.create_queue(queue_name))
            assert consumer.receive(WAIT_S) is not None
            with held_back(connection):
                _interrupt(session._transactions.commit())
                closing = Calling(consumer.close)
                until_blocked(session)
            closing.outcome()
            session.commit()
        assert drain(connection, queue_name) == []


def test_a_close_after_an_interrupted_close_ends_with_the_connection(
    calm_pair: BrokerPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupted one closed the session behind it: the second one waits for nothing of that session's."""
    connection = ConnectionFactory(calm_pair.url, close_timeout_s=100_000).create_connection()
    connection.start()
    session = connection.create_session(transacted=True)
    session.create_consumer(session.create_queue("closed twice"))
    transport = connection._transport
    goes_on, ends = threading.Event(), threading.Event()

    def give_up_later() -> None:
        until(lambda: session._channel.closed)
        Transport.give_up(transport)

    def closed_later(event: Closed) -> None:
        ends.set()
        assert goes_on.wait(WAIT_S)
        Transport._closed(transport, event)

    monkeypatch.setattr(transport, "_closed", closed_later)
    with monkeypatch.context() as interrupting:
        # At that line: nothing was asked of the transaction yet.
        interrupting.setattr("legato.client.calls.session_steps.Transaction", Mock(side_effect=KeyboardInterrupt))
        interrupting.setattr(transport, "give_up", give_up_later)
        with pytest.raises(KeyboardInterrupt):
            connection.close()
    assert ends.wait(WAIT_S)
    closing = Calling(connection.close)
    until(lambda: connection._sessions == [])
    goes_on.set()
    closing.outcome()


def test_a_session_whose_close_was_interrupted_at_its_end_is_forgotten_by_the_next_one(
    calm_pair: BrokerPair, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ConnectionFactory(calm_pair.url).create_connection() as connection:
        session = connection.create_session()
        session.create_consumer(session.create_queue(queue_name))
        with monkeypatch.context() as interrupting:
            interrupting.setattr(connection, "_forget_session", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                session.close()
        session.close()
        assert connection._sessions == []


def test_of_many_cancelled_commits_and_rollbacks_none_does_a_message_twice(tmp_path: Path) -> None:
    """The command does more: `python -m tests.stress.cancelling`."""
    with cancelling.brokers(tmp_path) as url:
        wrong, cancelled = asyncio.run(cancelling.stress(url, runs=10, seed=1))
    assert wrong == []
    assert cancelled > 20
