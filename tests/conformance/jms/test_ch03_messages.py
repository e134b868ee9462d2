"""Chapter 3: the message model, end to end; the conversion tables are tested where the messages are."""

from __future__ import annotations

import pytest

from legato.client import (
    DeliveryMode,
    InvalidSelectorError,
    Message,
    MessageNotWriteableError,
    TextMessage,
)
from legato.client.messages import PropertyValue
from tests.conformance.jms.stories import Connect, nothing_comes, receive, send, texts


def test_send_sets_the_headers_and_the_receiver_sees_the_same(connect: Connect, queue_name: str) -> None:
    """3.4.1 to 3.4.11."""
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    message = session.create_text_message("tea")
    message.message_id = "ID:mine"
    message.priority = 1
    message.delivery_mode = DeliveryMode.NON_PERSISTENT
    message.destination = session.create_queue("elsewhere")
    session.create_producer(queue).send(message, priority=8, time_to_live_ms=60_000)
    assert message.message_id is not None
    assert message.message_id.startswith("ID:")
    assert message.message_id != "ID:mine"
    assert (message.destination, message.priority, message.delivery_mode) == (queue, 8, DeliveryMode.PERSISTENT)
    assert message.expiration == message.timestamp + 60_000
    (got,) = receive(session.create_consumer(queue), 1)
    for header in (
        "message_id",
        "timestamp",
        "expiration",
        "destination",
        "priority",
        "delivery_mode",
        "delivery_time",
    ):
        assert getattr(got, header) == getattr(message, header), header
    assert not got.redelivered


def test_headers_of_the_application_travel(connect: Connect, queue_name: str, topic_name: str) -> None:
    """3.4.5, 3.4.6, 3.4.8."""
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    consumer = session.create_consumer(queue)
    producer = session.create_producer(queue)
    for reply_to in (queue, session.create_topic(topic_name), session.create_temporary_queue()):
        message = session.create_message()
        message.correlation_id, message.type, message.reply_to = "c-1", "order", reply_to
        producer.send(message)
        (got,) = receive(consumer, 1)
        assert (got.correlation_id, got.type) == ("c-1", "order")
        assert got.reply_to is not None
        assert (got.reply_to.name, got.reply_to.kind) == (reply_to.name, reply_to.kind)
    binary = session.create_message()
    binary.correlation_id = b"\x00\xff"
    producer.send(binary)
    assert receive(consumer, 1)[0].correlation_id == b"\x00\xff"


def test_message_ids_are_unique_and_may_be_left_out(connect: Connect, queue_name: str) -> None:
    """3.4.3."""
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    producer = session.create_producer(queue)
    message = TextMessage("1")
    ids = set()
    for _ in range(3):
        producer.send(message)
        ids.add(message.message_id)
    assert len(ids) == 3
    producer.disable_message_id = producer.disable_message_timestamp = True
    producer.send(message)
    assert (message.message_id, message.timestamp) == (None, 0)
    got = receive(session.create_consumer(queue), 4)
    assert {each.message_id for each in got} == ids | {None}
    assert got[3].timestamp == 0


def test_properties_travel_with_their_types(connect: Connect, queue_name: str) -> None:
    """3.5."""
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    values: dict[str, PropertyValue] = {
        "flag": True,
        "small": 7,
        "large": 1 << 40,
        "price": 2.5,
        "name": "tea",
        "nothing": None,
    }
    message = session.create_message()
    for name, value in values.items():
        message.set_property(name, value)
    session.create_producer(queue).send(message)
    (got,) = receive(session.create_consumer(queue), 1)
    assert {name: got.properties[name] for name in values} == values
    assert got.properties["JMSXDeliveryCount"] == 1


def test_a_received_message_is_read_only_until_it_is_cleared(connect: Connect, queue_name: str) -> None:
    """3.10."""
    connection = connect()
    session = connection.create_session()
    queue = session.create_queue(queue_name)
    send(connection, queue, "tea", kind="black")
    (got,) = receive(session.create_consumer(queue), 1)
    assert isinstance(got, TextMessage)
    with pytest.raises(MessageNotWriteableError):
        got.text = "coffee"
    with pytest.raises(MessageNotWriteableError):
        got.set_property("kind", "green")
    got.clear_body()
    got.clear_properties()
    got.text = "coffee"
    got.set_property("kind", "green")
    assert (got.text, got.properties["kind"]) == ("coffee", "green")


def test_every_type_of_message_arrives_as_it_was_sent(connect: Connect, queue_name: str) -> None:
    """3.11."""
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    mapped = session.create_map_message()
    mapped["price"], mapped["name"] = 2.5, "tea"
    messages: list[Message] = [
        session.create_message(),
        session.create_text_message("tea"),
        session.create_text_message(None),
        session.create_bytes_message(b"\x00tea"),
        mapped,
        session.create_object_message({"price": [1, 2.5, "x", None]}),
    ]
    producer = session.create_producer(queue)
    for message in messages:
        producer.send(message)
    got = receive(session.create_consumer(queue), len(messages))
    assert [type(message) for message in got] == [type(message) for message in messages]
    assert texts(got[:4]) == [None, "tea", None, b"\x00tea"]
    assert got[4].get_body(dict) == {"price": 2.5, "name": "tea"}
    assert got[5].body == {"price": [1, 2.5, "x", None]}


@pytest.mark.parametrize(
    ("selector", "matching"),
    [
        ("colour = 'red'", ["0", "3"]),
        ("weight > 1 AND colour <> 'red'", ["2", "4", "5"]),
        ("colour LIKE 'gr%' OR weight BETWEEN 4 AND 5", ["1", "4", "5"]),
        ("colour IN ('red', 'blue') AND NOT (weight = 3)", ["0", "2", "5"]),
        ("absent IS NULL AND weight % 1 = 0", None),
        ("JMSType = 'odd'", ["1", "3", "5"]),
        ("JMSPriority > 4", ["2"]),
    ],
)
def test_a_selector_chooses_messages_and_leaves_the_others(
    connect: Connect, queue_name: str, selector: str, matching: list[str] | None
) -> None:
    """3.8."""
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    producer = session.create_producer(queue)
    for number, colour in enumerate(["red", "green", "blue", "red", "green", "blue"]):
        message = TextMessage(str(number))
        message.set_property("colour", colour)
        message.set_property("weight", number)
        message.type = "odd" if number % 2 else "even"
        producer.send(message, priority=5 if number == 2 else 4)
    if matching is None:
        with pytest.raises(InvalidSelectorError):
            session.create_consumer(queue, selector)
        return
    with session.create_consumer(queue, selector) as consumer:
        assert consumer.message_selector == selector
        assert sorted(texts(receive(consumer, len(matching)))) == matching
        assert nothing_comes(consumer)
    rest = sorted(set("012345") - set(matching))
    with session.create_consumer(queue) as consumer:
        assert sorted(texts(receive(consumer, len(rest)))) == rest


def test_a_selector_that_is_none_is_refused(connect: Connect, queue_name: str, topic_name: str) -> None:
    """3.8.1.1, 8.2."""
    session = connect().create_session()
    for destination in (session.create_queue(queue_name), session.create_topic(topic_name)):
        with pytest.raises(InvalidSelectorError):
            session.create_consumer(destination, "colour = ")
    with pytest.raises(InvalidSelectorError):
        list(session.create_browser(session.create_queue(queue_name), "= 3"))
    assert session.create_consumer(session.create_queue(queue_name), "").message_selector is None


def test_message_groups_and_user_ids_are_seen(connect: Connect, queue_name: str) -> None:
    """3.5.9."""
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    message = TextMessage("x")
    message.set_property("JMSXGroupID", "g")
    message.set_property("JMSXGroupSeq", 3)
    session.create_producer(queue).send(message)
    (got,) = receive(session.create_consumer(queue), 1)
    assert (got.properties["JMSXGroupID"], got.properties["JMSXGroupSeq"]) == ("g", 3)
