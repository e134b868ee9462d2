"""The table of failover contracts, by cells: transactions, and what exception listeners are told (CONTRACT A, B, E)."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import pytest

from legato.client import (
    AcknowledgeMode,
    Connection,
    JMSError,
    Message,
    Session,
    SpaceLostError,
    TextMessage,
    TransactionRolledBackError,
)
from legato.testing import BrokerPair
from tests.integration.client.calling import until
from tests.integration.client.helpers import WAIT_S, drain, receive, send, texts

Connect = Callable[..., Connection]

ALL = ("legato", "ems", "hornetq", "gigaspaces")


@pytest.fixture
def pair(shared_pair: BrokerPair) -> BrokerPair:
    """One pair for all: each test has queues of its own."""
    return shared_pair


@pytest.fixture
def connecting(connect: Connect) -> Connect:
    """Makes connections under a failover contract, to whichever broker of the pair serves now."""
    return lambda contract, **options: connect(
        failover_contract=contract, failover_on_initial_connection=True, **options
    )


# -- transactions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("contract", ALL)
def test_a_transaction_with_work_is_rolled_back_and_replayed_in_the_same_session(
    pair: BrokerPair, connecting: Connect, queue_name: str, contract: str
) -> None:
    """CONTRACT A5, A9, A16, A21, B18, E13: commit() raises once; what it received comes again, flagged."""
    connection = connecting(contract)
    send(connection, queue_name, "1", "2")
    session = connection.create_session(transacted=True)
    consumer = session.create_consumer(session.create_queue(queue_name))
    producer = session.create_producer(session.create_queue(f"{queue_name}-out"))
    producer.send(receive(consumer, 1)[0])
    pair.fail_over()
    with pytest.raises(TransactionRolledBackError) as caught:
        session.commit()
    assert isinstance(caught.value.linked, JMSError)
    assert caught.value.transaction_id is not None
    assert drain(connection, f"{queue_name}-out") == []
    assert session.commit_outcome(caught.value.transaction_id) is False
    assert session.replay() == 1
    (again,) = receive(consumer, 1)
    assert (again.body, again.redelivered) == ("1", True)
    session.commit()
    assert drain(connection, f"{queue_name}-out") == ["1"]
    assert texts(receive(consumer, 1)) == ["2"]
    session.commit()


def test_with_gigaspaces_the_next_receive_tells_that_the_transaction_was_aborted(
    pair: BrokerPair, connecting: Connect, queue_name: str
) -> None:
    """CONTRACT A5, A11, A16: told once, like a rollback: the first message comes again, sends can be replayed."""
    connection = connecting("gigaspaces")
    send(connection, queue_name, "1", "2")
    session = connection.create_session(transacted=True)
    consumer = session.create_consumer(session.create_queue(queue_name))
    producer = session.create_producer(session.create_queue(f"{queue_name}-out"))
    producer.send(receive(consumer, 1)[0])
    pair.fail_over()
    with pytest.raises(TransactionRolledBackError):
        consumer.receive(WAIT_S)
    assert session.replay() == 1
    again = receive(consumer, 2)
    assert (again[0].body, again[0].redelivered) == ("1", True)
    session.commit()
    assert drain(connection, f"{queue_name}-out") == ["1"]
    session.close()
    assert drain(connection, queue_name) == []


def test_a_transaction_without_work_commits_under_every_contract(pair: BrokerPair, connecting: Connect) -> None:
    """CONTRACT B17, A13: and nobody hears of an abort."""
    told: list[JMSError] = []
    sessions: list[Session] = []
    connections = [connecting(contract) for contract in ALL]
    for contract, connection in zip(ALL, connections, strict=True):
        if contract != "hornetq":
            connection.exception_listener = told.append
        sessions.append(connection.create_session(transacted=True))
        connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    pair.fail_over()
    for session in sessions:
        session.commit()
    for connection in connections:
        until(lambda connection=connection: connection.failovers)  # type: ignore[misc]
    assert told == []


# -- the exception listener ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("contract", "opted", "told"),
    [
        ("legato", None, False),
        ("ems", None, False),
        ("ems", True, True),
        ("hornetq", None, True),
        ("hornetq", False, False),
        ("gigaspaces", None, False),
    ],
)
def test_the_exception_listener_is_told_of_the_switch_by_contract(
    pair: BrokerPair, connecting: Connect, contract: str, opted: bool | None, told: bool
) -> None:
    """CONTRACT A13, B5, E18: its text says to which server; the failover listener is told for all."""
    connection = connecting(contract, exception_on_failover=opted)
    errors: list[JMSError] = []
    over = threading.Event()
    connection.exception_listener = errors.append
    connection.failover_listener = lambda event: over.set()
    pair.fail_over()
    assert over.wait(WAIT_S)
    assert [error.code for error in errors] == (["FAILOVER"] if told else [])
    assert all(f"switched to {connection.failovers[0].new_host}" in str(error) for error in errors)


@pytest.mark.parametrize("transacted", [False, True], ids=["client", "transacted"])
def test_with_gigaspaces_a_listener_is_told_of_the_lost_space_and_gets_the_first_message_again(
    pair: BrokerPair, connecting: Connect, queue_name: str, transacted: bool
) -> None:
    """CONTRACT A12, A15, A16, A17, A19, A21: SpaceLostError has the session and the cause."""
    connection = connecting("gigaspaces")
    told: queue.SimpleQueue[JMSError] = queue.SimpleQueue()
    connection.exception_listener = told.put
    session = connection.create_session(transacted, AcknowledgeMode.CLIENT)
    heard: queue.SimpleQueue[tuple[str, bool]] = queue.SimpleQueue()
    consumer = session.create_consumer(session.create_queue(queue_name))
    consumer.message_listener = lambda message: heard.put((message.body, message.redelivered))
    send(connection, queue_name, "1", "2", "3")
    assert [heard.get(timeout=WAIT_S) for _ in "123"] == [("1", False), ("2", False), ("3", False)]
    pair.fail_over()
    error = told.get(timeout=WAIT_S)
    assert isinstance(error, SpaceLostError)
    assert error.session == session
    assert isinstance(error.linked, JMSError)
    assert [heard.get(timeout=WAIT_S) for _ in "123"] == [("1", True), ("2", True), ("3", True)]
    assert told.empty()


def test_with_gigaspaces_a_listener_that_is_set_after_the_failover_gets_the_first_message(
    pair: BrokerPair, connecting: Connect, queue_name: str
) -> None:
    """CONTRACT A12, A15: nobody calls receive() any more, so nothing waits for that."""
    connection = connecting("gigaspaces")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = session.create_consumer(session.create_queue(queue_name))
    send(connection, queue_name, "1")
    receive(consumer, 1)
    pair.fail_over()
    until(lambda: connection.failovers)
    heard: queue.SimpleQueue[tuple[str, bool]] = queue.SimpleQueue()
    consumer.message_listener = lambda message: heard.put((message.body, message.redelivered))
    assert heard.get(timeout=WAIT_S) == ("1", True)


def test_with_gigaspaces_and_no_exception_listener_messages_come_again_without_a_warning(
    pair: BrokerPair, connecting: Connect, queue_name: str
) -> None:
    """CONTRACT A14: and the listener can acknowledge them."""
    connection = connecting("gigaspaces")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    heard: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def listen(message: Message) -> None:
        if message.redelivered:
            message.acknowledge()
        heard.put(message.redelivered)

    send(connection, queue_name, "1")
    session.create_consumer(session.create_queue(queue_name)).message_listener = listen
    assert heard.get(timeout=WAIT_S) is False
    pair.fail_over()
    assert heard.get(timeout=WAIT_S) is True
    session.close()
    assert drain(connection, queue_name) == []


def test_only_gigaspaces_speaks_of_a_lost_space(pair: BrokerPair, connecting: Connect, queue_name: str) -> None:
    """CONTRACT A13: the others tell of an aborted transaction by commit() alone."""
    told: list[JMSError] = []
    connections = [connecting(contract) for contract in ("legato", "ems", "hornetq")]
    for connection in connections:
        connection.exception_listener = told.append
        session = connection.create_session(transacted=True)
        session.create_producer(session.create_queue(queue_name)).send(TextMessage("1"))
    pair.fail_over()
    for connection in connections:
        until(lambda connection=connection: connection.failovers)  # type: ignore[misc]
        connection.close()
    assert [type(error) for error in told] == [JMSError]
    assert told[0].code == "FAILOVER"
