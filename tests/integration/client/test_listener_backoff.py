"""A session rests before a message is given back whose listener raised; whoever waits for that ends the rest."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

import legato.client.aio
from legato.client import Connection, ConnectionFactory, Message, MessageConsumer, Session
from legato.client.calls.dispatcher import ThreadDispatcher
from tests.integration.client.calling import until
from tests.integration.client.helpers import WAIT_S, send
from tests.support.broker import BrokerPair

FOR_EVER_S = 3600.0
ENDINGS: dict[str, Callable[[Connection, Session, MessageConsumer], None]] = {
    "the connection closes": lambda connection, session, consumer: connection.close(),
    "the session closes": lambda connection, session, consumer: session.close(),
    "the consumer closes": lambda connection, session, consumer: consumer.close(),
    "the connection stops": lambda connection, session, consumer: connection.stop(),
}


class Failing:
    """A listener that always raises."""

    def __init__(self) -> None:
        self.attempts: list[int] = []
        self.changed = threading.Condition()

    def __call__(self, message: Message) -> None:
        with self.changed:
            self.attempts.append(message.delivery_count)
            self.changed.notify_all()
        raise RuntimeError("the database is away")

    def wait_for(self, attempt: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: attempt in self.attempts, WAIT_S)


def rests(session: Session) -> bool:
    """Whether the session has a message whose listener raised, and waits before it gives that back."""
    dispatcher = session._listeners.dispatcher
    assert isinstance(dispatcher, ThreadDispatcher)
    return dispatcher.has_returned and session._channel.gate.is_awaited


@pytest.fixture
def other(calm_pair: BrokerPair) -> Iterator[Connection]:
    with ConnectionFactory(calm_pair.url).create_connection() as connection:
        connection.start()
        yield connection


@pytest.mark.parametrize("ending", ENDINGS)
def test_who_ends_a_rest_has_the_message_given_back_at_once(
    ending: str, calm_pair: BrokerPair, other: Connection, queue_name: str
) -> None:
    listener = Failing()
    with ConnectionFactory(calm_pair.url, listener_backoff_s=FOR_EVER_S).create_connection() as connection:
        connection.start()
        session = connection.create_session()
        consumer = session.create_consumer(session.create_queue(queue_name))
        consumer.message_listener = listener
        send(other, queue_name, "x", "y")
        listener.wait_for(2)
        until(lambda: rests(session))
        assert listener.attempts == [1, 2]
        ENDINGS[ending](connection, session, consumer)
        if ending == "the connection stops":
            connection.start()
            listener.wait_for(3)
            until(lambda: rests(session))
            assert listener.attempts == [1, 2, 3]
            return
        theirs = other.create_session()
        taker = theirs.create_consumer(theirs.create_queue(queue_name))
        found = taker.receive(WAIT_S)
        assert found is not None
        assert (found.body, found.delivery_count, found.redelivered) == ("x", 3, True)
        following = taker.receive(WAIT_S)
        assert following is not None
        assert following.body == "y"


def test_a_message_that_rests_is_nobody_elses_and_what_follows_is(
    calm_pair: BrokerPair, other: Connection, queue_name: str
) -> None:
    listener = Failing()
    with ConnectionFactory(calm_pair.url, listener_backoff_s=FOR_EVER_S, prefetch=1).create_connection() as connection:
        connection.start()
        session = connection.create_session()
        session.create_consumer(session.create_queue(queue_name)).message_listener = listener
        send(other, queue_name, "x")
        listener.wait_for(2)
        until(lambda: rests(session))
        theirs = other.create_session()
        taker = theirs.create_consumer(theirs.create_queue(queue_name))
        send(other, queue_name, "y", "z")
        found = taker.receive(WAIT_S)
        assert found is not None
        assert found.body in ("y", "z")


def test_without_a_rest_a_message_is_soon_a_dead_letter(
    calm_pair: BrokerPair, other: Connection, queue_name: str
) -> None:
    listener = Failing()
    with ConnectionFactory(calm_pair.url, listener_backoff_s=0).create_connection() as connection:
        connection.start()
        session = connection.create_session()
        session.create_consumer(session.create_queue(queue_name)).message_listener = listener
        send(other, queue_name, "x")
        theirs = other.create_session()
        dead = theirs.create_consumer(theirs.create_queue(f"DLQ.{queue_name}")).receive(WAIT_S)
        assert dead is not None
        assert listener.attempts == [*range(1, 11)]


def test_closing_ends_the_rest_of_a_coroutine_listener(
    calm_pair: BrokerPair, other: Connection, queue_name: str
) -> None:
    async def main() -> None:
        attempts: list[int] = []
        raised_twice = asyncio.Event()

        async def listener(message: Message) -> None:
            attempts.append(message.delivery_count)
            if len(attempts) == 2:
                raised_twice.set()
            raise RuntimeError("the database is away")

        factory = legato.client.aio.ConnectionFactory(calm_pair.url, listener_backoff_s=FOR_EVER_S)
        async with factory.create_connection() as connection:
            connection.start()
            session = connection.create_session()
            consumer = await session.create_consumer(session.create_queue(queue_name))
            consumer.message_listener = listener
            await raised_twice.wait()
        assert attempts == [1, 2]

    send(other, queue_name, "x")
    asyncio.run(asyncio.wait_for(main(), 4 * WAIT_S))
    theirs = other.create_session()
    found = theirs.create_consumer(theirs.create_queue(queue_name)).receive(WAIT_S)
    assert found is not None
    assert found.delivery_count == 3
