"""Chapter 7: producers, asynchronous sends, priorities, time to live, delivery delay."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from legato.client import (
    ConnectionFactory,
    DeliveryMode,
    IllegalStateError,
    InvalidDestinationError,
    JMSError,
    Message,
    MessageFormatError,
    TextMessage,
)
from tests.conformance.jms.stories import WAIT_S, Connect, MakeContext, nothing_comes, receive, texts
from tests.support.broker import BrokerProcess
from tests.support.server import free_port


def test_a_producer_has_the_defaults_of_the_specification(connect: Connect, queue_name: str) -> None:
    """7.7 to 7.9."""
    session = connect().create_session()
    producer = session.create_producer(session.create_queue(queue_name))
    assert (producer.delivery_mode, producer.priority) == (DeliveryMode.PERSISTENT, 4)
    assert (producer.time_to_live_ms, producer.delivery_delay_ms) == (0, 0)
    assert (producer.disable_message_id, producer.disable_message_timestamp) == (False, False)


def test_what_a_producer_is_set_to_holds_for_all_it_sends(connect: Connect, queue_name: str) -> None:
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    producer = session.create_producer(queue)
    producer.delivery_mode = DeliveryMode.NON_PERSISTENT
    producer.priority = 9
    producer.time_to_live_ms = 60_000
    producer.send(TextMessage("1"))
    (got,) = receive(session.create_consumer(queue), 1)
    assert (got.delivery_mode, got.priority) == (DeliveryMode.NON_PERSISTENT, 9)
    assert got.expiration == got.timestamp + 60_000


def test_a_producer_without_destination_sends_to_queues_and_topics(
    connect: Connect, queue_name: str, topic_name: str
) -> None:
    """7.1."""
    session = connect().create_session()
    queue, topic = session.create_queue(queue_name), session.create_topic(topic_name)
    subscriber = session.create_consumer(topic)
    producer = session.create_producer()
    producer.send(TextMessage("q"), destination=queue)
    producer.send(TextMessage("t"), destination=topic)
    assert texts(receive(subscriber, 1)) == ["t"]
    assert texts(receive(session.create_consumer(queue), 1)) == ["q"]
    with pytest.raises(InvalidDestinationError):
        producer.send(TextMessage("nowhere"))
    with pytest.raises(InvalidDestinationError):
        session.create_producer(queue).send(TextMessage("two"), destination=queue)


def test_higher_priorities_are_received_first(connect: Connect, queue_name: str) -> None:
    """7.6 (JMSPriority)."""
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    producer = session.create_producer(queue)
    for priority in (0, 4, 9, 5, 4, 9, 1):
        producer.send(TextMessage(str(priority)), priority=priority)
    assert texts(receive(session.create_consumer(queue), 7)) == ["9", "9", "5", "4", "4", "1", "0"]


def test_order_is_kept_within_a_priority(connect: Connect, queue_name: str) -> None:
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    producer = session.create_producer(queue)
    for number in range(300):
        producer.send(TextMessage(str(number)), completion_listener=lambda message, error: None)
    producer.flush(WAIT_S)
    assert texts(receive(session.create_consumer(queue), 300)) == list(map(str, range(300)))


def test_an_expired_message_is_not_received(connect: Connect, queue_name: str) -> None:
    """7.8."""
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    producer = session.create_producer(queue)
    short = TextMessage("short")
    producer.send(short, time_to_live_ms=50)
    producer.send(TextMessage("long"), time_to_live_ms=60_000)
    threading.Event().wait(max(short.expiration / 1000 - time.time(), 0) + 0.01)
    consumer = session.create_consumer(queue)
    assert texts(receive(consumer, 1)) == ["long"]
    assert nothing_comes(consumer)


@pytest.mark.parametrize("transacted", [False, True])
def test_a_delayed_message_comes_at_its_time_and_not_before(
    connect: Connect, queue_name: str, transacted: bool
) -> None:
    """7.9."""
    connection = connect()
    session = connection.create_session(transacted=transacted)
    queue = session.create_queue(queue_name)
    consumer = connection.create_session().create_consumer(queue)
    producer = session.create_producer(queue)
    late = TextMessage("late")
    producer.send(late, delivery_delay_ms=400)
    producer.send(TextMessage("now"))
    if transacted:
        session.commit()
    assert late.delivery_time == late.timestamp + 400
    was_early = time.time() * 1000 < late.delivery_time
    found = {message.body: message for message in receive(consumer, 2)}
    assert time.time() * 1000 >= late.delivery_time - 1
    # On a busy machine both may have been sent when the one was due.
    assert list(found) == ["now", "late"] or not was_early
    assert found["late"].delivery_time == late.delivery_time


def test_a_delayed_message_reaches_every_subscription(connect: Connect, topic_name: str) -> None:
    session = connect().create_session()
    topic = session.create_topic(topic_name)
    consumers = [session.create_consumer(topic) for _ in range(2)]
    producer = session.create_producer(topic)
    producer.delivery_delay_ms = 100
    producer.send(TextMessage("1"))
    assert [texts(receive(consumer, 1)) for consumer in consumers] == [["1"], ["1"]]


@pytest.mark.parametrize(
    "settings",
    [{"priority": 10}, {"priority": -1}, {"delivery_mode": 3}, {"time_to_live_ms": -1}, {"delivery_delay_ms": -1}],
)
def test_settings_out_of_range_are_refused(connect: Connect, queue_name: str, settings: dict[str, Any]) -> None:
    session = connect().create_session()
    producer = session.create_producer(session.create_queue(queue_name))
    with pytest.raises(JMSError):
        producer.send(TextMessage("x"), **settings)
    for name, value in settings.items():
        setattr(producer, name, value)
    with pytest.raises(JMSError):
        producer.send(TextMessage("x"))


def test_a_misspelt_setting_is_refused(connect: Connect, context: MakeContext) -> None:
    """It was an attribute that nobody reads: `producer.time_to_live = 5000`, and messages for ever."""
    for producer in (connect().create_session().create_producer(None), context().create_producer()):
        for name, wanted in (
            ("time_to_live", "Did you mean time_to_live_ms"),
            ("timeToLive", "Did you mean time_to_live_ms"),
            ("persistent", "Known are .*delivery_mode"),
        ):
            with pytest.raises(AttributeError, match=f"Producer has no setting '{name}'. {wanted}"):
                setattr(producer, name, 1)
        # What there is may be set; a test may replace a method.
        producer.priority = 9
        setattr(producer, "send", None)  # noqa: B010 - to a type checker it is a method


def test_send_says_its_order(connect: Connect, queue_name: str) -> None:
    """The context's producer takes the destination first, and Jakarta Messaging's `send(Destination, Message)`."""
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    producer: Any = session.create_producer(queue)
    with pytest.raises(MessageFormatError, match=r"has its destination from create_producer\(queue\)"):
        producer.send(queue)
    with pytest.raises(MessageFormatError, match=r"session.create_json_message\(3\), as text str\(3\)"):
        producer.send(3)


# -- 7.3: asynchronous sends -----------------------------------------------------------------------------


class Heard:
    """A completion listener that remembers."""

    def __init__(self) -> None:
        self.completed: list[str] = []
        self.errors: list[JMSError] = []
        self.called = threading.Event()

    def on_completion(self, message: Message) -> None:
        self.completed.append(message.body)
        self.called.set()

    def on_exception(self, message: Message, error: JMSError) -> None:
        self.errors.append(error)
        self.called.set()


def test_completions_come_in_the_order_of_the_sends(connect: Connect, queue_name: str, topic_name: str) -> None:
    """7.3.3."""
    session = connect().create_session()
    heard = Heard()
    producer = session.create_producer()
    for number in range(100):
        for destination in (session.create_queue(queue_name), session.create_topic(topic_name)):
            producer.send(TextMessage(str(number)), destination=destination, completion_listener=heard)
    producer.flush(WAIT_S)
    assert sorted(heard.completed, key=int) == sorted(list(map(str, range(100))) * 2, key=int)
    assert not heard.errors


@pytest.mark.parametrize("how", ["close the producer", "close the session", "commit", "close the connection"])
def test_closing_and_committing_wait_for_completions(connect: Connect, queue_name: str, how: str) -> None:
    """7.3.4."""
    connection = connect()
    session = connection.create_session(transacted=how == "commit")
    producer = session.create_producer(session.create_queue(queue_name))
    heard = Heard()
    for number in range(500):
        producer.send(TextMessage(str(number)), completion_listener=heard)
    calls: dict[str, Callable[[], None]] = {
        "close the producer": producer.close,
        "close the session": session.close,
        "commit": session.commit,
        "close the connection": connection.close,
    }
    calls[how]()
    assert heard.completed == list(map(str, range(500)))


@pytest.mark.parametrize("what", ["producer.close", "session.close", "connection.close", "commit", "rollback"])
def test_a_completion_listener_cannot_end_what_it_belongs_to(connect: Connect, queue_name: str, what: str) -> None:
    """7.3.4."""
    connection = connect()
    session = connection.create_session(transacted=what in ("commit", "rollback"))
    producer = session.create_producer(session.create_queue(queue_name))
    calls: dict[str, Callable[[], None]] = {
        "producer.close": producer.close,
        "session.close": session.close,
        "connection.close": connection.close,
        "commit": session.commit,
        "rollback": session.rollback,
    }
    errors: list[Exception] = []
    heard = threading.Event()

    def listener(message: Message, error: JMSError | None) -> None:
        try:
            calls[what]()
        except IllegalStateError as refused:
            errors.append(refused)
        heard.set()

    producer.send(TextMessage("x"), completion_listener=listener)
    assert heard.wait(WAIT_S)
    assert len(errors) == 1


def test_a_completion_listener_may_send(connect: Connect, queue_name: str) -> None:
    """7.3.7."""
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    producer = session.create_producer(queue)
    sent = threading.Event()

    def listener(message: Message, error: JMSError | None) -> None:
        producer.send(TextMessage("second"))
        sent.set()

    producer.send(TextMessage("first"), completion_listener=listener)
    assert sent.wait(WAIT_S)
    assert texts(receive(session.create_consumer(queue), 2)) == ["first", "second"]


def test_a_message_that_cannot_be_sent_leaves_the_producer_usable(connect: Connect, queue_name: str) -> None:
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    producer = session.create_producer(queue)
    broken = session.create_message()
    broken.correlation_id = "ID:AMQP_ULONG:no number"
    with pytest.raises(JMSError):
        producer.send(broken)
    producer.send(TextMessage("fine"))
    assert texts(receive(session.create_consumer(queue), 1)) == ["fine"]


def test_a_message_says_who_sent_it_if_it_is_told_to(factory: Callable[..., ConnectionFactory], tmp_path: Path) -> None:
    """3.5.9, JMSXUserID."""
    broker = BrokerProcess(tmp_path / "store", free_port(), tmp_path / "log", ("--user", "anna:tea"))
    try:
        broker.wait_for("active")
        for told in (False, True):
            made = factory(f"amqp://anna:tea@127.0.0.1:{broker.port}", send_user_id=told)
            with made.create_connection() as connection:
                connection.start()
                session = connection.create_session()
                queue = session.create_queue("orders")
                session.create_producer(queue).send(TextMessage("x"))
                (got,) = receive(session.create_consumer(queue), 1)
                assert got.properties.get("JMSXUserID") == ("anna" if told else None)
    finally:
        broker.close()
