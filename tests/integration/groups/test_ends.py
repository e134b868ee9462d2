"""Ends of sessions and connections that reach into another group."""

from __future__ import annotations

import threading

import pytest

from legato.client import ConnectionFactory, Queue
from legato.errors import IllegalStateError
from legato.spark.connector.requests import Requests
from tests.integration.groups.conftest import Connect, Groups

WAIT_S = 30.0


def threads_of_clients() -> set[str]:
    """The names of the threads that connections have."""
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("legato")}


def test_a_connection_takes_those_below_it_along(calm_groups: Groups) -> None:
    before = threads_of_clients()
    connection = ConnectionFactory(calm_groups.url("orders")).create_connection()
    connection.start()
    session = connection.create_session()
    consumer = session.create_consumer(Queue("rest.ends"))
    consumer.message_listener = lambda message: None
    assert len(threads_of_clients() - before) >= 3
    connection.close()
    assert threads_of_clients() == before
    with pytest.raises(IllegalStateError):
        session.create_consumer(Queue("rest.ends"))


def test_a_session_that_is_closed_ends_a_receive_from_another_group(calm_groups: Groups, connect: Connect) -> None:
    session = connect(calm_groups.url("orders")).create_session()
    consumer = session.create_consumer(Queue("rest.blocked"))
    received: list[object] = []
    begun = threading.Event()

    def receive() -> None:
        begun.set()
        received.append(consumer.receive())

    thread = threading.Thread(target=receive)
    thread.start()
    assert begun.wait(WAIT_S)
    session.close()
    thread.join(WAIT_S)
    assert received == [None]


def test_two_threads_may_not_use_a_session_in_two_groups_at_once(calm_groups: Groups, connect: Connect) -> None:
    session = connect(calm_groups.url("orders")).create_session()
    there = session.create_consumer(Queue("rest.turns"))
    here = session.create_producer(Queue("orders.turns"))
    thread = threading.Thread(target=there.receive)
    thread.start()
    while session._guard.turn.acquire(False):
        session._guard.turn.release()
    with pytest.raises(IllegalStateError, match="Another thread or task is using this session"):
        here.send("not now")
    session.close()
    thread.join(WAIT_S)


def test_stopping_a_connection_holds_messages_of_both_groups_back(calm_groups: Groups, connect: Connect) -> None:
    connection = connect(calm_groups.url("orders"))
    session = connection.create_session()
    consumer = session.create_consumer(Queue("rest.stopped"))
    connection.stop()
    session.create_producer(Queue("rest.stopped")).send("held back")
    assert consumer.receive(timeout_s=0.2) is None
    connection.start()
    assert consumer.receive_body(str, timeout_s=WAIT_S) == "held back"


def test_what_asks_management_reaches_a_group_by_its_name(calm_groups: Groups) -> None:
    """As Spark's source and sink do."""
    requests = Requests(calm_groups.url("orders", "?vhost=rest"))
    try:
        assert requests.ask("read", "broker")["group"]["name"] == "rest"
        assert requests.host == f"127.0.0.1:{calm_groups.ports['rest']}"
    finally:
        requests.close()
