"""What GigaSpaces' description of a failover says, told to both clients in the contract `gigaspaces` (CONTRACT A)."""

from __future__ import annotations

import queue
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
from tests.integration.client.helpers import WAIT_S, drain, receive, send, texts

Connect = Callable[..., Connection]


@pytest.fixture
def errors() -> queue.SimpleQueue[JMSError]:
    """What an exception listener was told."""
    return queue.SimpleQueue()


def open_session(connection: Connection, mode: AcknowledgeMode) -> Session:
    if mode is AcknowledgeMode.SESSION_TRANSACTED:
        return connection.create_session(transacted=True)
    return connection.create_session(acknowledge_mode=mode)


def test_one_failover_is_unseen_without_a_transaction_and_told_with_one(
    pair: BrokerPair, connect: Connect, queue_name: str
) -> None:
    """CONTRACT A1, A2: a transaction lives on one broker only; what is beside it, in the same connection, goes on."""
    connection = connect()
    send(connection, queue_name, *"123")
    plain, transacted = connection.create_session(), connection.create_session(transacted=True)
    consumer = plain.create_consumer(plain.create_queue(queue_name))
    producer = transacted.create_producer(transacted.create_queue(f"{queue_name}.out"))
    seen = texts(receive(consumer, 1))
    producer.send(TextMessage("lost with its broker"))
    pair.fail_over()
    seen += texts(receive(consumer, 2))
    assert seen == ["1", "2", "3"]
    with pytest.raises(TransactionRolledBackError):
        transacted.commit()
    assert drain(connection, f"{queue_name}.out") == []


@pytest.mark.parametrize(
    ("mode", "is_transaction"),
    [
        (AcknowledgeMode.AUTO, False),
        (AcknowledgeMode.DUPS_OK, False),
        (AcknowledgeMode.CLIENT, True),
        (AcknowledgeMode.SESSION_TRANSACTED, True),
    ],
)
def test_only_client_acknowledge_and_transacted_sessions_are_transactions(
    pair: BrokerPair,
    connect: Connect,
    queue_name: str,
    errors: queue.SimpleQueue[JMSError],
    mode: AcknowledgeMode,
    is_transaction: bool,
) -> None:
    """CONTRACT A6, A11, A13: of those alone a failover is told, to `receive()` and to the exception listener."""
    connection = connect(failover_contract="gigaspaces")
    connection.exception_listener = errors.put
    send(connection, queue_name, *"123")
    session = open_session(connection, mode)
    consumer = session.create_consumer(session.create_queue(queue_name))
    receive(consumer, 1)
    pair.fail_over()
    if is_transaction:
        with pytest.raises(TransactionRolledBackError):
            consumer.receive(WAIT_S)
        (again,) = receive(consumer, 1)
        assert (again.body, again.redelivered) == ("1", True)
        assert isinstance(errors.get(timeout=WAIT_S), SpaceLostError)
    else:
        receive(consumer, 1)
    assert errors.empty()


def test_a_batch_begins_anew_at_its_first_message(pair: BrokerPair, connect: Connect, queue_name: str) -> None:
    """CONTRACT A18, A7, A15, A17: five wanted, three received; the fourth call raises; the next gives the first."""
    connection = connect(failover_contract="gigaspaces")
    send(connection, queue_name, *"12345")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = session.create_consumer(session.create_queue(queue_name))
    receive(consumer, 3)
    pair.fail_over()
    with pytest.raises(TransactionRolledBackError) as caught:
        consumer.receive(WAIT_S)
    assert caught.value.linked is not None
    again = receive(consumer, 5)
    assert texts(again) == [*"12345"]
    assert [message.redelivered for message in again[:3]] == [True, True, True]
    again[-1].acknowledge()
    session.close()
    assert drain(connection, queue_name) == []


@pytest.mark.parametrize("transacted", [False, True])
def test_the_call_that_would_have_made_it_final_raises(
    pair: BrokerPair, connect: Connect, queue_name: str, transacted: bool
) -> None:
    """CONTRACT A10: `commit()` or `acknowledge()`, when it is the first call after the failover."""
    connection = connect(failover_contract="gigaspaces")
    send(connection, queue_name, *"12")
    mode = AcknowledgeMode.SESSION_TRANSACTED if transacted else AcknowledgeMode.CLIENT
    session = open_session(connection, mode)
    consumer = session.create_consumer(session.create_queue(queue_name))
    messages = receive(consumer, 2)
    pair.fail_over()
    with pytest.raises(TransactionRolledBackError):
        session.commit() if transacted else messages[-1].acknowledge()
    again = receive(consumer, 2)
    assert [(message.body, message.redelivered) for message in again] == [("1", True), ("2", True)]
    session.commit() if transacted else again[-1].acknowledge()
    session.close()
    assert drain(connection, queue_name) == []


def test_a_listener_hears_the_batch_anew_after_the_exception_listener_was_told(
    pair: BrokerPair, connect: Connect, queue_name: str
) -> None:
    """CONTRACT A19, A12, A15, A17, A21: first `SpaceLostError` with its session, then the first message, flagged."""
    connection = connect(failover_contract="gigaspaces", started=False)
    heard: queue.SimpleQueue[Message | JMSError] = queue.SimpleQueue()
    connection.exception_listener = heard.put
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    session.create_consumer(session.create_queue(queue_name)).message_listener = heard.put
    connection.start()
    send(connection, queue_name, *"123")
    first = [heard.get(timeout=WAIT_S) for _ in range(3)]
    assert [message.body for message in first if isinstance(message, Message)] == [*"123"]
    pair.fail_over()
    error = heard.get(timeout=WAIT_S)
    assert isinstance(error, SpaceLostError)
    assert getattr(error.session, "_channel", None) is session._channel
    assert error.linked is not None
    again = [heard.get(timeout=WAIT_S) for _ in range(3)]
    assert [(message.body, message.redelivered) for message in again if isinstance(message, Message)] == [
        ("1", True),
        ("2", True),
        ("3", True),
    ]


def test_an_empty_transaction_is_not_worth_a_notice(
    pair: BrokerPair, connect: Connect, queue_name: str, errors: queue.SimpleQueue[JMSError]
) -> None:
    """CONTRACT A13: nothing received since the last acknowledgement, nothing sent since the last commit."""
    connection = connect(failover_contract="gigaspaces")
    connection.exception_listener = errors.put
    send(connection, queue_name, *"12")
    client = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = client.create_consumer(client.create_queue(queue_name))
    receive(consumer, 1)[0].acknowledge()
    transacted = connection.create_session(transacted=True)
    transacted.create_producer(transacted.create_queue(f"{queue_name}.out")).send(TextMessage("kept"))
    transacted.commit()
    pair.fail_over()
    transacted.commit()
    (message,) = receive(consumer, 1)
    assert message.body == "2"
    assert drain(connection, f"{queue_name}.out") == ["kept"]
    assert errors.empty()
