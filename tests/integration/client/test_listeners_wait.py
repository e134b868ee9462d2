"""Listeners of a connection that wait for a session whose user waits for a listener: one thread calls them all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from legato.client import (
    Connection,
    ConnectionFactory,
    IllegalStateError,
    JMSError,
    Message,
    MessageProducer,
    Session,
    TextMessage,
)
from legato.client.calls.dispatcher import ThreadDispatcher
from tests.integration.client.calling import Calling, until
from tests.integration.client.helpers import WAIT_S, send
from tests.support.broker import BrokerPair

WAITING: dict[str, Callable[[Connection, Session, MessageProducer], None]] = {
    "commit": lambda connection, session, producer: session.commit(),
    "close the session": lambda connection, session, producer: session.close(),
    "close the connection": lambda connection, session, producer: connection.close(),
    "flush": lambda connection, session, producer: producer.flush(),
}
"""Calls that wait for completion listeners."""


class Told:
    """An exception listener that is about to do something, and then does it."""

    def __init__(self, does: Callable[[], Any]) -> None:
        self._does = does
        self.is_called = threading.Event()
        self.goes_on = threading.Event()
        self.has_returned = threading.Event()

    def __call__(self, error: JMSError) -> None:
        self.is_called.set()
        assert self.goes_on.wait(WAIT_S)
        self._does()
        self.has_returned.set()


@pytest.fixture
def connection(calm_pair: BrokerPair) -> Iterator[Connection]:
    """A connection that its test may close."""
    connection = ConnectionFactory(calm_pair.url, close_timeout_s=100_000).create_connection()
    connection.start()
    yield connection
    connection._transport.give_up()


def fails(connection: Connection, queue: str) -> None:
    """Have a message listener raise, which the exception listener hears."""

    def listener(message: Message) -> None:
        raise ValueError("broken")

    send(connection, queue, "for the listener that raises")
    session = connection.create_session()
    session.create_consumer(session.create_queue(queue)).message_listener = listener


def until_completions_are_waited_for(session: Session) -> None:
    """Wait until a send is done, and a call waits for the listener that is to hear so."""
    until(lambda: session._guard.completions.taken == 1 and session._channel.gate.is_awaited)


@pytest.mark.parametrize("call", WAITING)
def test_an_exception_listener_closes_what_waits_for_completion_listeners(
    connection: Connection, queue_name: str, call: str
) -> None:
    """They are queued behind it, and it waited for who waited for them."""
    heard: list[str] = []
    told = connection.exception_listener = Told(connection.close)
    session = connection.create_session(transacted=call == "commit")
    producer = session.create_producer(session.create_queue(queue_name))
    fails(connection, f"{queue_name}.fails")
    assert told.is_called.wait(WAIT_S)
    producer.send(TextMessage("x"), completion_listener=lambda message, error: heard.append(message.body))
    calling = Calling(lambda: WAITING[call](connection, session, producer))
    until_completions_are_waited_for(session)
    told.goes_on.set()
    calling.outcome()
    assert told.has_returned.wait(WAIT_S)
    until(lambda: heard == ["x"])


@pytest.mark.parametrize("how", ["stop", "close"])
def test_an_exception_listener_waits_for_a_message_listener_that_commits(
    connection: Connection, queue_name: str, how: str
) -> None:
    heard: list[str] = []
    told = connection.exception_listener = Told(lambda: getattr(connection, how)())
    session = connection.create_session(transacted=True)
    producer = session.create_producer(session.create_queue(f"{queue_name}.out"))
    committed = threading.Event()

    def listener(message: Message) -> None:
        producer.send(TextMessage(message.body), completion_listener=lambda message, error: heard.append(message.body))
        session.commit()
        committed.set()

    fails(connection, f"{queue_name}.fails")
    assert told.is_called.wait(WAIT_S)
    session.create_consumer(session.create_queue(queue_name)).message_listener = listener
    send(connection, queue_name, "x")
    until_completions_are_waited_for(session)
    told.goes_on.set()
    assert committed.wait(WAIT_S)
    assert told.has_returned.wait(WAIT_S)
    until(lambda: heard == ["x"])
    # From then on completion listeners are waited for again.
    assert not session._guard.completions.held_up


def test_a_listener_of_a_connection_that_is_gone_rests(connection: Connection, queue_name: str) -> None:
    """What had failed before waited to be announced, which nobody could be told any more: the session's thread asked
    again and again, and what it asked filled the memory."""
    session = connection.create_session()
    send(connection, queue_name, "x")
    consumer = session.create_consumer(session.create_queue(queue_name))
    until(lambda: consumer._inbox)
    transport = connection._transport
    transport.give_up()
    until(lambda: transport.ended)
    asked: list[object] = []
    consumer._is_suspect = lambda: True  # type: ignore[method-assign]
    consumer._take_for_listener = lambda: None  # type: ignore[method-assign]
    transport.post = lambda *call: asked.append(call)
    consumer._listener = lambda message: None
    dispatcher = ThreadDispatcher(session, "rests", redeliver_on_error=True)
    until(lambda: session._channel.gate.is_awaited)
    session._channel.gate.open()
    until(lambda: session._channel.gate.is_awaited)
    dispatcher.stop()
    until(lambda: dispatcher.ended)
    assert len(asked) < 10


def test_a_completion_listener_cannot_flush_its_own_session(connection: Connection, queue_name: str) -> None:
    """Jakarta Messaging 7.3.4; it waited for itself."""
    session = connection.create_session()
    producer = session.create_producer(session.create_queue(queue_name))
    errors: list[Exception] = []

    def listener(message: Message, error: JMSError | None) -> None:
        try:
            producer.flush(WAIT_S)
        except JMSError as refused:
            errors.append(refused)

    producer.send(TextMessage("x"), completion_listener=listener)
    until(lambda: errors)
    assert isinstance(errors[0], IllegalStateError)


def test_an_exception_listener_that_flushes_waits_for_confirmations(connection: Connection, queue_name: str) -> None:
    heard: list[str] = []
    session = connection.create_session()
    producer = session.create_producer(session.create_queue(queue_name))

    def flush() -> None:
        producer.flush()
        heard.append("flushed")

    told = connection.exception_listener = Told(flush)
    fails(connection, f"{queue_name}.fails")
    assert told.is_called.wait(WAIT_S)
    producer.send(TextMessage("x"), completion_listener=lambda message, error: heard.append(message.body))
    told.goes_on.set()
    assert told.has_returned.wait(WAIT_S)
    until(lambda: "x" in heard)
    # The listener is called for each attempt of the message that fails.
    assert heard[0] == "flushed"
