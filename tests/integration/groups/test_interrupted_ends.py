"""Ends of sessions and connections that reach into another group, if they are interrupted or somebody still waits."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from legato.client import Connection, ConnectionFactory, MessageConsumer, Queue, Session, aio
from tests.integration.groups.conftest import Connect, Groups
from tests.stress.interrupting import Interrupted
from tests.support.server import Server

WAIT_S = 60.0
NAMES = ("orders.cut", "rest.cut")


def put(connection: Connection) -> None:
    """Send two messages to each of the queues."""
    with connection.create_session() as session:
        for name in NAMES:
            with session.create_producer(Queue(name)) as producer:
                for text in ("one", "two"):
                    producer.send(text)


def left(connection: Connection, texts: list[str]) -> None:
    """All that is not acknowledged comes to the next receiver."""
    with connection.create_session() as session:
        for name in NAMES:
            with session.create_consumer(Queue(name)) as consumer:
                assert [consumer.receive_body(str, timeout_s=WAIT_S) for _ in texts] == texts


@contextmanager
def stopped(broker: Server) -> Iterator[None]:
    """It answers nothing."""
    broker.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        broker.signal(signal.SIGCONT)


@contextmanager
def alarm(after_s: float) -> Iterator[None]:
    """A signal handler raises meanwhile, as that of Ctrl-C does."""

    def ring(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, after_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def check_ended(threads: set[threading.Thread]) -> None:
    """They end."""
    for thread in threads:
        thread.join(WAIT_S)
    assert not any(thread.is_alive() for thread in threads)


def io_threads() -> set[threading.Thread]:
    """Those of connections."""
    return {each for each in threading.enumerate() if each.name.startswith("legato ")}


@pytest.mark.parametrize("what", ["session", "connection"])
def test_an_interrupted_close_ends_all_in_both_groups(groups: Groups, connect: Connect, what: str) -> None:
    """The connection to the other group stayed, and what its consumers had ready nobody else got."""
    other = connect(groups.url("orders"))
    put(other)
    before = io_threads()
    connection = ConnectionFactory(groups.url("orders")).create_connection()
    connection.start()
    session = connection.create_session()
    for name in NAMES:
        assert session.create_consumer(Queue(name)).receive_body(str, timeout_s=WAIT_S) == "one"
    closed: Session | Connection = session if what == "session" else connection
    with stopped(groups.brokers["rest"]), pytest.raises(Interrupted), alarm(0.5):
        closed.close()
    left(other, ["two"])
    if closed is session:
        connection.close()
    check_ended(io_threads() - before)


@pytest.mark.parametrize("what", ["session", "connection"])
def test_a_cancelled_close_ends_all_in_both_groups(groups: Groups, connect: Connect, what: str) -> None:
    other = connect(groups.url("orders"))
    put(other)
    before = io_threads()

    async def work() -> None:
        connection = await aio.ConnectionFactory(groups.url("orders")).create_connection()
        connection.start()
        session = connection.create_session()
        for name in NAMES:
            consumer = await session.create_consumer(Queue(name))
            assert await consumer.receive_body(str, timeout_s=WAIT_S) == "one"
        closed: aio.Session | aio.Connection = session if what == "session" else connection
        with stopped(groups.brokers["rest"]), pytest.raises(TimeoutError):
            await asyncio.wait_for(closed.close(), 0.5)
        await asyncio.to_thread(left, other, ["two"])
        if closed is session:
            await connection.close()

    asyncio.run(work())
    check_ended(io_threads() - before)


def test_an_exception_that_leaves_a_connection_ends_all_in_both_groups(groups: Groups, connect: Connect) -> None:
    other = connect(groups.url("orders"))
    put(other)
    before = io_threads()

    def leave() -> None:
        with ConnectionFactory(groups.url("orders")).create_connection() as connection:
            connection.start()
            session = connection.create_session()
            for name in NAMES:
                assert session.create_consumer(Queue(name)).receive_body(str, timeout_s=WAIT_S) == "one"
            groups.brokers["rest"].signal(signal.SIGSTOP)
            raise Interrupted

    try:
        with pytest.raises(Interrupted):
            leave()
    finally:
        groups.brokers["rest"].signal(signal.SIGCONT)
    left(other, ["two"])
    check_ended(io_threads() - before)


@pytest.mark.parametrize("names", [("orders.both", "rest.both"), ("rest.both", "orders.both")])
def test_a_session_closes_though_a_call_receives(calm_groups: Groups, connect: Connect, names: tuple[str, str]) -> None:
    """It did not if the call received from its own group: the session below waited for the turn."""
    session = connect(calm_groups.url("orders")).create_session()
    consumers: list[MessageConsumer] = [session.create_consumer(Queue(name)) for name in names]
    received: list[object] = []
    receiving = threading.Thread(target=lambda: received.append(consumers[0].receive()), daemon=True)
    receiving.start()
    while session._guard.turn.acquire(False):
        session._guard.turn.release()
    closing = threading.Thread(target=session.close, daemon=True)
    closing.start()
    closing.join(10.0)
    waits = closing.is_alive()
    for consumer in consumers:
        consumer._closed = True
    session._channel.gate.open()
    closing.join(WAIT_S)
    receiving.join(WAIT_S)
    assert not waits
    assert received == [None]
