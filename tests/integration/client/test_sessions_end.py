"""Closing a session whose broker does not answer: it ends in bounded time, and so does whoever is blocked in it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from legato.client import AcknowledgeMode, Connection, JMSError, Message
from legato.client.links.temporaries import TemporaryEnd
from tests.integration.client.calling import Calling, until
from tests.integration.client.helpers import WAIT_S, drain, receive, send

Connect = Callable[..., Connection]


def deaf(consumer: Any) -> None:
    """The consumer never hears that what it accepted is consumed."""
    consumer._end.on_disposition = lambda event: None


@pytest.mark.parametrize("what", ["session", "connection"])
@pytest.mark.parametrize("mode", [AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL])
def test_an_acknowledgement_that_is_never_confirmed_ends_when_its_session_is_closed(
    connect: Connect, queue_name: str, mode: AcknowledgeMode, what: str
) -> None:
    """CONTRACT E11: closing waits for `close_timeout_s`, and then for no acknowledgement any more."""
    connection = connect(close_timeout_s=0.1)
    send(connection, queue_name, "1")
    session = connection.create_session(acknowledge_mode=mode)
    consumer = session.create_consumer(session.create_queue(queue_name))
    deaf(consumer)
    (message,) = receive(consumer, 1)
    errors: list[JMSError] = []

    def acknowledge() -> None:
        try:
            message.acknowledge()
        except JMSError as error:
            errors.append(error)

    thread = threading.Thread(target=acknowledge)
    thread.start()
    while not session._guard.blocked:
        thread.join(0.001)
    (session if what == "session" else connection).close()
    thread.join(WAIT_S)
    assert [error.code for error in errors] == ["TIMEOUT"]
    other = connect()
    assert drain(other, queue_name) == []


def test_a_listener_that_is_blocked_in_an_acknowledgement_ends_when_its_session_is_closed(
    connect: Connect, queue_name: str
) -> None:
    connection = connect(close_timeout_s=0.1)
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = session.create_consumer(session.create_queue(queue_name))
    deaf(consumer)
    errors: list[JMSError] = []
    called = threading.Event()

    def on_message(message: Message) -> None:
        called.set()
        try:
            message.acknowledge()
        except JMSError as error:
            errors.append(error)

    consumer.message_listener = on_message
    send(connection, queue_name, "1")
    assert called.wait(WAIT_S)
    session.close()
    assert [error.code for error in errors] == ["TIMEOUT"]


@pytest.mark.parametrize("what", ["session", "connection"])
def test_a_temporary_queue_that_the_broker_does_not_make_ends_when_its_session_is_closed(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The session waited for its caller, and that for the broker, until the connection was lost."""
    monkeypatch.setattr("legato.client.calls.patience.GIVEN_UP_AFTER_S", 0.1)
    monkeypatch.setattr(TemporaryEnd, "on_attached", lambda end, event: None)
    connection: Any = connect(close_timeout_s=0.1)
    session = connection.create_session()
    creating = Calling(session.create_temporary_queue)
    until(lambda: "base" in connection._bases and connection._bases["base"].gate.is_awaited)
    Calling((session if what == "session" else connection).close).outcome()
    with pytest.raises(JMSError, match=f"The {what} was closed, and the broker did not answer") as raised:
        creating.outcome()
    assert raised.value.code == "TIMEOUT"
