"""Ends of sessions and connections that reach into another group."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from legato.client import ConnectionFactory, Queue
from legato.errors import IllegalStateError, JMSError
from legato.spark.connector.requests import Requests
from tests.attacks.ground import listening
from tests.attacks.secrets import _offer_plain
from tests.integration.groups.conftest import Connect, Groups
from tests.support.server import server

WAIT_S = 60.0


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


def test_a_broker_says_where_addresses_are_and_refuses_what_is_no_list(calm_groups: Groups) -> None:
    requests = Requests(calm_groups.url("orders"))
    try:
        asked = json.dumps(["orders.a", "rest.a", "DLQ.rest.a", "$status"])
        assert requests.ask("read", "group", addresses=asked) == {
            "name": "orders",
            "groups": ["orders", "rest"],
            "elsewhere": {"rest.a": "rest", "DLQ.rest.a": "rest"},
        }
        assert requests.ask("read", "group")["elsewhere"] == {}
        for bad in ("[", "{}", "[1]", "[" * 100_000, json.dumps(["a"] * 1001)):
            with pytest.raises(JMSError, match="addresses is a JSON list of texts, at most 1000"):
                requests.ask("read", "group", addresses=bad)
    finally:
        requests.close()


def test_a_host_that_only_a_broker_named_does_not_hear_the_password(tmp_path: Path) -> None:
    """It offers nothing but PLAIN, in the clear; the user has named the other host."""
    made = Groups(tmp_path)
    words: list[bytes] = []
    with listening() as other:
        threading.Thread(target=_offer_plain, args=(other, words), daemon=True).start()
        made.ports["rest"] = other.getsockname()[1]
        made.write_map({"rest.#": "rest", "orders.#": "orders"})
        file = made.configuration("orders", '[auth]\nusers = { ann = "topsecret" }\n')
        file.chmod(0o600)
        with server(tmp_path / "orders", "--config", str(file), port=made.ports["orders"]):
            url = f"amqp://ann:topsecret@127.0.0.1:{made.ports['orders']}?connect_attempts=1"
            with ConnectionFactory(url).create_connection() as connection:
                session = connection.create_session()
                with pytest.raises(JMSError, match="was named by another broker"):
                    session.create_producer(Queue("rest.secret"))
                # What is at home goes on.
                session.create_producer(Queue("orders.open")).send("here")
    assert words
    assert not any(b"topsecret" in word for word in words)
