"""Transacted sessions against a broker that stays alive (CONTRACT A3, A4, B17)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from legato.client import Connection, IllegalStateError, TextMessage, TransactionRolledBackError
from tests.integration.client.calling import drop
from tests.integration.client.helpers import NOTHING_COMES_S, drain, receive, send, texts

Connect = Callable[..., Connection]


def test_sends_are_visible_and_receives_final_only_after_commit(connect: Connect, queue_name: str) -> None:
    """CONTRACT A3, A9."""
    connection = connect()
    out = f"{queue_name}.out"
    send(connection, queue_name, "1")
    session = connection.create_session(transacted=True)
    consumer = session.create_consumer(session.create_queue(queue_name))
    producer = session.create_producer(session.create_queue(out))
    producer.send(receive(consumer, 1)[0])
    assert drain(connection, out) == []
    session.commit()
    assert drain(connection, out) == ["1"]
    session.close()
    assert drain(connection, queue_name) == []


def test_rollback_discards_sends_and_brings_receives_again_in_order(connect: Connect, queue_name: str) -> None:
    """CONTRACT A4."""
    connection = connect()
    send(connection, queue_name, *"12345")
    session = connection.create_session(transacted=True)
    consumer = session.create_consumer(session.create_queue(queue_name))
    producer = session.create_producer(session.create_queue(f"{queue_name}.out"))
    for message in receive(consumer, 3):
        producer.send(message)
    session.rollback()
    seen = [(message.body, message.redelivered, message.delivery_count) for message in receive(consumer, 5)]
    assert seen == [("1", True, 2), ("2", True, 2), ("3", True, 2), ("4", False, 1), ("5", False, 1)]
    session.commit()
    assert drain(connection, f"{queue_name}.out") == []
    session.close()
    assert drain(connection, queue_name) == []


def test_a_commit_consumes_buries_and_gives_back_what_it_is_told_to_in_one_step(
    connect: Connect, queue_name: str
) -> None:
    """CONTRACT D21, AMQP 4.4.2."""
    connection = connect()
    send(connection, queue_name, *"1234")
    session = connection.create_session(transacted=True)
    consumer = session.create_consumer(session.create_queue(queue_name))
    first, second, third, fourth = receive(consumer, 4)
    session.reject(second, "never works", {"legato_attempts": 7, "legato_host": "ann's"})
    session.give_back(third)
    session.give_back(fourth, failed=True, why="not today")
    session.create_producer(session.create_queue(f"{queue_name}.out")).send(first)
    session.commit()
    with pytest.raises(IllegalStateError):
        session.reject(second, "again")
    again = [(message.body, message.delivery_count) for message in receive(consumer, 2)]
    assert again == [("3", 1), ("4", 2)]
    session.close()
    assert drain(connection, f"{queue_name}.out") == ["1"]
    with connection.create_session() as reader:
        letter = receive(reader.create_consumer(reader.create_queue(f"DLQ.{queue_name}")), 1)[0]
    assert letter.body == "2"
    said = letter.properties
    assert (said["JMS_LEGATO_CAUSE"], said["JMS_LEGATO_EXCEPTION"]) == ("rejected", "never works")
    assert (said["JMS_LEGATO_DELIVERIES"], said["legato_attempts"], said["legato_host"]) == (1, 7, "ann's")


def test_what_was_to_be_buried_comes_again_after_a_rollback(connect: Connect, queue_name: str) -> None:
    """CONTRACT A4."""
    connection = connect()
    send(connection, queue_name, "1")
    session = connection.create_session(transacted=True)
    consumer = session.create_consumer(session.create_queue(queue_name))
    session.reject(receive(consumer, 1)[0], "never works")
    session.rollback()
    [again] = receive(consumer, 1)
    assert (again.body, again.delivery_count) == ("1", 2)
    session.commit()
    session.close()
    assert drain(connection, f"DLQ.{queue_name}") == []


def test_what_was_given_back_is_not_counted_by_a_rollback_either(connect: Connect, queue_name: str) -> None:
    """CONTRACT A4: so a transaction that has sent can be undone at no cost to what it received."""
    connection = connect()
    send(connection, queue_name, *"123")
    session = connection.create_session(transacted=True)
    consumer = session.create_consumer(session.create_queue(queue_name))
    producer = session.create_producer(session.create_queue(f"{queue_name}.out"))
    for _ in range(3):
        first, second, third = receive(consumer, 3)
        producer.send(first)
        session.give_back(first)
        session.give_back(third, failed=True)
        session.rollback()
    seen = [(message.body, message.delivery_count) for message in (first, second, third)]
    assert seen == [("1", 1), ("2", 3), ("3", 3)]
    session.close()
    assert drain(connection, f"{queue_name}.out") == []


@pytest.mark.parametrize("closed", ["its own", "another"])
def test_closing_a_consumer_does_not_count_what_was_given_back(connect: Connect, queue_name: str, closed: str) -> None:
    """CONTRACT A4: the broker had it for received in the transaction, and the rollback for failed."""
    connection = connect()
    send(connection, queue_name, "1")
    session = connection.create_session(transacted=True)
    for _ in range(3):
        consumer = session.create_consumer(session.create_queue(queue_name))
        another = session.create_consumer(session.create_queue(f"{queue_name}.other"))
        [message] = receive(consumer, 1)
        assert message.delivery_count == 1
        session.give_back(message)
        (consumer if closed == "its own" else another).close()
        session.rollback()
        consumer.close()
        another.close()
    session.close()
    assert drain(connection, queue_name) == ["1"]


def test_what_a_closed_consumer_received_is_the_transactions(connect: Connect, queue_name: str) -> None:
    """CONTRACT A3, A4: a rollback brings it again, counted once, and a commit consumes it."""
    connection = connect()
    send(connection, queue_name, *"12")
    session = connection.create_session(transacted=True)
    for end, count in ((session.rollback, 1), (session.commit, 2)):
        consumer = session.create_consumer(session.create_queue(queue_name))
        seen = [(message.body, message.delivery_count) for message in receive(consumer, 2)]
        assert seen == [("1", count), ("2", count)]
        consumer.close()
        end()
    session.close()
    assert drain(connection, queue_name) == []


def test_a_message_is_decided_until_its_own_consumer_is_closed(connect: Connect, queue_name: str) -> None:
    """AMQP 4.4.2: closing another one decided about it too, and what was rejected after that was consumed."""
    connection = connect()
    send(connection, queue_name, *"123")
    session = connection.create_session(transacted=True)
    consumer = session.create_consumer(session.create_queue(queue_name))
    another = session.create_consumer(session.create_queue(f"{queue_name}.other"))
    first, second, third = receive(consumer, 3)
    session.reject(first, "before")
    another.close()
    session.reject(second, "after another one")
    session.give_back(third)
    consumer.close()
    for message in (first, second, third):
        with pytest.raises(IllegalStateError, match="its consumer is closed"):
            session.reject(message, "after its own")
    session.commit()
    session.close()
    assert drain(connection, f"DLQ.{queue_name}") == ["1", "2"]
    assert drain(connection, queue_name) == ["3"]


def test_what_was_given_back_is_not_counted_in_a_doomed_transaction(connect: Connect, queue_name: str) -> None:
    """CONTRACT A4, B18."""
    connection = connect()
    send(connection, queue_name, "1")
    session = connection.create_session(transacted=True)
    consumer = session.create_consumer(session.create_queue(queue_name))
    receive(consumer, 1)
    drop(connection)
    [message] = receive(consumer, 1)
    assert session.transaction_doomed
    session.give_back(message)
    with pytest.raises(TransactionRolledBackError):
        session.commit()
    [again] = receive(consumer, 1)
    assert again.delivery_count == message.delivery_count
    session.commit()


def test_many_transactions_follow_each_other_in_a_session(connect: Connect, queue_name: str) -> None:
    connection = connect()
    expected = [str(number) for number in range(300)]
    session = connection.create_session(transacted=True)
    producer = session.create_producer(session.create_queue(queue_name))
    for begin in range(0, 300, 3):
        for text in expected[begin : begin + 3]:
            producer.send(TextMessage(text))
        session.commit()
    assert drain(connection, queue_name) == expected


def test_a_transaction_may_send_more_than_a_producers_credit(connect: Connect, queue_name: str) -> None:
    connection = connect(send_window=500)
    session = connection.create_session(transacted=True)
    producer = session.create_producer(session.create_queue(queue_name))
    for number in range(5_000):
        producer.send(TextMessage(str(number)))
    session.commit()
    assert len(drain(connection, queue_name)) == 5_000


def test_a_commit_without_work_succeeds(connect: Connect, queue_name: str) -> None:
    """CONTRACT B17."""
    connection = connect()
    session = connection.create_session(transacted=True)
    ended: list[bytes | None] = []
    for _ in range(3):
        for end in (session.commit, session.rollback):
            end()
            assert session._transactions.current is not None
            ended.append(session._transactions.current.id)  # None until it is declared
    assert len({*ended} - {None}) <= 1, "the broker's transaction serves on"
    producer = session.create_producer(session.create_queue(queue_name))
    producer.send(TextMessage("1"))
    session.commit()
    session.commit()
    assert drain(connection, queue_name) == ["1"]


def test_closing_a_session_rolls_back(connect: Connect, queue_name: str) -> None:
    """CONTRACT A23."""
    connection = connect()
    send(connection, queue_name, *"12")
    session = connection.create_session(transacted=True)
    receive(session.create_consumer(session.create_queue(queue_name)), 1)
    session.create_producer(session.create_queue(queue_name)).send(TextMessage("3"))
    session.close()
    assert drain(connection, queue_name) == ["1", "2"]


def test_a_consumer_that_closes_before_the_commit_has_received_for_good(connect: Connect, queue_name: str) -> None:
    connection = connect()
    send(connection, queue_name, *"12")
    session = connection.create_session(transacted=True)
    with session.create_consumer(session.create_queue(queue_name)) as consumer:
        receive(consumer, 1)
    session.commit()
    session.close()
    assert drain(connection, queue_name) == ["2"]


def test_two_consumers_of_a_session_are_rolled_back_together(connect: Connect, queue_name: str) -> None:
    connection = connect()
    other = f"{queue_name}.other"
    send(connection, queue_name, *"12")
    send(connection, other, *"34")
    session = connection.create_session(transacted=True)
    first = session.create_consumer(session.create_queue(queue_name))
    second = session.create_consumer(session.create_queue(other))
    receive(first, 1)
    receive(second, 2)
    session.rollback()
    assert texts(receive(first, 2) + receive(second, 2)) == ["1", "2", "3", "4"]


def test_a_completion_listener_in_a_transaction_hears_when_the_broker_has_the_message(
    connect: Connect, queue_name: str
) -> None:
    session = connect().create_session(transacted=True)
    producer = session.create_producer(session.create_queue(queue_name))
    heard: list[object] = []
    producer.send(TextMessage("1"), completion_listener=lambda message, error: heard.append(error))
    producer.flush()
    session.rollback()
    assert heard == [None]


def test_transactions_need_a_transacted_session(connect: Connect) -> None:
    """CONTRACT A23."""
    connection = connect()
    plain = connection.create_session()
    for call in (plain.commit, plain.rollback, plain.replay):
        with pytest.raises(IllegalStateError, match="not transacted"):
            call()
    with pytest.raises(IllegalStateError, match="rollback"):
        connection.create_session(transacted=True).recover()


def test_nothing_is_replayed_without_a_rolled_back_commit(connect: Connect, queue_name: str) -> None:
    session = connect().create_session(transacted=True)
    session.create_producer(session.create_queue(queue_name)).send(TextMessage("1"))
    session.rollback()
    assert session.replay() == 0
    consumer = session.create_consumer(session.create_queue(queue_name))
    assert consumer.receive(NOTHING_COMES_S) is None
