"""Chapter 2.8: the simplified API, `JMSContext`, `JMSProducer` and `JMSConsumer`."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from legato.client import (
    AcknowledgeMode,
    DeliveryMode,
    IllegalStateError,
    InvalidClientIDError,
    InvalidDestinationError,
    JMSError,
    Message,
    MessageFormatError,
    TextMessage,
)
from tests.conformance.jms.stories import (
    NOTHING_COMES_S,
    WAIT_S,
    Connect,
    MakeContext,
    body_of,
    nothing_comes,
    receive,
    send,
    texts,
)


def test_a_context_sends_and_receives(context: MakeContext, queue_name: str) -> None:
    """2.8."""
    made = context()
    queue = made.create_queue(queue_name)
    made.create_producer().send(queue, "tea")
    assert made.create_consumer(queue).receive_body(str, WAIT_S) == "tea"
    with pytest.raises(MessageFormatError, match="takes the destination first"):
        made.create_producer().send("tea", queue)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "mode",
    [AcknowledgeMode.AUTO, AcknowledgeMode.CLIENT, AcknowledgeMode.DUPS_OK, AcknowledgeMode.SESSION_TRANSACTED],
)
def test_a_context_has_a_session_mode(context: MakeContext, mode: AcknowledgeMode) -> None:
    made = context(session_mode=mode)
    assert (made.session_mode, made.transacted) == (mode, mode is AcknowledgeMode.SESSION_TRANSACTED)
    assert made.metadata.jms_version == "3.1"
    assert made.auto_start


def test_a_bad_session_mode_is_refused(context: MakeContext) -> None:
    with pytest.raises(JMSError):
        context(session_mode=42)
    with pytest.raises(JMSError):
        context().create_context(42)  # type: ignore[arg-type]


def test_creating_a_consumer_starts_the_connection_unless_told_not_to(context: MakeContext, queue_name: str) -> None:
    """2.8, 6.1.4."""
    made = context()
    made.auto_start = False
    queue = made.create_queue(queue_name)
    made.create_producer().send(queue, "tea")
    consumer = made.create_consumer(queue)
    assert consumer.receive(NOTHING_COMES_S) is None
    made.start()
    assert body_of(consumer.receive(WAIT_S)) == "tea"
    made.stop()
    made.create_producer().send(queue, "more")
    assert consumer.receive(NOTHING_COMES_S) is None


def test_contexts_may_share_a_connection_which_ends_with_the_last_one(context: MakeContext, queue_name: str) -> None:
    """2.8."""
    first = context(session_mode=AcknowledgeMode.CLIENT)
    second = first.create_context(AcknowledgeMode.SESSION_TRANSACTED)
    queue = first.create_temporary_queue()
    second.create_producer().send(queue, "tea")
    second.commit()
    consumer = first.create_consumer(queue)
    assert body_of(consumer.receive(WAIT_S)) == "tea"
    first.close()
    first.close()
    second.create_producer().send(queue, "the connection is open")
    second.commit()
    second.close()
    for closed in (first, second):
        with pytest.raises(IllegalStateError):
            closed.create_queue(queue_name)
        with pytest.raises(IllegalStateError):
            closed.create_producer()


def test_a_producer_is_set_up_in_a_chain(context: MakeContext, queue_name: str) -> None:
    """7.10."""
    made = context()
    queue, replies = made.create_queue(queue_name), made.create_queue(f"{queue_name}.replies")
    producer = made.create_producer()
    returned = (
        producer.set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        .set_priority(7)
        .set_time_to_live_ms(60_000)
        .set_delivery_delay_ms(1)
        .set_correlation_id("c")
        .set_reply_to(replies)
        .set_type("order")
        .set_property("colour", "red")
        .send(queue, "tea")
    )
    assert returned == producer
    got = made.create_consumer(queue).receive(WAIT_S)
    assert got is not None
    assert (got.body, got.priority, got.delivery_mode) == ("tea", 7, DeliveryMode.NON_PERSISTENT)
    assert (got.correlation_id, got.reply_to, got.type) == ("c", replies, "order")
    assert got.expiration == got.timestamp + 60_000
    assert got.properties["colour"] == "red"
    plain = made.create_producer()
    assert (plain.priority, plain.delivery_mode, plain.time_to_live_ms) == (4, DeliveryMode.PERSISTENT, 0)


def test_what_a_producer_is_set_to_wins_over_the_message(context: MakeContext, queue_name: str) -> None:
    """7.4."""
    made = context()
    queue = made.create_queue(queue_name)
    message = made.create_text_message("tea")
    message.set_property("colour", "red")
    message.set_property("size", 1)
    message.correlation_id = "message's"
    made.create_producer().set_property("colour", "green").set_correlation_id("producer's").send(queue, message)
    got = made.create_consumer(queue).receive(WAIT_S)
    assert got is not None
    assert (got.properties["colour"], got.properties["size"], got.correlation_id) == ("green", 1, "producer's")


def test_properties_of_a_producer_can_be_cleared(context: MakeContext, queue_name: str) -> None:
    made = context()
    queue = made.create_queue(queue_name)
    made.create_producer().set_property("colour", "green").clear_properties().send(queue, "tea")
    got = made.create_consumer(queue).receive(WAIT_S)
    assert got is not None
    assert "colour" not in got.properties
    with pytest.raises(MessageFormatError):
        made.create_producer().set_property("not a name", 1)


@pytest.mark.parametrize(
    ("body", "kind"),
    [("tea", str), (b"\x00tea", bytes), ({"price": 2.5, "name": "tea"}, dict), ([1, "two", None], list)],
)
def test_bodies_are_sent_and_received_without_messages(
    context: MakeContext, queue_name: str, body: Any, kind: type
) -> None:
    """8.6."""
    made = context()
    queue = made.create_queue(queue_name)
    producer = made.create_producer()
    producer.send(queue, body).send(queue, body)
    consumer = made.create_consumer(queue)
    assert consumer.receive_body(kind, WAIT_S) == body
    assert consumer.receive_body_no_wait(kind) == body
    assert consumer.receive_body_no_wait(kind) is None
    assert consumer.receive_body(kind, 0.01) is None


@pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK])
def test_a_body_of_another_type_stays_the_next_message(
    context: MakeContext, queue_name: str, mode: AcknowledgeMode
) -> None:
    """8.6."""
    made = context(session_mode=mode)
    queue = made.create_queue(queue_name)
    made.create_producer().send(queue, "tea").send(queue, None)
    consumer = made.create_consumer(queue)
    with pytest.raises(MessageFormatError):
        consumer.receive_body(bytes, WAIT_S)
    with pytest.raises(MessageFormatError):
        consumer.receive_body_no_wait(dict)
    got = consumer.receive(WAIT_S)
    assert got is not None
    assert (got.body, got.redelivered) == ("tea", False)
    with pytest.raises(MessageFormatError):
        consumer.receive_body(str, WAIT_S)
    assert type(consumer.receive(WAIT_S)) is Message


def test_in_client_mode_a_body_of_another_type_counts_as_received(context: MakeContext, queue_name: str) -> None:
    """8.6."""
    made = context(session_mode=AcknowledgeMode.CLIENT)
    queue = made.create_queue(queue_name)
    made.create_producer().send(queue, "1").send(queue, "2")
    consumer = made.create_consumer(queue)
    with pytest.raises(MessageFormatError):
        consumer.receive_body(bytes, WAIT_S)
    assert consumer.receive_body(str, WAIT_S) == "2"


def test_a_context_acknowledges_all_it_has_received(context: MakeContext, queue_name: str) -> None:
    """6.2.10, CONTRACT C7."""
    made = context(session_mode=AcknowledgeMode.CLIENT)
    queue = made.create_queue(queue_name)
    made.create_producer().send(queue, "1").send(queue, "2").send(queue, "3")
    consumer = made.create_consumer(queue)
    assert texts(receive(consumer, 2)) == ["1", "2"]  # type: ignore[arg-type]
    made.acknowledge()
    assert texts(receive(consumer, 1)) == ["3"]  # type: ignore[arg-type]
    made.recover()
    (again,) = receive(consumer, 1)  # type: ignore[arg-type]
    assert (again.body, again.redelivered) == ("3", True)
    context().acknowledge()


def test_a_transacted_context_commits_and_rolls_back(context: MakeContext, queue_name: str) -> None:
    made = context(session_mode=AcknowledgeMode.SESSION_TRANSACTED)
    queue = made.create_queue(queue_name)
    made.create_producer().send(queue, "gone")
    made.rollback()
    made.create_producer().send(queue, "kept")
    made.commit()
    consumer = made.create_consumer(queue)
    assert body_of(consumer.receive(WAIT_S)) == "kept"
    made.rollback()
    assert body_of(consumer.receive(WAIT_S)) == "kept"
    made.commit()
    assert nothing_comes(consumer)


def test_a_context_makes_every_kind_of_consumer(context: MakeContext, topic_name: str, client_id: str) -> None:
    made = context(client_id=client_id)
    topic = made.create_topic(topic_name)
    consumers = [
        made.create_consumer(topic, "a = 1", True),
        made.create_durable_consumer(topic, "durable", "a = 1"),
        made.create_shared_consumer(topic, "shared", "a = 1"),
        made.create_shared_durable_consumer(topic, "both", "a = 1"),
    ]
    assert {consumer.message_selector for consumer in consumers} == {"a = 1"}
    other = context()
    other.create_producer().set_property("a", 1).send(topic, "yes").set_property("a", 2).send(topic, "no")
    for consumer in consumers:
        assert consumer.receive_body(str, WAIT_S) == "yes"
        assert nothing_comes(consumer)
        consumer.close()
    made.unsubscribe("durable")
    made.unsubscribe("both")
    with pytest.raises(InvalidDestinationError):
        made.unsubscribe("shared")


def test_a_context_browses(context: MakeContext, queue_name: str) -> None:
    made = context()
    queue = made.create_queue(queue_name)
    made.create_producer().send(queue, "1").send(queue, "2")
    assert texts(made.create_browser(queue)) == ["1", "2"]


def test_a_context_may_set_its_client_id_first(context: MakeContext, client_id: str, topic_name: str) -> None:
    """6.1.2."""
    made = context()
    assert made.client_id is None
    made.set_client_id(client_id)
    assert made.client_id == client_id
    with pytest.raises(IllegalStateError):
        made.set_client_id(f"{client_id}.other")
    made.create_durable_consumer(made.create_topic(topic_name), "d").close()
    made.unsubscribe("d")
    with pytest.raises(InvalidClientIDError):
        context(client_id=client_id)
    used = context()
    used.create_queue("x")
    with pytest.raises(IllegalStateError):
        used.set_client_id(f"{client_id}.late")


def test_sends_may_be_asynchronous(context: MakeContext, queue_name: str) -> None:
    """7.3."""
    made = context()
    heard: list[str] = []

    def listener(message: Message, error: JMSError | None) -> None:
        assert error is None
        heard.append(message.body)

    queue = made.create_queue(queue_name)
    producer = made.create_producer().set_async(listener)
    for number in range(100):
        producer.send(queue, str(number))
    made.close()
    assert heard == list(map(str, range(100)))


def test_a_consumer_of_a_context_may_have_a_listener(context: MakeContext, connect: Connect, queue_name: str) -> None:
    made = context()
    queue = made.create_queue(queue_name)
    consumer = made.create_consumer(queue)
    heard = threading.Event()
    consumer.message_listener = lambda message: heard.set()
    send(connect(), queue, "1")
    assert heard.wait(WAIT_S)
    with pytest.raises(IllegalStateError):
        consumer.receive_body(str)


def test_a_listener_cannot_close_its_context(context: MakeContext, connect: Connect, queue_name: str) -> None:
    made = context()
    queue = made.create_queue(queue_name)
    errors: list[Exception] = []
    heard = threading.Event()

    def listener(message: Message) -> None:
        try:
            made.close()
        except IllegalStateError as error:
            errors.append(error)
        heard.set()

    made.create_consumer(queue).message_listener = listener
    send(connect(), queue, "1")
    assert heard.wait(WAIT_S)
    assert len(errors) == 1


def test_iteration_over_a_consumer_ends_when_it_is_closed(context: MakeContext, queue_name: str) -> None:
    made = context()
    queue = made.create_queue(queue_name)
    made.create_producer().send(queue, "1").send(queue, "2")
    got = []
    with made.create_consumer(queue) as consumer:
        for message in consumer:
            got.append(message.body)
            if len(got) == 2:
                consumer.close()
    assert got == ["1", "2"]


def test_the_exception_listener_is_the_connections(context: MakeContext) -> None:
    made = context()
    assert made.exception_listener is None
    made.exception_listener = lambda error: None
    assert made.exception_listener is not None


def test_bodies_that_cannot_be_sent_are_refused(context: MakeContext, queue_name: str) -> None:
    made = context()
    with pytest.raises(MessageFormatError):
        made.create_producer().send(made.create_queue(queue_name), object())
    with pytest.raises(InvalidDestinationError):
        made.create_producer().send(None, TextMessage("x"))  # type: ignore[arg-type]
