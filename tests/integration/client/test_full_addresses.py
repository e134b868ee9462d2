"""Addresses with limits: producers that have to wait can be closed; what fails too often is a dead letter."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from legato.cli.management import request
from legato.client import (
    Connection,
    ConnectionFactory,
    JMSError,
    Message,
    ResourceAllocationError,
    TextMessage,
    TransactionRolledBackError,
)
from tests.integration.client.calling import Calling, until_blocked
from tests.integration.client.helpers import WAIT_S, drain, receive, texts
from tests.support.broker import BrokerPair, broker_pair

CONFIGURATION = """
[[address]]
match = "block.#"
max_messages = 2
when_full = "block"
[[address]]
match = "fail.#"
max_messages = 2
when_full = "fail"
[[address]]
match = "poison.#"
maximum_deliveries = 2
"""


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerPair]:
    """Brokers with small addresses."""
    directory: Path = tmp_path_factory.mktemp("limited")
    configuration = directory / "legato.toml"
    configuration.write_text(CONFIGURATION)
    with broker_pair(directory, "--config", str(configuration)) as pair:
        yield pair


@pytest.fixture
def limited_connection(
    limited: BrokerPair, factory: Callable[..., ConnectionFactory]
) -> Iterator[Callable[..., Connection]]:
    """Makes started connections, closed at the end."""
    made: list[Connection] = []

    def make(**options: Any) -> Connection:
        connection = factory(limited.url, **options).create_connection()
        connection.start()
        made.append(connection)
        return connection

    yield make
    for connection in made:
        connection.close()


Limited = Callable[..., Connection]


def fill(connection: Connection, name: str) -> Any:
    session = connection.create_session()
    queue = session.create_queue(name)
    with session.create_producer(queue) as producer:
        for number in range(2):
            producer.send(TextMessage(str(number)))
    return queue


@pytest.mark.parametrize("what", ["session", "connection"])
def test_a_send_that_waits_for_room_ends_when_its_session_is_closed(
    limited_connection: Limited, queue_name: str, what: str
) -> None:
    other = limited_connection()
    queue = fill(other, f"block.{queue_name}")
    connection = limited_connection(close_timeout_s=0.2)
    session = connection.create_session()
    producer = session.create_producer(queue)
    errors: list[JMSError] = []

    def send() -> None:
        try:
            producer.send(TextMessage("too many"))
        except JMSError as error:
            errors.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    while not producer._route.end.outgoing.waiting:  # type: ignore[union-attr]
        thread.join(0.001)
    (session if what == "session" else connection).close()
    thread.join(WAIT_S)
    assert [error.code for error in errors] == ["TIMEOUT"]
    consumer = other.create_session().create_consumer(queue)
    assert texts(receive(consumer, 2)) == ["0", "1"]
    assert consumer.receive_no_wait() is None


def test_a_transaction_does_not_commit_without_what_waited_for_room_in_a_queue_that_is_gone(
    limited: BrokerPair, limited_connection: Limited, queue_name: str
) -> None:
    """CONTRACT A3: all of it or nothing, also when the broker never saw one of its messages."""
    connection = limited_connection()
    full = fill(connection, f"block.{queue_name}")
    session = connection.create_session(transacted=True)
    session.create_producer(session.create_queue(queue_name)).send(TextMessage("with it"))
    blocked = session.create_producer(full)
    blocked.send(TextMessage("too many"))
    assert blocked._route.end.outgoing.waiting  # type: ignore[union-attr]
    request(limited.url, "DELETE", "queue", f"block.{queue_name}")
    with pytest.raises(TransactionRolledBackError):
        session.commit()
    assert drain(connection, queue_name) == []


def test_a_commit_that_waits_for_room_ends_when_the_queue_is_gone(
    limited: BrokerPair, limited_connection: Limited, queue_name: str
) -> None:
    """CONTRACT A3; it waited for ever: nobody told the coordinator's link that what it waited for would not go out."""
    connection = limited_connection()
    full = fill(connection, f"block.{queue_name}")
    session = connection.create_session(transacted=True)
    with_it = session.create_producer(session.create_queue(queue_name))
    with_it.send(TextMessage("with it"))
    session.create_producer(full).send(TextMessage("too many"))
    committing = Calling(session.commit)
    until_blocked(session)
    request(limited.url, "DELETE", "queue", f"block.{queue_name}")
    with pytest.raises(TransactionRolledBackError, match="was deleted"):
        committing.outcome()
    with_it.send(TextMessage("after it"))
    session.commit()
    assert drain(connection, queue_name) == ["after it"]


def test_a_commit_waits_for_room_also_behind_what_a_failover_rolled_back(
    limited: BrokerPair, limited_connection: Limited, queue_name: str
) -> None:
    """CONTRACT A3; it committed at once, without the message that waited behind one of the transaction before."""
    connection = limited_connection()
    full = fill(connection, f"block.{queue_name}")
    session = connection.create_session(transacted=True)
    producer = session.create_producer(full)
    producer.send(TextMessage("rolled back"))
    limited.fail_over()
    with pytest.raises(TransactionRolledBackError):
        session.commit()
    producer.send(TextMessage("committed"))
    committing = Calling(session.commit)
    until_blocked(session)
    consumer = limited_connection().create_session().create_consumer(full)
    assert texts(receive(consumer, 3)) == ["0", "1", "committed"]
    committing.outcome()


def test_completion_listeners_hear_of_what_was_given_up(limited_connection: Limited, queue_name: str) -> None:
    other = limited_connection()
    queue = fill(other, f"block.{queue_name}")
    connection = limited_connection(close_timeout_s=0.2)
    session = connection.create_session()
    producer = session.create_producer(queue)
    heard: list[object] = []
    for _ in range(3):
        producer.send(TextMessage("x"), completion_listener=lambda message, error: heard.append(error and error.code))
    with pytest.raises(
        JMSError, match="has not confirmed 3 sent messages, which may be lost: it did not answer within"
    ):
        session.close()
    assert heard == ["TIMEOUT"] * 3


def test_closing_a_producer_does_not_wait_for_ever_for_room(limited_connection: Limited, queue_name: str) -> None:
    """It did, whatever `close_timeout_s` said."""
    other = limited_connection()
    queue = fill(other, f"block.{queue_name}")
    connection = limited_connection(close_timeout_s=0.2)
    session = connection.create_session()
    producer = session.create_producer(queue)
    producer.send(TextMessage("x"), completion_listener=lambda message, error: None)
    with pytest.raises(JMSError, match="The producer is closed, but the broker has not confirmed 1 sent message"):
        Calling(producer.close).outcome()
    session.close()


def test_a_send_that_waits_goes_on_when_there_is_room(limited_connection: Limited, queue_name: str) -> None:
    connection = limited_connection()
    queue = fill(connection, f"block.{queue_name}")
    producer = connection.create_session().create_producer(queue)
    thread = threading.Thread(target=lambda: producer.send(TextMessage("2")))
    thread.start()
    consumer = limited_connection().create_session().create_consumer(queue)
    assert texts(receive(consumer, 3)) == ["0", "1", "2"]
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_rolling_back_does_not_wait_for_room(limited_connection: Limited, queue_name: str) -> None:
    connection = limited_connection()
    queue = fill(connection, f"block.{queue_name}")
    session = connection.create_session(transacted=True)
    producer = session.create_producer(queue)
    for _ in range(5):
        producer.send(TextMessage("gone"))
    session.rollback()
    consumer = connection.create_session().create_consumer(queue)
    assert texts(receive(consumer, 2)) == ["0", "1"]
    assert consumer.receive_no_wait() is None
    producer.send(TextMessage("kept"))
    session.commit()
    assert texts(receive(consumer, 1)) == ["kept"]


def test_an_address_that_refuses_says_so(limited_connection: Limited, queue_name: str) -> None:
    connection = limited_connection()
    queue = fill(connection, f"fail.{queue_name}")
    with pytest.raises(ResourceAllocationError):
        connection.create_session().create_producer(queue).send(TextMessage("too many"))


def test_a_dead_letter_tells_what_the_listener_raised(limited_connection: Limited, queue_name: str) -> None:
    connection = limited_connection(listener_error="redeliver")
    session = connection.create_session()
    queue = session.create_queue(f"poison.{queue_name}")

    def listener(message: Message) -> None:
        raise ValueError("the tea is cold")

    session.create_consumer(queue).message_listener = listener
    other = limited_connection().create_session()
    other.create_producer(queue).send(TextMessage("tea"))
    (dead,) = receive(other.create_consumer(other.create_queue(f"DLQ.{queue.name}")), 1)
    assert dead.body == "tea"
    assert dead.properties["JMS_LEGATO_CAUSE"] == "maximum deliveries"
    assert "ValueError: the tea is cold" in str(dead.properties["JMS_LEGATO_EXCEPTION"])
