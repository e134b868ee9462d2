"""Chapter 6: connections started and stopped, sessions, acknowledgement, transactions, browsers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from legato.client import (
    AcknowledgeMode,
    IllegalStateError,
    InvalidDestinationError,
    JMSError,
    Message,
    TextMessage,
)
from tests.conformance.jms.stories import (
    NOTHING_COMES_S,
    WAIT_S,
    Connect,
    body_of,
    nothing_comes,
    receive,
    send,
    texts,
)

# -- 6.1.4, 6.1.5: start and stop ------------------------------------------------------------------------


def test_a_new_connection_is_stopped(connect: Connect, queue_name: str) -> None:
    connection = connect(started=False)
    session = connection.create_session()
    queue = session.create_queue(queue_name)
    send(connection, queue, "1")
    consumer = session.create_consumer(queue)
    assert consumer.receive(NOTHING_COMES_S) is None
    assert nothing_comes(consumer)
    connection.start()
    connection.start()
    assert texts(receive(consumer, 1)) == ["1"]


def test_stop_holds_messages_back_and_start_lets_them_come(connect: Connect, queue_name: str) -> None:
    connection = connect()
    session = connection.create_session()
    queue = session.create_queue(queue_name)
    consumer = session.create_consumer(queue)
    send(connection, queue, "1", "2")
    assert texts(receive(consumer, 1)) == ["1"]
    connection.stop()
    connection.stop()
    assert consumer.receive(NOTHING_COMES_S) is None
    connection.start()
    assert texts(receive(consumer, 1)) == ["2"]


def test_stop_waits_for_the_listener_that_runs(connect: Connect, queue_name: str) -> None:
    connection = connect()
    session = connection.create_session()
    queue = session.create_queue(queue_name)
    running, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def listener(message: Message) -> None:
        running.set()
        assert may_end.wait(WAIT_S)
        ended.set()

    session.create_consumer(queue).message_listener = listener
    send(connection, queue, "1")
    assert running.wait(WAIT_S)
    stopper = threading.Thread(target=connection.stop)
    stopper.start()
    stopper.join(0.05)
    assert stopper.is_alive()
    may_end.set()
    stopper.join(WAIT_S)
    assert ended.is_set()


@pytest.mark.parametrize("what", ["connection.stop", "connection.close", "session.close"])
def test_a_listener_cannot_stop_or_close_what_it_belongs_to(connect: Connect, queue_name: str, what: str) -> None:
    """6.1.5, 6.1.8, 6.2.15."""
    connection = connect()
    session = connection.create_session()
    queue = session.create_queue(queue_name)
    calls: dict[str, Callable[[], Any]] = {
        "connection.stop": connection.stop,
        "connection.close": connection.close,
        "session.close": session.close,
    }
    errors: list[Exception] = []
    heard = threading.Event()

    def listener(message: Message) -> None:
        try:
            calls[what]()
        except IllegalStateError as error:
            errors.append(error)
        heard.set()

    session.create_consumer(queue).message_listener = listener
    send(connection, queue, "1")
    assert heard.wait(WAIT_S)
    assert len(errors) == 1
    session.close()


def test_a_listener_can_close_its_consumer(connect: Connect, queue_name: str) -> None:
    """8.8."""
    connection = connect()
    session = connection.create_session()
    queue = session.create_queue(queue_name)
    consumer = session.create_consumer(queue)
    closed = threading.Event()

    def listener(message: Message) -> None:
        consumer.close()
        closed.set()

    consumer.message_listener = listener
    send(connection, queue, "1", "2")
    assert closed.wait(WAIT_S)
    session.close()
    other = connection.create_session()
    assert texts(receive(other.create_consumer(queue), 1)) == ["2"]


# -- 6.2: sessions ---------------------------------------------------------------------------------------


def test_a_session_knows_how_it_acknowledges(connect: Connect) -> None:
    """6.2.10, CONTRACT C1: a transacted session has no acknowledge mode."""
    connection = connect()
    for mode in (AcknowledgeMode.AUTO, AcknowledgeMode.CLIENT, AcknowledgeMode.DUPS_OK, AcknowledgeMode.INDIVIDUAL):
        session = connection.create_session(acknowledge_mode=mode)
        assert (session.transacted, session.acknowledge_mode) == (False, mode)
        for call in (session.commit, session.rollback):
            with pytest.raises(IllegalStateError):
                call()
    session = connection.create_session(transacted=True, acknowledge_mode=AcknowledgeMode.CLIENT)
    assert (session.transacted, session.acknowledge_mode) == (True, AcknowledgeMode.SESSION_TRANSACTED)
    with pytest.raises(IllegalStateError):
        session.recover()
    with pytest.raises(JMSError):
        connection.create_session(acknowledge_mode=42)  # type: ignore[arg-type]


def test_a_closed_session_makes_and_does_nothing(connect: Connect, queue_name: str) -> None:
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    consumer, producer = session.create_consumer(queue), session.create_producer(queue)
    session.close()
    session.close()
    calls: list[Callable[[], Any]] = [
        lambda: session.create_queue("x"),
        lambda: session.create_topic("x"),
        lambda: session.create_consumer(queue),
        lambda: session.create_producer(queue),
        lambda: session.create_browser(queue),
        session.create_temporary_queue,
        session.create_text_message,
        session.recover,
        lambda: producer.send(TextMessage("x")),
        lambda: setattr(consumer, "message_listener", print),
    ]
    for call in calls:
        with pytest.raises(IllegalStateError):
            call()
    assert consumer.receive(WAIT_S) is None


# -- 6.2.10: acknowledgement (CONTRACT C) ----------------------------------------------------------------


def test_a_failure_before_the_acknowledgement_makes_the_message_available_again(
    connect: Connect, queue_name: str
) -> None:
    """CONTRACT C4: AUTO with a listener puts at most the one message at risk that it has; it comes again, flagged."""
    connection = connect(listener_error="redeliver")
    session = connection.create_session()
    queue = session.create_queue(queue_name)
    seen: list[tuple[str, bool]] = []
    done = threading.Event()

    def listener(message: Message) -> None:
        seen.append((message.body, message.redelivered))
        if len(seen) == 2:
            raise ValueError("failed before the acknowledgement")
        if len(seen) == 4:
            done.set()

    session.create_consumer(queue).message_listener = listener
    send(connection, queue, "1", "2", "3")
    assert done.wait(WAIT_S)
    assert seen == [("1", False), ("2", False), ("2", True), ("3", False)]


def test_in_individual_mode_a_message_is_acknowledged_alone_and_in_any_order(connect: Connect, queue_name: str) -> None:
    connection = connect()
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.INDIVIDUAL)
    queue = session.create_queue(queue_name)
    send(connection, queue, *"12345")
    messages = receive(session.create_consumer(queue), 5)
    messages[3].acknowledge()
    messages[1].acknowledge()
    messages[1].acknowledge()
    session.close()
    other = connection.create_session()
    got = receive(other.create_consumer(queue), 3)
    assert texts(got) == ["1", "3", "5"]
    assert all(message.redelivered for message in got)


def test_recover_in_individual_mode_brings_the_rest_again(connect: Connect, queue_name: str) -> None:
    """CONTRACT C8."""
    connection = connect()
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.INDIVIDUAL)
    queue = session.create_queue(queue_name)
    send(connection, queue, *"123")
    consumer = session.create_consumer(queue)
    receive(consumer, 3)[1].acknowledge()
    session.recover()
    again = receive(consumer, 2)
    assert texts(again) == ["1", "3"]
    assert [message.delivery_count for message in again] == [2, 2]
    assert all(message.redelivered for message in again)  # CONTRACT C10


def test_after_recover_what_has_expired_does_not_come_again(connect: Connect, queue_name: str) -> None:
    """CONTRACT C9, C11(c)."""
    connection = connect()
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    queue = session.create_queue(queue_name)
    producer = session.create_producer(queue)
    consumer = session.create_consumer(queue)
    for time_to_live_ms in (200, 2_000, 20_000):
        # As short as this machine allows: it has to be received before it expires.
        producer.send(TextMessage("short"), time_to_live_ms=time_to_live_ms)
        short = consumer.receive(time_to_live_ms / 1000)
        if short is not None:
            break
    assert short is not None
    producer.send(TextMessage("long"))
    receive(consumer, 1)
    threading.Event().wait(max(short.expiration / 1000 - time.time(), 0) + 0.01)
    session.recover()
    assert texts(receive(consumer, 1)) == ["long"]
    assert nothing_comes(consumer)


def test_what_a_session_gives_back_another_may_get_and_keeps_what_it_has(connect: Connect, queue_name: str) -> None:
    """CONTRACT C9, C11(d): recover while a second consumer holds messages."""
    connection = connect(prefetch=0)
    sessions = [connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT) for _ in range(2)]
    queue = sessions[0].create_queue(queue_name)
    send(connection, queue, *"1234")
    mine, other = (session.create_consumer(queue) for session in sessions)
    receive(mine, 2)
    held = receive(other, 2)
    sessions[0].recover()
    (taken,) = receive(other, 1)
    assert (taken.body, taken.redelivered) == ("1", True)
    (left,) = receive(mine, 1)
    assert (left.body, left.redelivered) == ("2", True)
    held[0].acknowledge()
    left.acknowledge()
    for session in sessions:
        session.close()
    assert nothing_comes(connection.create_session().create_consumer(queue))


def test_recover_in_every_mode_brings_again_what_a_subscription_had(connect: Connect, topic_name: str) -> None:
    """CONTRACT C8 for topics."""
    connection = connect()
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    topic = session.create_topic(topic_name)
    consumer = session.create_consumer(topic)
    send(connection, topic, *"123")
    assert not any(message.redelivered for message in receive(consumer, 3))
    session.recover()
    again = receive(consumer, 3)
    assert texts(again) == ["1", "2", "3"]
    assert all(message.redelivered for message in again)
    again[0].acknowledge()
    session.recover()
    assert nothing_comes(consumer)


# -- 6.2.7: transactions ---------------------------------------------------------------------------------


def test_a_transaction_covers_queues_and_topics(connect: Connect, queue_name: str, topic_name: str) -> None:
    connection = connect()
    session = connection.create_session(transacted=True)
    queue, topic = session.create_queue(queue_name), session.create_topic(topic_name)
    watching = connection.create_session()
    subscriber = watching.create_consumer(topic)
    producer = session.create_producer()
    for number in range(2):
        producer.send(TextMessage(f"q{number}"), destination=queue)
        producer.send(TextMessage(f"t{number}"), destination=topic)
        if number == 0:
            session.rollback()
    assert nothing_comes(subscriber)
    session.commit()
    assert texts(receive(subscriber, 1)) == ["t1"]
    assert texts(receive(watching.create_consumer(queue), 1)) == ["q1"]
    assert nothing_comes(subscriber)


def test_rollback_brings_again_what_was_received_of_a_topic(connect: Connect, topic_name: str) -> None:
    connection = connect()
    session = connection.create_session(transacted=True)
    topic = session.create_topic(topic_name)
    consumer = session.create_consumer(topic)
    send(connection, topic, "1", "2")
    receive(consumer, 2)
    session.rollback()
    again = receive(consumer, 2)
    assert texts(again) == ["1", "2"]
    assert [message.delivery_count for message in again] == [2, 2]
    session.commit()
    session.rollback()
    assert nothing_comes(consumer)


# -- 4.1.6: browsers -------------------------------------------------------------------------------------


def test_a_browser_shows_what_waits_each_time_anew(connect: Connect, queue_name: str) -> None:
    """CONTRACT A25."""
    connection = connect()
    session = connection.create_session()
    queue = session.create_queue(queue_name)
    send(connection, queue, "1", "2")
    browser = session.create_browser(queue)
    assert texts(browser) == ["1", "2"]
    send(connection, queue, "3")
    assert texts(browser) == ["1", "2", "3"]
    assert texts(receive(session.create_consumer(queue), 3)) == ["1", "2", "3"]
    assert texts(browser) == []
    browser.close()
    browser.close()
    with pytest.raises(IllegalStateError):
        list(browser)


def test_a_browser_may_have_a_selector(connect: Connect, queue_name: str) -> None:
    connection = connect()
    session = connection.create_session()
    queue = session.create_queue(queue_name)
    for number in range(20):
        send(connection, queue, str(number), number=number)
    browser = session.create_browser(queue, "number >= 17")
    assert (browser.message_selector, browser.destination) == ("number >= 17", queue)
    assert texts(browser) == ["17", "18", "19"]


def test_topics_cannot_be_browsed(connect: Connect, topic_name: str) -> None:
    session = connect().create_session()
    with pytest.raises(InvalidDestinationError):
        session.create_browser(session.create_topic(topic_name))  # type: ignore[arg-type]


def test_browsing_is_possible_without_prefetch(connect: Connect, queue_name: str) -> None:
    connection = connect(prefetch=0)
    session = connection.create_session()
    queue = session.create_queue(queue_name)
    send(connection, queue, *map(str, range(250)))
    assert texts(session.create_browser(queue)) == list(map(str, range(250)))


def test_one_session_consumes_and_browses_at_once(connect: Connect, queue_name: str) -> None:
    connection = connect()
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    queue = session.create_queue(queue_name)
    send(connection, queue, "1", "2")
    consumer = session.create_consumer(queue, prefetch=0)
    assert body_of(consumer.receive(WAIT_S)) == "1"
    assert "2" in texts(session.create_browser(queue))
