"""JMS messages on the wire, checked against Proton's own decoder and encoder (amqp.md A9)."""

from __future__ import annotations

import contextlib
from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.amqp.codec.header import Header
from legato.amqp.codec.message import AmqpMessage, ValueBody, encode_message
from legato.amqp.codec.values import Byte, Int
from legato.amqp.names import REDELIVERED
from legato.client import BytesMessage, DeliveryMode, Message, ObjectMessage, TextMessage, Topic
from legato.client.mapping.received import Received, message_id_of
from legato.errors import MessageFormatError, ProtocolError
from tests.unit.client.passing import ORDERS, as_proton, encoded, read


def test_proton_reads_every_header_that_we_write() -> None:
    message = TextMessage("tea")
    message.correlation_id = "corr"
    message.reply_to = Topic("answers")
    message.type = "order"
    message.properties["JMSXGroupID"] = "g"
    message.properties["JMSXGroupSeq"] = 3
    found = as_proton(encoded(message, 5_000, priority=7, expiration=1_700_000_005_123))
    assert (found.durable, found.priority, found.ttl) == (True, 7, 5.0)
    assert (found.id, found.address, found.subject) == ("ID:m:1", "orders", "order")
    assert (found.reply_to, found.correlation_id) == ("answers", "corr")
    assert (found.creation_time, found.expiry_time) == (1_700_000_000.123, 1_700_000_005.123)
    assert (found.group_id, found.group_sequence, found.body) == ("g", 3, "tea")
    assert dict(found.annotations) == {"x-opt-jms-msg-type": 5, "x-opt-jms-dest": 0, "x-opt-jms-reply-to": 1}
    assert all(type(value) is proton.byte for value in found.annotations.values())


def test_a_non_persistent_message_is_not_durable() -> None:
    assert as_proton(encoded(TextMessage("x"), delivery_mode=DeliveryMode.NON_PERSISTENT)).durable is False


def test_properties_keep_their_types() -> None:
    message = TextMessage()
    values: dict[str, Any] = {"b": True, "i": 1, "l": 1 << 40, "f": 1.5, "s": "text", "n": None}
    message.properties.update(values)
    found = as_proton(encoded(message)).properties
    assert dict(found) == values
    assert type(found["i"]) is proton.int32
    assert dict(read(encoded(message)).properties) == values | {"JMSXDeliveryCount": 1}


@pytest.mark.parametrize(
    ("message", "number", "body"),
    [
        (Message(), 0, None),
        (BytesMessage(b"\x00\xff"), 3, b"\x00\xff"),
        (TextMessage("größe"), 5, "größe"),
        (TextMessage(None), 5, None),
    ],
)
def test_each_kind_of_message_is_marked_and_comes_back_as_it_was(message: Message, number: int, body: object) -> None:
    data = encoded(message)
    assert as_proton(data).annotations["x-opt-jms-msg-type"] == number
    assert as_proton(data).body == body
    again = read(data)
    assert (type(again), again.body) == (type(message), body)


@given(
    st.text(max_size=300),
    st.dictionaries(
        st.from_regex(r"[a-z][a-z0-9_]{0,10}x", fullmatch=True),
        st.one_of(st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), st.text(max_size=20), st.none()),
        max_size=5,
    ),
    st.one_of(st.none(), st.text(max_size=20).filter(lambda text: not text.startswith("ID:")), st.binary(max_size=9)),
    st.integers(0, 9),
)
def test_what_is_sent_is_what_is_received(text: str, properties: Any, correlation_id: Any, priority: int) -> None:
    message = TextMessage(text)
    message.properties.update(properties)
    message.correlation_id = correlation_id
    again = read(encoded(message, priority=priority))
    assert again.text == text
    assert dict(again.properties) == properties | {"JMSXDeliveryCount": 1}
    assert (again.correlation_id, again.priority, again.timestamp) == (correlation_id, priority, 1_700_000_000_123)
    assert (again.destination, again.message_id) == (ORDERS, "ID:m:1")


def read_all(data: bytes) -> None:
    """Read every part of a message; what is wrong with it may only show as the errors that callers expect."""
    try:
        message = read(data)
    except ProtocolError:
        return
    for part in ("message_id", "body"):
        with contextlib.suppress(MessageFormatError):
            getattr(message, part)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_message_are_refused_and_never_break_the_client(data: bytes) -> None:
    read_all(data)


@given(st.integers(0, 400), st.binary(min_size=1, max_size=3))
def test_a_damaged_message_is_refused_and_never_breaks_the_client(at: int, damage: bytes) -> None:
    message = TextMessage("x" * 50)
    message.properties["a"] = 1
    data = encoded(message)
    at %= len(data)
    read_all(data[:at] + damage + data[at + len(damage) :])


def test_a_delivery_count_or_the_annotation_flags_a_message_as_redelivered() -> None:
    """CONTRACT A17, B16: redelivered, also where the count does not say so (promise 4)."""
    body = ValueBody("x")
    fresh = read(encode_message(header=Header(durable=True), body=body))
    counted = read(encode_message(header=Header(delivery_count=2), body=body))
    flagged = read(encode_message(header=Header(), delivery_annotations={REDELIVERED: True}, body=body))
    assert [(m.redelivered, m.delivery_count) for m in (fresh, counted, flagged)] == [(False, 1), (True, 3), (True, 1)]
    assert counted.properties["JMSXDeliveryCount"] == 3


def test_a_message_of_the_python_proton_client_is_read() -> None:
    sent = proton.Message(body="tea", id=5, correlation_id=b"\x01", subject="s", properties={"a": proton.int32(1)})
    message = read(bytes(sent.encode()))
    assert isinstance(message, TextMessage)
    assert (message.text, message.message_id, message.correlation_id) == ("tea", "ID:AMQP_ULONG:5", b"\x01")
    assert (message.type, message.properties["a"]) == ("s", 1)
    assert type(message.properties["a"]) is Int


def test_a_type_that_comes_later_is_shown_by_its_body() -> None:
    data = encode_message(
        header=Header(), message_annotations={"x-opt-jms-msg-type": Byte(9)}, body=ValueBody({"a": Int(1)})
    )
    assert (type(read(data)), read(data).body) == (ObjectMessage, {"a": 1})


def test_a_received_message_is_sent_on_with_its_body_as_it_came() -> None:
    data = encode_message(header=Header(), body=ValueBody({"deep": [1, {"x": None}]}))
    forwarded = read(data)
    assert as_proton(encoded(forwarded)).body == {"deep": [1, {"x": None}]}


def test_an_id_that_was_no_string_is_sent_back_as_it_was() -> None:
    message = TextMessage("x")
    message.correlation_id = "ID:AMQP_ULONG:5"
    assert as_proton(encoded(message)).correlation_id == 5


def test_a_header_that_cannot_be_sent_is_named() -> None:
    message = TextMessage("x")
    message.correlation_id = "ID:AMQP_ULONG:five"
    with pytest.raises(MessageFormatError, match="cannot be sent"):
        encoded(message)


def test_a_message_names_itself_without_being_read_whole() -> None:
    assert message_id_of(encoded(TextMessage("x"))) == "ID:m:1"
    assert Received(encode_message(header=Header(), body=AmqpMessage().body), ORDERS).body() is None
