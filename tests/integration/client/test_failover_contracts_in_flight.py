"""The table of failover contracts, by cells: calls that are cut off, at the very commit (CONTRACT A, B, E)."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from legato.client import (
    AcknowledgementOutcome,
    AcknowledgeMode,
    Connection,
    JMSError,
    Message,
    Session,
    TextMessage,
    TransactionRolledBackError,
)
from legato.testing import BrokerPair
from tests.integration.client.helpers import NOTHING_COMES_S, WAIT_S, drain, receive, send, texts

Connect = Callable[..., Connection]

ALL = ("legato", "ems", "hornetq", "gigaspaces")
RESOLVING = ("legato", "ems")
"""They tell the truth of a call that was cut off, and until then wait for it."""
BEFORE, AFTER = "between-acknowledge-and-commit", "between-acknowledged-and-confirm"
"""The kill comes before the broker has made the acknowledgement durable, or after, and before it has said so."""


@pytest.fixture
def pair(shared_pair: BrokerPair) -> BrokerPair:
    """One pair for all: each test has queues of its own."""
    return shared_pair


# -- acknowledge() -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instant", [BEFORE, AFTER])
@pytest.mark.parametrize("contract", ALL)
def test_acknowledge_in_flight(
    pair: BrokerPair, connect: Connect, queue_name: str, contract: str, instant: str
) -> None:
    """CONTRACT A10, B9, E10, E11, E17: it succeeds, or raises; what is durable does not come again, all else does."""
    connection = connect(failover_on_initial_connection=True, failover_contract=contract)
    send(connection, queue_name, "1")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = session.create_consumer(session.create_queue(queue_name))
    (message,) = receive(consumer, 1)
    with pair.failing_over_at(instant):
        if contract in RESOLVING:
            message.acknowledge()
        else:
            with pytest.raises(JMSError) as caught:
                message.acknowledge()
            assert (caught.value.code == "UNBLOCKED") is (contract == "hornetq")
            assert isinstance(caught.value, TransactionRolledBackError) is (contract == "gigaspaces")
    if contract in RESOLVING or instant == AFTER:
        assert consumer.receive(NOTHING_COMES_S) is None
    else:
        (again,) = receive(consumer, 1)
        assert (again.body, again.redelivered) == ("1", True)
        again.acknowledge()
    session.close()
    assert drain(connection, queue_name) == []


@pytest.mark.parametrize("instant", [BEFORE, AFTER])
@pytest.mark.parametrize("contract", ALL)
def test_try_acknowledge_in_flight_tells_the_truth_under_every_contract(
    pair: BrokerPair, connect: Connect, queue_name: str, contract: str, instant: str
) -> None:
    """Promise 5: it waits for the next broker."""
    connection = connect(failover_on_initial_connection=True, failover_contract=contract)
    send(connection, queue_name, "1")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    (message,) = receive(session.create_consumer(session.create_queue(queue_name)), 1)
    with pair.failing_over_at(instant):
        assert message.try_acknowledge() is AcknowledgementOutcome.ACCEPTED
    session.close()
    assert drain(connection, queue_name) == []


# -- commit() ------------------------------------------------------------------------------------------------


def commit_cut_off(pair: BrokerPair, session: Session, instant: str) -> TransactionRolledBackError | None:
    """Kill the primary in the midst of a commit; returns what `commit()` raised."""
    with pair.failing_over_at(instant):
        try:
            session.commit()
        except TransactionRolledBackError as error:
            return error
    return None


@pytest.mark.parametrize("instant", ["before-commit", "between-commit-and-outcome"])
@pytest.mark.parametrize("contract", ALL)
def test_commit_in_flight(pair: BrokerPair, connect: Connect, queue_name: str, contract: str, instant: str) -> None:
    """CONTRACT A10, E12, E13, E14; promise 2: its true outcome is returned, or to be had; nothing is replayed twice."""
    committed = instant == "between-commit-and-outcome"
    connection = connect(failover_on_initial_connection=True, failover_contract=contract)
    session = connection.create_session(transacted=True)
    producer = session.create_producer(session.create_queue(queue_name))
    producer.send(TextMessage("1"))
    error = commit_cut_off(pair, session, instant)
    assert (error is None) is (committed and contract in RESOLVING)
    if error is not None:
        assert error.transaction_id is not None
        assert error.linked is not None
        assert session.commit_outcome(error.transaction_id) is committed
        assert session.replay() == (0 if committed else 1)
    producer.send(TextMessage("2"))
    session.commit()
    assert drain(connection, queue_name) == ["1", "2"]


@pytest.mark.parametrize("contract", ["hornetq", "gigaspaces"])
def test_replay_at_once_waits_for_the_truth_and_sends_nothing_twice(
    pair: BrokerPair, connect: Connect, queue_name: str, contract: str
) -> None:
    """CONTRACT E14, E15, E16; promise 3: the application need not ask what became of its commit."""
    connection = connect(failover_on_initial_connection=True, failover_contract=contract)
    session = connection.create_session(transacted=True)
    producer = session.create_producer(session.create_queue(queue_name))
    producer.send(TextMessage("1"))
    with pair.failing_over_at("between-commit-and-outcome"):
        with pytest.raises(TransactionRolledBackError):
            session.commit()
        # The backup has not taken over yet, so nobody knows.
        session.replay()
        producer.send(TextMessage("2"))
        session.commit()
    assert drain(connection, queue_name) == ["1", "2"]


@pytest.mark.parametrize("instant", ["before-commit", "between-commit-and-outcome"])
def test_a_later_connection_can_ask_about_a_commit_that_was_left_in_doubt(
    pair: BrokerPair, connect: Connect, queue_name: str, instant: str
) -> None:
    """CONTRACT E6, E14; promise 2: also when the client does not fail over."""
    session = connect(reconnect_attempts=0).create_session(transacted=True)
    session.create_producer(session.create_queue(queue_name)).send(TextMessage("1"))
    with pair.failing_over_at(instant), pytest.raises(JMSError) as caught:
        session.commit()
    assert caught.value.code == "IN_DOUBT"
    assert caught.value.transaction_id is not None
    later = connect()
    outcome = later.create_session(transacted=True).commit_outcome(caught.value.transaction_id)
    assert outcome is (instant == "between-commit-and-outcome")
    assert drain(later, queue_name) == (["1"] if outcome else [])


def test_an_outcome_that_no_broker_knows_is_none(pair: BrokerPair, connect: Connect) -> None:
    """CONTRACT E14: an id of another store, or of long ago."""
    session = connect().create_session(transacted=True)
    assert session.commit_outcome(b"nobody's") is None
    assert session.commit_outcome((1).to_bytes(4, "big") + (1).to_bytes(8, "big")) is None


def test_what_a_transaction_received_comes_again_unless_its_commit_was_durable(
    pair: BrokerPair, connect: Connect, queue_name: str
) -> None:
    """CONTRACT A4, A17, B9, E14: with `hornetq`, where commit() raises either way."""
    connection = connect(failover_on_initial_connection=True, failover_contract="hornetq")
    send(connection, queue_name, "1", "2")
    session = connection.create_session(transacted=True)
    consumer = session.create_consumer(session.create_queue(queue_name))
    receive(consumer, 1)
    assert commit_cut_off(pair, session, "between-commit-and-outcome") is not None
    assert texts(receive(consumer, 1)) == ["2"]
    assert commit_cut_off(pair, session, "before-commit") is not None
    (again,) = receive(consumer, 1)
    assert (again.body, again.redelivered) == ("2", True)
    session.commit()


# -- send() --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instant", ["before-commit", "between-commit-and-confirm"])
@pytest.mark.parametrize("contract", ALL)
def test_send_in_flight(pair: BrokerPair, connect: Connect, queue_name: str, contract: str, instant: str) -> None:
    """CONTRACT E10, E11, E17; promise 1: it goes on and is stored once; with `hornetq` it raises, stored or not."""
    connection = connect(failover_on_initial_connection=True, failover_contract=contract)
    session = connection.create_session()
    producer = session.create_producer(session.create_queue(queue_name))
    with pair.failing_over_at(instant):
        if contract == "hornetq":
            with pytest.raises(JMSError) as caught:
                producer.send(TextMessage("1"))
            assert caught.value.code == "UNBLOCKED"
        else:
            producer.send(TextMessage("1"))
    producer.send(TextMessage("2"))
    stored = contract != "hornetq" or instant != "before-commit"
    assert drain(connection, queue_name) == (["1", "2"] if stored else ["2"])


def test_with_hornetq_the_completion_listener_hears_that_a_send_was_cut_off(
    pair: BrokerPair, connect: Connect, queue_name: str
) -> None:
    """CONTRACT E10, E11: once, and the next send works."""
    connection = connect(failover_on_initial_connection=True, failover_contract="hornetq")
    session = connection.create_session()
    producer = session.create_producer(session.create_queue(queue_name))
    heard: list[str | None] = []
    told = threading.Event()

    def completed(message: Message, error: JMSError | None) -> None:
        heard.append(None if error is None else error.code)
        told.set()

    with pair.failing_over_at("before-commit"):
        producer.send(TextMessage("1"), completion_listener=completed)
        assert told.wait(WAIT_S)
    producer.send(TextMessage("2"), completion_listener=completed)
    producer.flush()
    assert heard == ["UNBLOCKED", None]
    assert drain(connection, queue_name) == ["2"]
