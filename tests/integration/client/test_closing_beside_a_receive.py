"""A session is closed while one thread receives, and a message waits for a listener."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from legato.client import Connection, Queue, TextMessage
from tests.integration.client.calling import Calling, until, until_blocked

Connect = Callable[..., Connection]


def test_a_receive_returns_none_though_a_listener_waits_for_its_end(connect: Connect, queue_name: str) -> None:
    """CONTRACT A22; the dispatcher waited for the receive, the close for the dispatcher, and the receive for nobody."""
    connection = connect(close_timeout_s=4)
    session = connection.create_session()
    listening = session.create_consumer(Queue(queue_name))
    receiving = session.create_consumer(Queue(f"{queue_name}.other"))
    listening.message_listener = lambda message: None
    calling = Calling(receiving.receive)
    until_blocked(session)
    until(lambda: session._guard.blocked)
    connection.create_session().create_producer(Queue(queue_name)).send(TextMessage("tea"))
    until(lambda: listening._inbox)
    time.sleep(0.2)
    began = time.monotonic()
    session.close()
    took_s = time.monotonic() - began
    assert calling.outcome() is None
    assert took_s < 3


def test_a_connection_stops_though_a_listener_waits_for_the_end_of_a_receive(connect: Connect, queue_name: str) -> None:
    """The receive waits for `start()`, and `stop()` waited for it."""
    connection = connect()
    session = connection.create_session()
    listening = session.create_consumer(Queue(queue_name))
    receiving = session.create_consumer(Queue(f"{queue_name}.other"))
    got = threading.Event()
    listening.message_listener = lambda message: got.set()
    calling = Calling(receiving.receive)
    until(lambda: session._guard.blocked)
    producer = connection.create_session().create_producer(Queue(queue_name))
    producer.send(TextMessage("tea"))
    until(lambda: listening._inbox)
    time.sleep(0.2)
    stopping = Calling(connection.stop)
    stopping.join(5)
    assert not stopping.is_alive(), "stop() hangs"
    assert not got.is_set()
    connection.start()
    connection.create_session().create_producer(Queue(f"{queue_name}.other")).send(TextMessage("milk"))
    assert calling.outcome().body == "milk"
    assert got.wait(5)
