"""Without a prefetch: whoever waits when the connection is started gets a message."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from legato.client import AcknowledgeMode, Connection, Queue, TextMessage
from tests.integration.client.calling import Calling, until, until_blocked

Connect = Callable[..., Connection]


def _stopped(connect: Connect, how: str) -> Connection:
    connection = connect(prefetch=0)
    connection.stop()
    return connection


@pytest.mark.parametrize("how", ["receive", "listener"])
def test_who_waits_before_the_connection_is_started_gets_a_message_afterwards(
    connect: Connect, queue_name: str, how: str
) -> None:
    connection = _stopped(connect, how)
    session = connection.create_session()
    consumer = session.create_consumer(Queue(queue_name))
    other = connection.create_session()
    other.create_producer(Queue(queue_name)).send(TextMessage("tea"))
    got = threading.Event()
    calling = None
    if how == "listener":
        consumer.message_listener = lambda message: got.set()
    else:
        calling = Calling(consumer.receive)
    until_blocked(session)
    time.sleep(0.2)
    connection.start()
    if calling is None:
        assert got.wait(5), "the listener is not called"
    else:
        calling.join(5)
        assert not calling.is_alive(), "receive() hangs"
        assert calling.outcome().body == "tea"


def test_a_listener_gets_what_came_and_was_given_back_while_the_connection_was_stopped(
    connect: Connect, queue_name: str
) -> None:
    connection = connect(prefetch=0)
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = session.create_consumer(Queue(queue_name))
    got = threading.Event()
    consumer.message_listener = lambda message: got.set()
    until_blocked(session)
    time.sleep(0.2)
    connection.stop()
    other = connection.create_session()
    other.create_producer(Queue(queue_name)).send(TextMessage("tea"))
    until(lambda: consumer._inbox)
    session.recover()
    connection.start()
    assert got.wait(5), "the listener is not called any more"
