"""Calls about a subscription that were interrupted: called again they do what they say, and the connection lives on.

The link of the interrupted call is still there. A broker that sees its name twice would end the connection.
"""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from legato.client import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    IllegalStateError,
    InvalidDestinationError,
    TextMessage,
    Topic,
    aio,
)
from tests.integration.client.calling import held_back, until_away, until_blocked
from tests.integration.client.helpers import WAIT_S
from tests.support.broker import BrokerPair

NAME = "s"

Make = Callable[[aio.Session, Topic], Awaitable[aio.MessageConsumer]]
MAKES: dict[str, Make] = {
    "durable": lambda session, topic: session.create_durable_consumer(topic, NAME),
    "shared durable": lambda session, topic: session.create_shared_durable_consumer(topic, NAME),
    "shared": lambda session, topic: session.create_shared_consumer(topic, NAME),
}
DURABLE = ["durable", "shared durable"]


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine function."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


@asynccontextmanager
async def connected(pair: BrokerPair, client_id: str) -> AsyncIterator[aio.Connection]:
    async with aio.ConnectionFactory(pair.url, client_id=client_id).create_connection() as connection:
        connection.start()
        yield connection


async def cancelled(connection: aio.Connection, call: Awaitable[object]) -> None:
    """Begin a call, and cancel it before the I/O thread has done anything for it."""
    with held_back(connection):
        task = asyncio.ensure_future(call)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def again(call: Awaitable[Any]) -> Any:
    """A call that is not to hang."""
    return await asyncio.wait_for(call, WAIT_S)


async def subscribed(session: aio.Session, topic: Topic, how: str = "durable") -> None:
    """Have a durable subscription that no consumer has."""
    await (await MAKES[how](session, topic)).close()


@asynccontextmanager
async def undisturbed(connection: aio.Connection) -> AsyncIterator[None]:
    """A transaction that is open during the block commits after it, and there is the same connection."""
    wire = connection._transport.wire
    transacted = connection.create_session(transacted=True)
    topic = Topic("undisturbed")
    producer = await transacted.create_producer(topic)
    await producer.send(TextMessage("x"))
    yield
    await again(transacted.commit())
    assert connection._transport.wire is wire


def unreachable(*_: object) -> None:
    raise ConnectionRefusedError("the network is cut off")


@contextmanager
def away(connection: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without a broker, which is there again after the block."""
    with monkeypatch.context() as patches:
        patches.setattr("legato.client.links.transport.establish", unreachable)
        connection._transport.wire._socket.shutdown(socket.SHUT_RDWR)
        until_away(connection)
        yield


@pytest.mark.parametrize("times", [1, 3])
@in_a_loop
async def test_a_cancelled_unsubscribe_called_again_waits_for_its_end(
    calm_pair: BrokerPair, client_id: str, topic_name: str, times: int
) -> None:
    async with connected(calm_pair, client_id) as connection:
        session = connection.create_session()
        await subscribed(session, Topic(topic_name))
        async with undisturbed(connection):
            for _ in range(times):
                await cancelled(connection, session.unsubscribe(NAME))
            await again(session.unsubscribe(NAME))
        with pytest.raises(InvalidDestinationError):
            await again(session.unsubscribe(NAME))


@in_a_loop
async def test_a_cancelled_unsubscribe_that_has_ended_unheard_is_heard_of_by_the_next(
    calm_pair: BrokerPair, client_id: str, topic_name: str
) -> None:
    async with connected(calm_pair, client_id) as connection:
        session = connection.create_session()
        await subscribed(session, Topic(topic_name))
        await cancelled(connection, session.unsubscribe(NAME))
        with pytest.raises(InvalidDestinationError):  # it comes after the other: that has ended
            await again(connection.create_session().unsubscribe("none"))
        await again(session.unsubscribe(NAME))
        with pytest.raises(InvalidDestinationError):
            await again(session.unsubscribe(NAME))


@in_a_loop
async def test_an_unsubscribe_cancelled_while_the_broker_is_away_is_done_when_it_is_back(
    calm_pair: BrokerPair, client_id: str, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(calm_pair, client_id) as connection:
        session, other = connection.create_session(), connection.create_session()
        await subscribed(session, Topic(topic_name))
        with away(connection, monkeypatch):
            await cancelled(connection, session.unsubscribe(NAME))
            await cancelled(connection, other.unsubscribe(NAME))
            ending = asyncio.ensure_future(session.unsubscribe(NAME))
            await asyncio.sleep(0)
        await again(ending)
        await again((await other.create_producer(Topic(topic_name))).send(TextMessage("x")))
        assert len(connection.failovers) == 1


@in_a_loop
async def test_who_closes_a_session_that_has_not_ended_a_subscription_leaves_it_to_others(
    calm_pair: BrokerPair, client_id: str, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(calm_pair, client_id) as connection:
        session, other = connection.create_session(), connection.create_session()
        await subscribed(session, Topic(topic_name))
        with away(connection, monkeypatch):
            await cancelled(connection, session.unsubscribe(NAME))
            ending = asyncio.ensure_future(other.unsubscribe(NAME))
            await asyncio.sleep(0)
            await session.close()
        await again(ending)


@in_a_loop
async def test_two_sessions_that_end_a_subscription_at_once_do_not_disturb_each_other(
    calm_pair: BrokerPair, client_id: str, topic_name: str
) -> None:
    async with connected(calm_pair, client_id) as connection:
        sessions = [connection.create_session() for _ in range(2)]
        await subscribed(sessions[0], Topic(topic_name))
        async with undisturbed(connection):
            await cancelled(connection, sessions[0].unsubscribe(NAME))
            ends = (again(session.unsubscribe(NAME)) for session in sessions)
            first, second = await asyncio.gather(*ends, return_exceptions=True)
        assert first is None
        assert second is None or isinstance(second, InvalidDestinationError)  # it may come when all is over
        with pytest.raises(InvalidDestinationError):
            await again(sessions[1].unsubscribe(NAME))


@pytest.mark.parametrize("how", DURABLE)
@in_a_loop
async def test_a_consumer_after_a_cancelled_unsubscribe_has_a_new_subscription(
    calm_pair: BrokerPair, client_id: str, topic_name: str, how: str
) -> None:
    async with connected(calm_pair, client_id) as connection:
        session = connection.create_session()
        topic = Topic(topic_name)
        await subscribed(session, topic, how)
        await (await session.create_producer(topic)).send(TextMessage("old"))
        async with undisturbed(connection):
            await cancelled(connection, session.unsubscribe(NAME))
            consumer = await again(MAKES[how](session, topic))
        await (await session.create_producer(topic)).send(TextMessage("new"))
        message = await consumer.receive(WAIT_S)
        assert message is not None
        assert message.body == "new"
        with pytest.raises(IllegalStateError, match="active consumer"):
            await again(session.unsubscribe(NAME))


@pytest.mark.parametrize("how", MAKES)
@pytest.mark.parametrize("times", [1, 3])
@in_a_loop
async def test_a_consumer_whose_making_was_cancelled_can_be_made_again(
    calm_pair: BrokerPair, client_id: str, topic_name: str, how: str, times: int
) -> None:
    async with connected(calm_pair, client_id) as connection:
        session, topic = connection.create_session(), Topic(topic_name)
        async with undisturbed(connection):
            for _ in range(times):
                await cancelled(connection, MAKES[how](session, topic))
            consumer = await again(MAKES[how](session, topic))
        await (await session.create_producer(topic)).send(TextMessage("x"))
        assert await consumer.receive(WAIT_S) is not None


@pytest.mark.parametrize("how", DURABLE)
@in_a_loop
async def test_the_subscription_of_a_consumer_whose_making_was_cancelled_can_be_ended(
    calm_pair: BrokerPair, client_id: str, topic_name: str, how: str
) -> None:
    async with connected(calm_pair, client_id) as connection:
        session, topic = connection.create_session(), Topic(topic_name)
        await subscribed(session, topic, how)
        async with undisturbed(connection):
            await cancelled(connection, MAKES[how](session, topic))
            await again(connection.create_session().unsubscribe(NAME))


@pytest.mark.parametrize("how", DURABLE)
@pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.CLIENT])
@in_a_loop
async def test_the_subscription_of_a_consumer_whose_close_was_cancelled_can_be_ended(
    calm_pair: BrokerPair, client_id: str, topic_name: str, how: str, mode: AcknowledgeMode
) -> None:
    async with connected(calm_pair, client_id) as connection:
        session = connection.create_session(acknowledge_mode=mode)
        consumer = await MAKES[how](session, Topic(topic_name))
        async with undisturbed(connection):
            await cancelled(connection, consumer.close())
            await again(session.unsubscribe(NAME))


@in_a_loop
async def test_a_message_that_is_not_acknowledged_keeps_its_subscription_though_the_close_was_cancelled(
    calm_pair: BrokerPair, client_id: str, topic_name: str
) -> None:
    async with connected(calm_pair, client_id) as connection:
        session, topic = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT), Topic(topic_name)
        consumer = await MAKES["durable"](session, topic)
        await (await session.create_producer(topic)).send(TextMessage("x"))
        message = await consumer.receive(WAIT_S)
        assert message is not None
        await cancelled(connection, consumer.close())
        with pytest.raises(IllegalStateError, match="active consumer"):
            await again(session.unsubscribe(NAME))
        await session.acknowledge_all()
        await again(session.unsubscribe(NAME))


class Alarm(Exception):
    """What the signal handler raises."""


def interrupted(connection: Connection, session: Any, call: Callable[[], object]) -> None:
    """Begin a blocking call whose I/O thread does nothing, and have a signal interrupt it."""

    def handler(*_: object) -> None:
        raise Alarm

    def strike() -> None:
        until_blocked(session)
        os.kill(os.getpid(), signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with held_back(connection):
            striking = threading.Thread(target=strike)
            striking.start()
            with pytest.raises(Alarm):
                call()
            striking.join(WAIT_S)
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def connection(calm_pair: BrokerPair, client_id: str) -> Iterator[Connection]:
    with ConnectionFactory(calm_pair.url, client_id=client_id).create_connection() as connection:
        connection.start()
        yield connection


@pytest.mark.parametrize("broker", ["there", "away"])
def test_an_unsubscribe_that_a_signal_interrupted_can_be_called_again(
    connection: Connection, topic_name: str, monkeypatch: pytest.MonkeyPatch, broker: str
) -> None:
    session = connection.create_session()
    session.create_durable_consumer(Topic(topic_name), NAME).close()
    wire = connection._transport.wire
    if broker == "there":
        interrupted(connection, session, lambda: session.unsubscribe(NAME))
    else:
        with away(connection, monkeypatch):
            interrupted(connection, session, lambda: session.unsubscribe(NAME))
    session.unsubscribe(NAME)
    connection.create_session().create_producer(Topic(topic_name)).send(TextMessage("x"))
    assert (connection._transport.wire is wire) is (broker == "there")
    with pytest.raises(InvalidDestinationError):
        session.unsubscribe(NAME)


@pytest.mark.parametrize(
    "make",
    [
        lambda session, topic: session.create_durable_consumer(topic, NAME),
        lambda session, topic: session.create_shared_durable_consumer(topic, NAME),
        lambda session, topic: session.create_shared_consumer(topic, NAME),
    ],
    ids=list(MAKES),
)
def test_a_consumer_whose_making_a_signal_interrupted_can_be_made_again(
    connection: Connection, topic_name: str, make: Callable[[Any, Topic], Any]
) -> None:
    session, topic = connection.create_session(), Topic(topic_name)
    wire = connection._transport.wire
    interrupted(connection, session, lambda: make(session, topic))
    consumer = make(session, topic)
    session.create_producer(topic).send(TextMessage("x"))
    assert consumer.receive(WAIT_S) is not None
    assert connection._transport.wire is wire
