"""The table of failover contracts, by cells: what `receive()`, listeners and `acknowledge()` see (CONTRACT A, B, E)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from legato import limits
from legato.client import (
    AcknowledgementOutcome,
    AcknowledgeMode,
    Connection,
    IllegalStateError,
    JMSError,
    Message,
    MessageConsumer,
    Session,
    TextMessage,
    TransactionRolledBackError,
)
from legato.testing import BrokerPair
from tests.integration.client.calling import Calling, held_back, until, until_blocked
from tests.integration.client.helpers import NOTHING_COMES_S, WAIT_S, drain, receive, send, texts

Connect = Callable[..., Connection]

ALL = ("legato", "ems", "hornetq", "gigaspaces")
AUTOMATIC = (AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK)
BY_APPLICATION = (AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL)


@pytest.fixture
def pair(shared_pair: BrokerPair) -> BrokerPair:
    """One pair for all: each test has queues of its own."""
    return shared_pair


@pytest.fixture
def connecting(connect: Connect) -> Connect:
    """Makes connections under a failover contract, to whichever broker of the pair serves now."""
    return lambda contract="legato": connect(failover_contract=contract, failover_on_initial_connection=True)


def consumer_of(session: Session, queue: str, **options: Any) -> MessageConsumer:
    """A consumer of a queue."""
    return session.create_consumer(session.create_queue(queue), **options)


def flags(messages: list[Message]) -> list[tuple[str, bool]]:
    """Bodies, and whether they are flagged as redelivered."""
    return [(message.body, message.redelivered) for message in messages]


# -- AUTO / DUPS_OK ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", AUTOMATIC)
@pytest.mark.parametrize("contract", ALL)
def test_a_blocked_receive_goes_on_and_only_with_hornetq_it_is_released(
    pair: BrokerPair, connecting: Connect, queue_name: str, contract: str, mode: AcknowledgeMode
) -> None:
    """CONTRACT A1, A20, B10, E3, E11: it never hangs, and afterwards the same consumer receives."""
    connection = connecting(contract)
    session = connection.create_session(acknowledge_mode=mode)
    consumer = consumer_of(session, queue_name)
    receiving = Calling(lambda: consumer.receive(WAIT_S))
    until_blocked(session)
    pair.fail_over()
    send(connection, queue_name, "1", "2")
    if contract == "hornetq":
        with pytest.raises(JMSError) as caught:
            receiving.outcome()
        assert caught.value.code == "UNBLOCKED"
        receiving = Calling(lambda: consumer.receive(WAIT_S))
    assert receiving.outcome().body == "1"
    assert texts(receive(consumer, 1)) == ["2"]


@pytest.mark.parametrize("contract", ALL)
def test_listeners_go_on_without_an_error(
    pair: BrokerPair, connecting: Connect, queue_name: str, contract: str
) -> None:
    """CONTRACT A1, A13, E3: of an automatic session the exception listener hears nothing of an abort."""
    connection = connecting(contract)
    errors: list[JMSError] = []
    connection.exception_listener = errors.append
    heard: list[str] = []
    enough = threading.Event()

    def listen(message: Message) -> None:
        heard.append(message.body)
        if message.body == "2":
            enough.set()

    session = connection.create_session()
    consumer_of(session, queue_name).message_listener = listen
    send(connection, queue_name, "1")
    pair.fail_over()
    send(connection, queue_name, "2")
    assert enough.wait(WAIT_S)
    assert heard == ["1", "2"]
    assert [error.code for error in errors] == (["FAILOVER"] if contract == "hornetq" else [])


# -- CLIENT_ACKNOWLEDGE: unacknowledged messages -------------------------------------------------------------


@pytest.mark.parametrize("mode", BY_APPLICATION)
def test_with_legato_a_session_keeps_what_it_did_not_acknowledge(
    pair: BrokerPair, connecting: Connect, queue_name: str, mode: AcknowledgeMode
) -> None:
    """CONTRACT A7 in the `legato` contract: the next message is the next one, and acknowledge() succeeds."""
    connection = connecting("legato")
    send(connection, queue_name, *"12345")
    session = connection.create_session(acknowledge_mode=mode)
    consumer = consumer_of(session, queue_name)
    messages = receive(consumer, 3)
    pair.fail_over()
    messages += receive(consumer, 1)
    assert texts(messages) == ["1", "2", "3", "4"]
    for message in messages:
        message.acknowledge()
    session.close()
    assert drain(connection, queue_name) == ["5"]


@pytest.mark.parametrize("mode", BY_APPLICATION)
@pytest.mark.parametrize("contract", ["ems", "hornetq", "gigaspaces"])
def test_with_the_others_the_first_unacknowledged_message_comes_next_and_is_flagged(
    pair: BrokerPair, connecting: Connect, queue_name: str, contract: str, mode: AcknowledgeMode
) -> None:
    """CONTRACT A7, A11, A15, A17, A18, B7, B16: with `gigaspaces` the fourth receive() raises before."""
    connection = connecting(contract)
    send(connection, queue_name, *"12345")
    session = connection.create_session(acknowledge_mode=mode)
    consumer = consumer_of(session, queue_name)
    assert flags(receive(consumer, 3)) == [("1", False), ("2", False), ("3", False)]
    pair.fail_over()
    if contract == "gigaspaces":
        with pytest.raises(TransactionRolledBackError) as caught:
            consumer.receive(WAIT_S)
        assert isinstance(caught.value.linked, JMSError)
    again = receive(consumer, 5)
    assert flags(again)[:3] == [("1", True), ("2", True), ("3", True)]
    assert texts(again)[3:] == ["4", "5"]
    assert [message.delivery_count for message in again[:3]] == [2, 2, 2]
    for message in again:
        message.acknowledge()
    session.close()
    assert drain(connection, queue_name) == []


@pytest.mark.parametrize("contract", ["ems", "hornetq", "gigaspaces"])
def test_a_blocked_receive_is_told_of_the_unacknowledged_messages_by_contract(
    pair: BrokerPair, connecting: Connect, queue_name: str, contract: str
) -> None:
    """CONTRACT A11, E11: the receive() that was blocked when the primary died."""
    connection = connecting(contract)
    send(connection, queue_name, "1")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = consumer_of(session, queue_name)
    receive(consumer, 1)
    receiving = Calling(lambda: consumer.receive(WAIT_S))
    until_blocked(session)
    pair.fail_over()
    if contract == "hornetq":
        with pytest.raises(JMSError) as caught:
            receiving.outcome()
        assert caught.value.code == "UNBLOCKED"
    if contract == "gigaspaces":
        with pytest.raises(TransactionRolledBackError):
            receiving.outcome()
    messages = [receiving.outcome()] if contract == "ems" else receive(consumer, 1)
    assert flags(messages) == [("1", True)]


def test_after_a_message_came_again_only_what_came_again_is_acknowledged(
    pair: BrokerPair, connecting: Connect, queue_name: str
) -> None:
    """CONTRACT A15: the application starts over, so what it has not got again stays in the queue."""
    connection = connecting("ems")
    send(connection, queue_name, *"123")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = consumer_of(session, queue_name)
    receive(consumer, 3)
    pair.fail_over()
    (first,) = receive(consumer, 1)
    first.acknowledge()
    pair.fail_over()
    again = receive(consumer, 2)
    assert flags(again) == [("2", True), ("3", True)]
    assert [(message.delivery_count, message.properties["JMSXDeliveryCount"]) for message in again] == [(2, 2), (2, 2)]


def test_a_large_message_comes_again_whole(pair: BrokerPair, connecting: Connect, queue_name: str) -> None:
    """CONTRACT A15: it came without its body, as if the application had that still (simulator, seed 2019468)."""
    connection = connecting("ems")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = consumer_of(session, queue_name)
    large = "large " * limits.LARGE_MESSAGE_BYTES
    send(connection, queue_name, large, "small")
    assert [len(text) for text in texts(receive(consumer, 2))] == [len(large), 5]
    pair.fail_over()
    again = receive(consumer, 2)
    assert [(message.body == large, message.redelivered) for message in again] == [(True, True), (False, True)]
    again[-1].acknowledge()


def test_after_a_message_came_again_what_went_elsewhere_is_not_acknowledged(
    pair: BrokerPair, connecting: Connect, queue_name: str
) -> None:
    """CONTRACT A15, B12, B13: an acknowledgement of what came again is not late because of what did not."""
    connection = connecting("ems")
    send(connection, queue_name, *"12")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = consumer_of(session, queue_name, prefetch=1)
    receive(consumer, 2)
    with held_back(connection):
        pair.fail_over()
        steal_one(connecting, queue_name)
    (again,) = receive(consumer, 1)
    assert flags([again]) == [("2", True)]
    again.acknowledge()
    session.close()
    assert drain(connection, queue_name) == []


def test_what_went_elsewhere_and_came_back_is_acknowledged_with_the_rest(
    pair: BrokerPair, connecting: Connect, queue_name: str
) -> None:
    """CONTRACT B12, promise 5: nobody else has it by then, and no error says so."""
    connection = connecting()
    send(connection, queue_name, *"12")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = consumer_of(session, queue_name)
    receive(consumer, 2)
    with held_back(connection):
        pair.fail_over()
        other = connecting().create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        receive(consumer_of(other, queue_name, prefetch=0), 1)
    send(connection, queue_name, "3")
    assert flags(receive(consumer, 1)) == [("3", False)]
    other.close()
    (again,) = receive(consumer, 1)
    assert flags([again]) == [("1", True)]
    again.acknowledge()
    session.close()
    assert drain(connection, queue_name) == []


# -- acknowledge() afterwards --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", BY_APPLICATION)
@pytest.mark.parametrize("contract", ["legato", "ems", "hornetq"])
def test_a_message_from_before_the_failover_can_be_acknowledged_after_it(
    pair: BrokerPair, connecting: Connect, queue_name: str, contract: str, mode: AcknowledgeMode
) -> None:
    """CONTRACT B13, B14: with one receiver it never fails, and what is acknowledged does not come again (B9)."""
    connection = connecting(contract)
    send(connection, queue_name, *"123")
    session = connection.create_session(acknowledge_mode=mode)
    consumer = consumer_of(session, queue_name)
    messages = receive(consumer, 2)
    pair.fail_over()
    for message in messages:
        message.acknowledge()
    assert texts(receive(consumer, 1)) == ["3"]
    assert consumer.receive(NOTHING_COMES_S) is None


@pytest.mark.parametrize("contract", ["legato", "ems", "hornetq"])
def test_the_last_message_can_be_acknowledged_before_those_that_come_again_and_fill_the_prefetch(
    pair: BrokerPair, connecting: Connect, queue_name: str, contract: str
) -> None:
    """CONTRACT B13, E3: an acknowledgement waits for nothing that the application would have to receive first."""
    connection = connecting(contract)
    send(connection, queue_name, *"123")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.INDIVIDUAL)
    messages = receive(consumer_of(session, queue_name, prefetch=1), 3)
    pair.fail_over()
    for message in reversed(messages):
        Calling(message.acknowledge).outcome()
    session.close()
    assert drain(connection, queue_name) == []


def test_with_gigaspaces_acknowledge_after_a_failover_raises_and_the_messages_come_again(
    pair: BrokerPair, connecting: Connect, queue_name: str
) -> None:
    """CONTRACT A6, A7, A10: told once."""
    connection = connecting("gigaspaces")
    send(connection, queue_name, *"12")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = consumer_of(session, queue_name)
    messages = receive(consumer, 2)
    pair.fail_over()
    with pytest.raises(TransactionRolledBackError):
        messages[1].acknowledge()
    again = receive(consumer, 2)
    assert flags(again) == [("1", True), ("2", True)]
    again[0].acknowledge()
    session.close()
    assert drain(connection, queue_name) == []


@pytest.mark.parametrize(
    ("contract", "late"),
    [
        ("legato", IllegalStateError),
        ("ems", IllegalStateError),
        ("hornetq", None),
        ("gigaspaces", TransactionRolledBackError),
    ],
)
def test_acknowledge_of_what_went_elsewhere_raises_by_contract(
    pair: BrokerPair, connecting: Connect, queue_name: str, contract: str, late: type[JMSError] | None
) -> None:
    """CONTRACT A10, B11, B12, B13, B15, E17: recover() goes on."""
    connection = connecting(contract)
    send(connection, queue_name, *"12")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = consumer_of(session, queue_name, prefetch=1)
    messages = receive(consumer, 2)
    with held_back(connection):
        pair.fail_over()
        steal_one(connecting, queue_name)
    until(lambda: connection.failovers)
    if late is None:
        messages[1].acknowledge()
    else:
        with pytest.raises(late):
            messages[1].acknowledge()
    session.recover()
    send(connection, queue_name, "3")
    expected = [("2", True), ("3", False)] if contract == "gigaspaces" else [("3", False)]
    assert flags(receive(consumer, len(expected))) == expected


def test_typed_outcomes_tell_what_became_of_each_message(
    pair: BrokerPair, connecting: Connect, queue_name: str
) -> None:
    """Promise 5; CONTRACT B12: a late acknowledgement is an answer, not an error."""
    connection = connecting()
    send(connection, queue_name, *"123")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = consumer_of(session, queue_name, prefetch=1)
    messages = receive(consumer, 3)
    ids = [str(message.message_id) for message in messages]
    with held_back(connection):
        pair.fail_over()
        steal_one(connecting, queue_name)
    outcomes = session.acknowledge_all()
    elsewhere, accepted = AcknowledgementOutcome.WENT_ELSEWHERE, AcknowledgementOutcome.ACCEPTED
    assert outcomes == {ids[0]: elsewhere, ids[1]: accepted, ids[2]: accepted}
    assert messages[0].try_acknowledge() is elsewhere
    assert messages[1].try_acknowledge() is AcknowledgementOutcome.ALREADY_ACKNOWLEDGED
    assert session.acknowledge_all() == {}


@pytest.mark.parametrize("contract", ALL)
def test_typed_acknowledgement_succeeds_under_every_contract(
    pair: BrokerPair, connecting: Connect, queue_name: str, contract: str
) -> None:
    """Promise 5: one receiver can acknowledge after a failover what it had before."""
    connection = connecting(contract)
    send(connection, queue_name, *"123")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.INDIVIDUAL)
    consumer = consumer_of(session, queue_name)
    messages = receive(consumer, 3)
    pair.fail_over()
    assert messages[1].try_acknowledge() is AcknowledgementOutcome.ACCEPTED
    assert list(session.acknowledge_all().values()) == [AcknowledgementOutcome.ACCEPTED] * 2
    session.close()
    assert drain(connection, queue_name) == []


def steal_one(connecting: Connect, queue: str) -> None:
    """Another client receives and acknowledges the first message of the queue."""
    other = connecting().create_session()
    (stolen,) = receive(consumer_of(other, queue, prefetch=1), 1)
    assert flags([stolen]) == [("1", True)]
    other.close()


def test_sends_of_a_client_acknowledge_session_stay_under_every_contract(pair: BrokerPair, connecting: Connect) -> None:
    """CONTRACT A8: they are outside any transaction."""
    connections = {contract: connecting(contract) for contract in ALL}
    for contract, connection in connections.items():
        send(connection, f"in-{contract}", "1")
        session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        receive(consumer_of(session, f"in-{contract}"), 1)
        session.create_producer(session.create_queue(f"out-{contract}")).send(TextMessage("kept"))
    pair.fail_over()
    for contract, connection in connections.items():
        assert drain(connection, f"out-{contract}") == ["kept"]
