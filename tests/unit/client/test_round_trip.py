"""Messages of every type with everything they can carry, sent and received."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.client import (
    Byte,
    BytesMessage,
    Char,
    Float,
    Int,
    Long,
    MapMessage,
    Message,
    ObjectMessage,
    Short,
    StreamMessage,
    TemporaryTopic,
    TextMessage,
)
from legato.client.mapping.translate import Envelope
from legato.client.messages.java_numbers import single
from legato.errors import MessageFormatError, MessageNotWriteableError
from tests.unit.client.passing import HEADERS, ORDERS, as_proton, body_bytes, encoded, passed, read

_properties = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 7), (1 << 7) - 1).map(Byte),
    st.integers(-(1 << 15), (1 << 15) - 1).map(Short),
    st.integers(-(1 << 31), (1 << 31) - 1).map(Int),
    st.integers(-(1 << 63), (1 << 63) - 1).map(Long),
    st.floats(width=32, allow_nan=False).map(Float),
    st.floats(allow_nan=False),
    st.text(max_size=10),
)
_fields = st.one_of(_properties, st.characters(max_codepoint=0xD7FF).map(Char), st.binary(max_size=10))
_objects = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=9) | st.binary(max_size=9) | st.uuids(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Message),
    st.builds(TextMessage, st.none() | st.text(max_size=300)),
    st.builds(BytesMessage, st.binary(max_size=300)),
    st.builds(MapMessage, st.dictionaries(st.text(min_size=1, max_size=5), _fields, max_size=5)),
    st.builds(StreamMessage, st.lists(_fields, max_size=5)),
    st.builds(ObjectMessage, _objects),
)
_names = st.from_regex(r"\A[a-z][a-z0-9_]{0,9}x\Z")


def typed(value: Any) -> Any:
    """A value with the types of what is in it, so that `==` tells 1 from `Short(1)`."""
    if isinstance(value, dict):
        return {name: typed(item) for name, item in value.items()}
    return [typed(item) for item in value] if isinstance(value, list) else (type(value), value)


@given(
    _messages,
    st.dictionaries(_names, _properties, max_size=5),
    st.none() | st.text(max_size=9).filter(lambda text: not text.startswith("ID:AMQP")) | st.binary(max_size=9),
    st.none() | st.text(max_size=9),
    st.integers(-(1 << 31), (1 << 31) - 1),
)
def test_a_message_of_any_type_comes_back_and_goes_on_as_it_was(
    message: Message, properties: dict[str, Any], correlation_id: Any, kind: str | None, sequence: int
) -> None:
    message.properties.update(properties)
    message.set_string_property("JMSXGroupID", "group")
    message.set_int_property("JMSXGroupSeq", sequence)
    message.correlation_id = correlation_id
    message.type = kind
    message.reply_to = TemporaryTopic("answers")
    first = encoded(message)
    once = read(first)
    twice = read(encoded(once))
    for again in (once, twice):
        assert type(again) is type(message)
        assert typed(again.body) == typed(message.body)
        found = dict(again.properties)
        assert found.pop("JMSXDeliveryCount") == 1
        assert typed(found) == typed(dict(message.properties))
        assert (again.correlation_id, again.type, again.reply_to) == (correlation_id, kind, TemporaryTopic("answers"))
    assert body_bytes(encoded(twice)) == body_bytes(first)


@given(_messages)
def test_a_body_that_was_read_is_sent_on_with_its_bytes_as_they_came(message: Message) -> None:
    first = encoded(message)
    received = read(first)
    _ = received.body
    assert body_bytes(encoded(received)) == body_bytes(first)


@given(_messages)
def test_a_cleared_message_is_as_a_new_one(message: Message) -> None:
    received = passed(message)
    received.clear_body()
    received.clear_properties()
    assert body_bytes(encoded(received)) == body_bytes(encoded(type(message)()))
    assert dict(received.properties) == {}


def test_the_user_is_named_if_the_producer_says_so() -> None:
    values = HEADERS | {"_reply_to": ORDERS}
    for extra in (HEADERS, values):
        message = TextMessage("tea")
        message.__dict__.update(extra)
        data = Envelope(ORDERS, user_id="größe").encode(message, 0)
        assert as_proton(data).user_id == "größe".encode()
        assert read(data).get_string_property("JMSXUserID") == "größe"


def test_the_user_of_a_received_message_is_not_the_user_who_sends_it_on() -> None:
    message = TextMessage("tea")
    message.__dict__.update(HEADERS)
    received = read(Envelope(ORDERS, user_id="ann").encode(message, 0))
    assert received.get_string_property("JMSXUserID") == "ann"
    assert read(encoded(received)).get_string_property("JMSXUserID") is None


def test_an_id_and_a_timestamp_that_the_producer_leaves_out_are_not_there() -> None:
    for extra in ({"message_id": None}, {"timestamp": 0}, {"message_id": None, "timestamp": 0}):
        message = read(encoded(TextMessage("tea"), **extra))
        assert message.message_id == extra.get("message_id", "ID:m:1")
        assert message.timestamp == extra.get("timestamp", 1_700_000_000_123)
        assert (message.text, message.destination) == ("tea", ORDERS)


def test_a_delivery_time_crosses_as_a_long_and_only_if_there_is_a_delay() -> None:
    message = TextMessage("tea")
    message.__dict__.update(HEADERS)
    delayed = Envelope(ORDERS).encode(message, 0, 1_700_000_009_000)
    annotations = as_proton(delayed).annotations
    assert annotations["x-opt-delivery-time"] == 1_700_000_009_000
    assert type(annotations["x-opt-delivery-time"]) is int
    assert read(delayed).delivery_time == 1_700_000_009_000
    assert "x-opt-delivery-time" not in as_proton(encoded(message)).annotations
    assert read(encoded(message)).delivery_time == 1_700_000_000_123
    assert "x-opt-delivery-time" not in as_proton(encoded(read(delayed))).annotations


def test_what_the_broker_adds_is_read_and_goes_on_but_is_not_set() -> None:
    """A dead letter keeps its story when it is sent again; applications do not tell one."""
    message = TextMessage("tea")
    message.properties._values["JMS_LEGATO_CAUSE"] = "expired"
    dead = passed(message)
    assert dead.get_string_property("JMS_LEGATO_CAUSE") == "expired"
    assert passed(dead).get_string_property("JMS_LEGATO_CAUSE") == "expired"
    with pytest.raises(MessageFormatError, match="set by the broker"):
        TextMessage().set_property("JMS_LEGATO_CAUSE", "expired")
    dead.clear_properties()
    assert not passed(dead).property_exists("JMS_LEGATO_CAUSE")


def test_properties_that_nobody_at_jakarta_messaging_knows_go_on_too() -> None:
    message = TextMessage("tea")
    message.properties._values["JMSXTheirs"] = 5
    assert passed(passed(message)).get_long_property("JMSXTheirs") == 5


def test_typed_properties_are_read_only_after_receipt() -> None:
    message = TextMessage("tea")
    message.set_int_property("a", 1)
    received = passed(message)
    for kind, value in (("int", 1), ("string", "x"), ("boolean", True), ("object", 1.5), ("double", 1.0)):
        with pytest.raises(MessageNotWriteableError):
            getattr(received, f"set_{kind}_property")("a", value)
    received.clear_properties()
    received.set_float_property("a", 0.1)
    assert received.get_object_property("a") == single(0.1)


@pytest.mark.parametrize(("name", "value"), [("JMSXGroupID", 1), ("JMSXGroupSeq", "1"), ("JMSXGroupSeq", 1 << 31)])
def test_a_group_has_a_name_and_a_number(name: str, value: Any) -> None:
    message = TextMessage()
    with pytest.raises(MessageFormatError):
        message.set_property(name, value)
    with pytest.raises(MessageFormatError):
        message.set_double_property(name, 1.0)


def test_get_body_returns_text_as_text() -> None:
    message = passed(TextMessage("tea"))
    assert (message.get_body(str), message.get_body(object)) == ("tea", "tea")
    assert (message.is_body_assignable_to(str), message.is_body_assignable_to(bytes)) == (True, False)
    with pytest.raises(MessageFormatError, match="str, not bytes"):
        message.get_body(bytes)
    assert (TextMessage().get_body(bytes), TextMessage().is_body_assignable_to(bytes)) == (None, True)
    assert (Message().get_body(bytes), Message().is_body_assignable_to(dict)) == (None, True)


def test_a_content_type_is_carried_for_clients_that_need_one() -> None:
    message = TextMessage("{}")
    message.content_type = "application/json"
    received = passed(message)
    assert (received.content_type, received.text) == ("application/json", "{}")
    received.clear_body()
    assert passed(received).content_type is None


def test_a_class_of_the_applications_own_is_sent_as_the_class_it_extends() -> None:
    class Order(MapMessage):
        """An order."""

    assert type(passed(Order({"grams": 100}))) is MapMessage
