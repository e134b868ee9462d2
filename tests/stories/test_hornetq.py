"""What HornetQ's description of its failover modes says, told to both clients (CONTRACT E)."""

from __future__ import annotations

import queue
from collections.abc import Callable

import pytest

from legato.client import (
    AcknowledgeMode,
    Connection,
    JMSError,
    TextMessage,
    TransactionRolledBackError,
)
from legato.testing import BrokerPair
from tests.integration.client.calling import Calling, until_blocked
from tests.integration.client.helpers import WAIT_S, drain, receive, send, texts

Connect = Callable[..., Connection]
HORNETQ = {"failover_contract": "hornetq"}


def test_the_session_made_again_does_not_know_what_was_received_in_it(
    pair: BrokerPair, connect: Connect, queue_name: str
) -> None:
    """CONTRACT E10, E17: an acknowledgement of before has no effect, and what it was for comes again, flagged."""
    connection = connect(**HORNETQ)
    send(connection, queue_name, *"12")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = session.create_consumer(session.create_queue(queue_name))
    before = receive(consumer, 2)
    pair.fail_over()
    again = receive(consumer, 1)
    again += receive(consumer, 1)
    assert texts(again) == texts(before)
    assert all(message.redelivered for message in again)
    again[-1].acknowledge()
    session.close()
    assert drain(connection, queue_name) == []


def test_a_waiting_receive_is_released_and_the_session_goes_on(
    pair: BrokerPair, connect: Connect, queue_name: str
) -> None:
    """CONTRACT E11, E18: it never hangs; the exception listener is called although reconnecting succeeds."""
    connection = connect(**HORNETQ)
    told: queue.SimpleQueue[JMSError] = queue.SimpleQueue()
    connection.exception_listener = told.put
    session = connection.create_session()
    consumer = session.create_consumer(session.create_queue(queue_name))
    receiving = Calling(lambda: consumer.receive(WAIT_S))
    until_blocked(session)
    pair.fail_over()
    with pytest.raises(JMSError) as caught:
        receiving.outcome()
    assert caught.value.code == "UNBLOCKED"
    assert isinstance(told.get(timeout=WAIT_S), JMSError)
    send(connection, queue_name, "1")
    assert texts(receive(consumer, 1)) == ["1"]


@pytest.mark.parametrize(("point", "committed"), [("before-commit", False), ("between-commit-and-outcome", True)])
def test_a_commit_that_was_cut_off_raises_and_repeating_it_with_the_same_ids_is_safe(
    pair: BrokerPair, connect: Connect, queue_name: str, point: str, committed: bool
) -> None:
    """CONTRACT E12, E14, E15, E16: rolled back, says the client, who cannot know; if it was not, the ids save it."""
    connection = connect(**HORNETQ)
    session = connection.create_session(transacted=True)
    producer = session.create_producer(session.create_queue(queue_name))

    def send_all() -> None:
        for number in range(3):
            producer.send(TextMessage(str(number)), duplicate_id=f"{queue_name} {number}")

    send_all()
    with pair.failing_over_at(point), pytest.raises(TransactionRolledBackError) as caught:
        session.commit()
    assert caught.value.transaction_id is not None
    assert session.commit_outcome(caught.value.transaction_id) is committed
    with connection.create_session() as observer, observer.create_browser(observer.create_queue(queue_name)) as browser:
        assert len(list(browser)) == (3 if committed else 0)
    send_all()
    session.commit()
    assert drain(connection, queue_name) == ["0", "1", "2"]


@pytest.mark.parametrize(("point", "stored"), [("before-commit", False), ("between-commit-and-confirm", True)])
def test_a_send_that_was_cut_off_is_released_and_repeating_it_with_the_same_id_is_safe(
    pair: BrokerPair, connect: Connect, queue_name: str, point: str, stored: bool
) -> None:
    """CONTRACT E17, E11: it may be stored or lost; sent again with its duplicate id it is there once."""
    connection = connect(**HORNETQ)
    session = connection.create_session()
    producer = session.create_producer(session.create_queue(queue_name))
    producer.send(TextMessage("0"), duplicate_id=f"{queue_name} 0")
    with pair.failing_over_at(point), pytest.raises(JMSError) as caught:
        producer.send(TextMessage("1"), duplicate_id=f"{queue_name} 1")
    assert caught.value.code == "UNBLOCKED"
    with session.create_browser(session.create_queue(queue_name)) as browser:
        assert len(list(browser)) == 1 + stored
    producer.send(TextMessage("1"), duplicate_id=f"{queue_name} 1")
    assert drain(connection, queue_name) == ["0", "1"]
