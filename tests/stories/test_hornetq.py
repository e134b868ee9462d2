"""What HornetQ's description of its failover modes says, told to both clients (CONTRACT E)."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator

import pytest

from legato.client import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    FailoverEvent,
    JMSError,
)
from legato.testing import BrokerPair, Network
from tests.integration.client.helpers import WAIT_S, drain, receive, send, texts
from tests.support.broker import free_port

Connect = Callable[..., Connection]
HORNETQ = {"failover_contract": "hornetq"}


@pytest.fixture
def network(pair: BrokerPair) -> Iterator[Network]:
    """Between clients and brokers."""
    with Network(pair) as network:
        yield network


def test_after_a_network_fault_the_client_is_back_at_the_same_broker_and_nothing_happened(
    pair: BrokerPair, network: Network, factory: Callable[..., ConnectionFactory], queue_name: str
) -> None:
    """CONTRACT E1: receipts, sends and acknowledgements go on; whoever asks is told that it is the same broker."""
    events: queue.SimpleQueue[FailoverEvent] = queue.SimpleQueue()
    with factory(network.url).create_connection() as connection:
        connection.failover_listener = events.put
        connection.start()
        send(connection, queue_name, *"123")
        session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        consumer = session.create_consumer(session.create_queue(queue_name))
        messages = receive(consumer, 2)
        network.cut()
        network.heal()
        event = events.get(timeout=WAIT_S)
        assert event.same_server
        assert event.old_epoch == event.new_epoch
        send(connection, queue_name, "4")
        messages += receive(consumer, 2)
        assert texts(messages) == [*"1234"]
        assert not messages[0].redelivered
        messages[-1].acknowledge()
        session.close()
        assert drain(connection, queue_name) == []


def test_an_application_may_see_to_failover_itself(
    pair: BrokerPair, factory: Callable[..., ConnectionFactory], queue_name: str
) -> None:
    """CONTRACT E1, E6: without reconnection attempts its listener hears of the loss, and it connects anew."""
    factory_ = factory(pair.url, reconnect_attempts=0)
    lost: queue.SimpleQueue[JMSError] = queue.SimpleQueue()
    with factory_.create_connection() as connection:
        connection.exception_listener = lost.put
        connection.start()
        send(connection, queue_name, "before")
        pair.fail_over()
        assert isinstance(lost.get(timeout=WAIT_S), JMSError)
    with factory_.create_connection() as connection:
        connection.start()
        assert drain(connection, queue_name) == ["before"]


@pytest.mark.parametrize("follows", [False, True])
def test_whether_clients_follow_a_clean_shutdown_is_an_option(
    pair: BrokerPair, connect: Connect, queue_name: str, follows: bool
) -> None:
    """CONTRACT E7: by default they do not, after a crash they always do."""
    connection = connect(**HORNETQ, **({"failover_on_server_shutdown": True} if follows else {}))
    send(connection, queue_name, "before")
    pair.fail_over()
    told: queue.SimpleQueue[object] = queue.SimpleQueue()
    connection.failover_listener = told.put
    send(connection, queue_name, "after the crash")
    if not follows:
        connection.exception_listener = told.put
    pair.shut_down_primary()
    pair.restart()
    assert isinstance(told.get(timeout=WAIT_S), FailoverEvent if follows else JMSError)
    if follows:
        assert drain(connection, queue_name) == ["before", "after the crash"]
    else:
        with pytest.raises(JMSError):
            connection.create_session()


def test_a_first_connection_goes_to_the_first_host_unless_it_is_told_otherwise(
    pair: BrokerPair, factory: Callable[..., ConnectionFactory], queue_name: str
) -> None:
    """CONTRACT E8, E9: it tries that as often as it may, then fails; once connected it fails over."""
    nobody_first = f"amqp://127.0.0.1:{free_port()},127.0.0.1:{pair.primary.port},127.0.0.1:{pair.backup.port}"
    with pytest.raises(JMSError):
        factory(nobody_first, connect_attempts=3, **HORNETQ).create_connection().start()
    told = factory(nobody_first, connect_attempts=3, failover_on_initial_connection=True, **HORNETQ)
    with told.create_connection() as connection:
        connection.start()
        send(connection, queue_name, "1")
    primary_first = f"amqp://127.0.0.1:{pair.primary.port},127.0.0.1:{pair.backup.port}"
    with factory(primary_first, **HORNETQ).create_connection() as connection:
        connection.start()
        pair.fail_over()
        assert drain(connection, queue_name) == ["1"]
