"""The network fails, the broker lives: to it the old connection still looks alive when the client comes back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from legato.client import AcknowledgeMode, Connection, ConnectionFactory, TextMessage, TransactionRolledBackError
from tests.integration.client.helpers import WAIT_S, receive, texts
from tests.support.broker import BrokerPair
from tests.support.proxy import Proxy

Connect = Callable[..., Connection]


@pytest.fixture
def proxy(calm_pair: BrokerPair) -> Iterator[Proxy]:
    """Between a client and the broker that serves."""
    made = Proxy(calm_pair.primary.port)
    yield made
    made.close()


@pytest.fixture
def through(proxy: Proxy, factory: Callable[..., ConnectionFactory]) -> Iterator[Callable[..., Connection]]:
    """Makes started connections through the proxy; `cut_and_wait` breaks them and waits until they are back."""
    made: list[Connection] = []

    def make(**options: Any) -> Connection:
        connection = factory(f"amqp://127.0.0.1:{proxy.port}", **options).create_connection()
        made.append(connection)
        connection.start()
        return connection

    yield make
    for connection in made:
        connection.close()


def cut_and_wait(proxy: Proxy, connection: Connection) -> None:
    back = threading.Event()
    connection.failover_listener = lambda event: back.set()
    proxy.cut()
    assert back.wait(WAIT_S)


def test_a_client_with_an_id_takes_the_place_of_its_old_connection(
    through: Connect, connect: Connect, proxy: Proxy, client_id: str, topic_name: str
) -> None:
    connection = through(client_id=client_id)
    session = connection.create_session()
    topic = session.create_topic(topic_name)
    consumers = [
        session.create_consumer(topic),
        session.create_durable_consumer(topic, "d"),
        session.create_shared_consumer(topic, "s"),
        session.create_shared_durable_consumer(topic, "sd"),
    ]
    producer = connect().create_session().create_producer(topic)
    producer.send(TextMessage("1"))
    producer.send(TextMessage("2"))
    for consumer in consumers:
        assert texts(receive(consumer, 1)) == ["1"]
    cut_and_wait(proxy, connection)
    producer.send(TextMessage("3"))
    for consumer in consumers:
        assert texts(receive(consumer, 2)) == ["2", "3"]


def test_a_temporary_queue_waits_for_its_client(through: Connect, connect: Connect, proxy: Proxy) -> None:
    connection = through()
    session = connection.create_session()
    queue = session.create_temporary_queue()
    name = queue.name
    producer = connect().create_session().create_producer(queue)
    producer.send(TextMessage("1"))
    cut_and_wait(proxy, connection)
    producer.send(TextMessage("2"))
    assert queue.name == name
    assert texts(receive(session.create_consumer(queue), 2)) == ["1", "2"]


@pytest.mark.parametrize("mode", [AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL])
def test_what_the_application_has_can_be_acknowledged_after_a_blip(
    through: Connect, connect: Connect, proxy: Proxy, queue_name: str, mode: AcknowledgeMode
) -> None:
    connection = through()
    session = connection.create_session(acknowledge_mode=mode)
    queue = session.create_queue(queue_name)
    producer = connect().create_session().create_producer(queue)
    for number in range(4):
        producer.send(TextMessage(str(number)))
    consumer = session.create_consumer(queue)
    messages = receive(consumer, 2)
    cut_and_wait(proxy, connection)
    for message in messages:
        message.acknowledge()
    assert texts(receive(consumer, 2)) == ["2", "3"]


def test_sends_in_flight_are_stored_once(through: Connect, connect: Connect, proxy: Proxy, queue_name: str) -> None:
    connection = through()
    session = connection.create_session()
    queue = session.create_queue(queue_name)
    producer = session.create_producer(queue)
    errors: list[object] = []
    for number in range(2000):
        producer.send(TextMessage(str(number)), completion_listener=lambda message, error: errors.append(error))
        if number in (500, 1500):
            proxy.cut()
    producer.flush(WAIT_S)
    assert errors == [None] * 2000
    consumer = connect().create_session().create_consumer(queue)
    assert texts(receive(consumer, 2000)) == list(map(str, range(2000)))
    assert consumer.receive_no_wait() is None


def test_a_transaction_cut_off_is_rolled_back_and_can_be_replayed(
    through: Connect, connect: Connect, proxy: Proxy, queue_name: str
) -> None:
    connection = through()
    session = connection.create_session(transacted=True)
    queue = session.create_queue(queue_name)
    producer = session.create_producer(queue)
    producer.send(TextMessage("1"))
    cut_and_wait(proxy, connection)
    with pytest.raises(TransactionRolledBackError):
        session.commit()
    assert session.replay() == 1
    session.commit()
    consumer = connect().create_session().create_consumer(queue)
    assert texts(receive(consumer, 1)) == ["1"]
    assert consumer.receive_no_wait() is None
