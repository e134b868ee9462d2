"""Consumers without a prefetch: each message is asked for, and what was asked for is not forgotten."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from legato.client import AcknowledgeMode, ConnectionFactory, Queue, TextMessage
from legato.client import Connection as BlockingConnection
from legato.client import MessageConsumer as BlockingConsumer
from legato.client.aio import Connection, MessageConsumer
from legato.client.aio import ConnectionFactory as AsyncConnectionFactory
from legato.client.calls import consumer_steps
from tests.integration.client.calling import Calling, until, until_blocked
from tests.integration.client.helpers import WAIT_S
from tests.support.broker import BrokerPair

Connect = Callable[..., BlockingConnection]


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


@contextmanager
def silent(pair: BrokerPair) -> Iterator[None]:
    """A broker that says nothing, and is not lost."""
    pair.primary.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        pair.primary.process.send_signal(signal.SIGCONT)


def connection_of(connect: Connect, prefetch: int = 0) -> BlockingConnection:
    """A client that waits for a silent broker for ever, if it waits."""
    return connect(prefetch=prefetch, client_failure_check_period_s=-1)


CALLS: dict[str, Callable[[BlockingConsumer], object]] = {
    "receive": lambda consumer: consumer.receive(timeout_s=0.1),
    "receive a class": lambda consumer: consumer.receive(TextMessage, timeout_s=0.1),
    "receive_body": lambda consumer: consumer.receive_body(str, timeout_s=0.1),
    "receive_no_wait": lambda consumer: consumer.receive_no_wait(),
    "receive_body_no_wait": lambda consumer: consumer.receive_body_no_wait(str),
}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls wait less for a silent broker."""
    monkeypatch.setattr(consumer_steps, "SILENT_WAIT_S", 0.2)
    monkeypatch.setattr(consumer_steps, "LAST_LOOK_S", 0.2)


@pytest.mark.usefixtures("impatient")
def test_calls_with_a_time_do_not_wait_for_a_broker_that_is_silent(pair: BrokerPair, connect: Connect) -> None:
    """They waited until it was found to be lost."""
    connection = connection_of(connect)
    consumers = {name: connection.create_session().create_consumer(Queue(name)) for name in CALLS}
    with silent(pair):
        for name, call in CALLS.items():
            assert Calling(partial(call, consumers[name])).outcome() is None
        # While the answer is due they ask again.
        for name, call in CALLS.items():
            assert Calling(partial(call, consumers[name])).outcome() is None
    for name, consumer in consumers.items():
        send(pair.url, name, "tea")
        assert consumer.receive_body(str, WAIT_S) == "tea"
        assert consumer.receive_no_wait() is None


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.usefixtures("impatient")
def test_a_message_that_comes_after_the_call_is_the_next_ones(pair: BrokerPair, connect: Connect, call: str) -> None:
    session = connection_of(connect).create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = session.create_consumer(Queue("orders"))
    assert consumer.receive_no_wait() is None
    for text in ("1", "2", "3", "4"):
        send(pair.url, "orders", text)
    with silent(pair):
        assert Calling(partial(CALLS[call], consumer)).outcome() is None
    # One message was asked for, and comes.
    until(lambda: consumer._inbox)
    first = consumer.receive(timeout_s=WAIT_S)
    assert first is not None
    assert (first.body, first.redelivered, first.delivery_count) == ("1", False, 1)
    first.acknowledge()
    # So it is for who asks again while the broker is silent.
    with silent(pair):
        assert Calling(partial(CALLS[call], consumer)).outcome() is None
        receiving = Calling(lambda: consumer.receive(timeout_s=WAIT_S))
        until_blocked(session)
    second = receiving.outcome()
    assert (second.body, second.redelivered, second.delivery_count) == ("2", False, 1)
    second.acknowledge()
    # Nobody has had what is closed with the consumer, or rolled back.
    with silent(pair):
        outcome = Calling(partial(CALLS[call], consumer)).outcome()
    if outcome is not None:
        return  # The second request crossed with the answer to the first: on a busy machine it has brought the third.
    until(lambda: consumer._inbox)
    session.recover()
    other = connection_of(connect).create_session().create_consumer(Queue("orders"))
    third = other.receive(timeout_s=WAIT_S)
    assert third is not None
    assert (third.body, third.redelivered, third.delivery_count) == ("3", False, 1)
    with silent(pair):
        assert Calling(partial(CALLS[call], consumer)).outcome() is None
    until(lambda: consumer._inbox)
    consumer.close()
    fourth = other.receive(timeout_s=WAIT_S)
    assert fourth is not None
    assert (fourth.body, fourth.redelivered, fourth.delivery_count) == ("4", False, 1)
    assert other.receive_no_wait() is None


@pytest.mark.parametrize("comes_first", [True, False])
@pytest.mark.usefixtures("impatient")
def test_a_message_that_comes_after_the_call_survives_the_broker(
    pair: BrokerPair, connect: Connect, comes_first: bool
) -> None:
    connection = connection_of(connect)
    session = connection.create_session()
    consumer = session.create_consumer(Queue("orders"))
    assert consumer.receive_no_wait() is None
    send(pair.url, "orders", "tea")
    with silent(pair):
        assert Calling(lambda: consumer.receive(timeout_s=0.1)).outcome() is None
        if not comes_first:
            pair.fail_over()
    if comes_first:
        until(lambda: consumer._inbox)
        pair.fail_over()
    until(lambda: connection.failovers)
    message = consumer.receive(timeout_s=WAIT_S)
    assert message is not None
    assert (message.body, message.delivery_count) == ("tea", 1)
    assert consumer.receive_no_wait() is None
    session.close()
    with connection.create_session() as again:
        assert again.create_consumer(Queue("orders")).receive_no_wait() is None
