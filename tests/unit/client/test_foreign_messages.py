"""Messages of AMQP clients that know nothing of Jakarta Messaging (as Apache Qpid JMS shows them)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.amqp.codec.encoding import encode_value
from legato.amqp.codec.header import Header
from legato.amqp.codec.message import Body, DataBody, Properties, SequenceBody, ValueBody, encode_message
from legato.amqp.codec.types import Array, Byte, Char, Decimal, Described, Symbol, Timestamp, UByte, UInt, ULong, UShort
from legato.client import (
    BytesMessage,
    Message,
    ObjectMessage,
    Queue,
    TemporaryQueue,
    TemporaryTopic,
    TextMessage,
    Topic,
)
from legato.client.mapping.received import read_message
from legato.errors import MessageFormatError
from tests.unit.client.passing import as_proton, body_bytes, encoded, read

HEADER = b"\x00\x53\x70\x45"
DATA = b"\x00\x53\x75"
SEQUENCE = b"\x00\x53\x76"
VALUE = b"\x00\x53\x77"
SIMPLE = [
    True,
    UByte(1),
    Byte(-1),
    UShort(2),
    UInt(3),
    ULong(1 << 63),
    -5,
    1.5,
    Char("c"),
    Timestamp(7),
    UUID(int=9),
    Symbol("s"),
    Decimal(b"\0\0\0\1"),
]


def foreign(body: Body | None, content_type: str | None = None, **rest: Any) -> bytes:
    return encode_message(header=Header(), properties=Properties(content_type=content_type), body=body, **rest)


@pytest.mark.parametrize("number", SIMPLE, ids=lambda value: type(value).__name__)
def test_a_simple_value_is_an_object(number: Any) -> None:
    message = read(foreign(ValueBody(number)))
    kind = TextMessage if isinstance(number, str) and type(number) is str else ObjectMessage
    assert (type(message), message.body) == (kind, number)


@pytest.mark.parametrize(
    ("body", "content_type", "kind", "shown"),
    [
        (ValueBody("text"), None, TextMessage, "text"),
        (ValueBody(None), None, TextMessage, None),
        (ValueBody(b"bytes"), None, BytesMessage, b"bytes"),
        (ValueBody({"a": [1]}), None, ObjectMessage, {"a": [1]}),
        (ValueBody([1, None]), None, ObjectMessage, [1, None]),
        (ValueBody(Described(ULong(77), "x")), None, ObjectMessage, Described(ULong(77), "x")),
        (ValueBody(Array([Byte(1), Byte(2)])), None, ObjectMessage, [1, 2]),
        (SequenceBody([1, "two"]), None, ObjectMessage, [1, "two"]),
        (DataBody(b"\xff"), None, BytesMessage, b"\xff"),
        (DataBody(b"\xff"), "application/octet-stream", BytesMessage, b"\xff"),
        (DataBody(b"\xff"), "image/png", BytesMessage, b"\xff"),
        (DataBody(b"\xff"), "no type", BytesMessage, b"\xff"),
        (DataBody("größe".encode()), "text/plain", TextMessage, "größe"),
        (DataBody("größe".encode("latin-1")), "text/plain; charset=ISO-8859-1", TextMessage, "größe"),
        (DataBody("größe".encode("utf-16")), 'TEXT/Plain;x=1;Charset="UTF-16"', TextMessage, "größe"),
        (DataBody(b"{}"), "application/json", TextMessage, "{}"),
        (DataBody(b"{}"), "application/problem+json", TextMessage, "{}"),
        (DataBody(b"<a/>"), "application/atom+xml; charset=utf-8", TextMessage, "<a/>"),
        (DataBody(b"x"), "text/plain; charset=klingon", BytesMessage, b"x"),
        (DataBody(b"x"), "text/plain; charset=base64", BytesMessage, b"x"),
        (DataBody(b""), "text/plain", TextMessage, ""),
    ],
)
def test_the_class_follows_from_the_body_and_the_content_type(
    body: Body, content_type: str | None, kind: type[Message], shown: Any
) -> None:
    message = read(foreign(body, content_type))
    assert (type(message), message.body, message.content_type) == (kind, shown, content_type)


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        (None, BytesMessage),
        ("application/octet-stream", BytesMessage),
        ("application/x-java-serialized-object", ObjectMessage),
        ("text/plain", TextMessage),
        ("image/png", Message),
    ],
)
def test_a_message_without_a_body_is_of_the_class_of_its_content_type(
    content_type: str | None, kind: type[Message]
) -> None:
    data = foreign(None, content_type)
    message = read(data[: data.index(VALUE)])
    assert (type(message), message.body or None) == (kind, None)


def test_sections_of_the_same_kind_are_one_body() -> None:
    data = read(HEADER + DATA + encode_value(b"te") + DATA + encode_value(b"a"))
    assert (type(data), data.body) == (BytesMessage, b"tea")
    values = read(HEADER + SEQUENCE + encode_value([1, 2]) + SEQUENCE + encode_value(["x"]))
    assert (type(values), values.object) == (ObjectMessage, [1, 2, "x"])
    stream = encode_message(
        header=Header(), message_annotations={"x-opt-jms-msg-type": Byte(4)}, body=SequenceBody([1, 2])
    )
    assert read(stream + SEQUENCE + encode_value(["x"])).body == [1, 2, "x"]


@pytest.mark.parametrize("descriptor", [b"\x80" + (0x75).to_bytes(8, "big"), b"\xa3\x10amqp:data:binary"])
def test_descriptors_may_be_spelled_at_length(descriptor: bytes) -> None:
    message = read(HEADER + b"\x00" + descriptor + encode_value(b"tea"))
    assert (type(message), message.body) == (BytesMessage, b"tea")


def test_a_footer_is_not_the_body() -> None:
    footer = b"\x00\x53\x78" + encode_value({Symbol("x-crc"): 5})
    for body in (DATA + encode_value(b"tea"), VALUE + encode_value("tea"), SEQUENCE + encode_value(["tea"])):
        assert read(HEADER + body + footer).body in (b"tea", "tea", ["tea"])
    bare = read(HEADER + footer)
    assert (type(bare), bare.body) == (BytesMessage, b"")
    assert as_proton(encoded(bare)).body is None


@pytest.mark.parametrize(
    ("number", "body", "shown"),
    [
        (5, DataBody(b"tea"), "tea"),
        (5, ValueBody(None), None),
        (3, ValueBody(b"tea"), b"tea"),
        (3, ValueBody(None), b""),
        (2, ValueBody(None), {}),
        (2, ValueBody({Symbol("a"): 1, 2: "b"}), {"a": 1, "2": "b"}),
        (4, ValueBody(None), []),
        (4, ValueBody([1]), [1]),
        (1, DataBody(b"tea"), b"tea"),
        (0, ValueBody("tea"), "tea"),
    ],
)
def test_a_marked_message_may_have_its_body_in_another_section(number: int, body: Body, shown: Any) -> None:
    message = read(encode_message(header=Header(), message_annotations={"x-opt-jms-msg-type": Byte(number)}, body=body))
    assert message.body == shown


@pytest.mark.parametrize(
    ("number", "body"),
    [
        (5, ValueBody(5)),
        (5, DataBody(b"\xff")),
        (3, ValueBody("text")),
        (2, ValueBody([1])),
        (2, DataBody(b"x")),
        (4, ValueBody("text")),
        (4, DataBody(b"x")),
    ],
)
def test_a_body_that_its_mark_does_not_allow_is_received_and_raises_when_it_is_read(number: int, body: Body) -> None:
    data = encode_message(header=Header(), message_annotations={"x-opt-jms-msg-type": Byte(number)}, body=body)
    message = read(data)
    assert message.message_id is None
    with pytest.raises(MessageFormatError, match="cannot be decoded"):
        _ = message.body
    assert body_bytes(encoded(message)) == body_bytes(data)


@pytest.mark.parametrize(
    ("amqp", "message_id", "correlation_id"),
    [
        (UUID(int=5), f"ID:AMQP_UUID:{UUID(int=5)}", f"ID:AMQP_UUID:{UUID(int=5)}"),
        (ULong(5), "ID:AMQP_ULONG:5", "ID:AMQP_ULONG:5"),
        (b"\x0a\xff", "ID:AMQP_BINARY:0AFF", b"\x0a\xff"),
        ("ID:one", "ID:one", "ID:one"),
        ("one", "ID:AMQP_NO_PREFIX:one", "one"),
        ("ID:AMQP_UUID:one", "ID:AMQP_STRING:ID:AMQP_UUID:one", "ID:AMQP_STRING:ID:AMQP_UUID:one"),
        (None, None, None),
    ],
)
def test_ids_are_shown_as_qpid_jms_shows_them_and_go_back_as_they_were(
    amqp: Any, message_id: str | None, correlation_id: str | bytes | None
) -> None:
    data = encode_message(
        header=Header(), properties=Properties(message_id=amqp, correlation_id=amqp), body=ValueBody("x")
    )
    message = read(data)
    assert (message.message_id, message.correlation_id) == (message_id, correlation_id)
    if amqp is not None:
        reply = TextMessage("y")
        for correlation in (message.message_id, message.correlation_id):
            reply.correlation_id = correlation
            assert as_proton(encoded(reply)).correlation_id == amqp


@pytest.mark.parametrize("text", ["ID:AMQP_UUID:x", "ID:AMQP_ULONG:x", "ID:AMQP_ULONG:-1", "ID:AMQP_BINARY:0"])
def test_an_id_that_only_begins_like_one_of_another_type_cannot_be_sent(text: str) -> None:
    message = TextMessage("x")
    message.correlation_id = text
    with pytest.raises(MessageFormatError, match="cannot be sent"):
        encoded(message)


def test_properties_of_amqps_own_types_are_read_as_the_narrowest_type_and_sent_on_as_they_came() -> None:
    names = {f"p{number}": value for number, value in enumerate(SIMPLE)}
    message = read(foreign(ValueBody("x"), application_properties=names))
    assert message.get_short_property("p1") == 1  # UByte
    assert message.get_int_property("p3") == 2  # UShort
    assert message.get_long_property("p4") == 3  # UInt
    assert message.get_long_property("p9") == 7  # Timestamp
    assert message.get_string_property("p10") == str(UUID(int=9))
    assert message.get_string_property("p11") == "s"
    with pytest.raises(MessageFormatError):
        message.get_long_property("p5")  # more than 63 bits
    again = read(encoded(message))
    expected = {name: (type(value), value) for name, value in names.items()}
    shown = {name: (type(value), value) for name, value in again.properties.items() if name in names}
    assert {n: v for n, v in shown.items() if n != "p6"} == {n: v for n, v in expected.items() if n != "p6"}
    assert (
        as_proton(encoded(message)).properties
        == as_proton(foreign(ValueBody("x"), application_properties=names)).properties
    )


@pytest.mark.parametrize("consumer", [Queue("q"), Topic("t"), TemporaryQueue("tq"), TemporaryTopic("tt")])
def test_a_name_without_a_kind_is_of_the_kind_of_the_consumers_destination(consumer: Any) -> None:
    data = encode_message(header=Header(), properties=Properties(to="there", reply_to="here"), body=ValueBody("x"))
    message = read_message(data, consumer, lambda message: None)
    assert (message.destination, message.reply_to) == (type(consumer)("there"), type(consumer)("here"))
    bare = read_message(encode_message(header=Header(), body=ValueBody("x")), consumer, lambda message: None)
    assert (bare.destination, bare.reply_to) == (consumer, None)


@pytest.mark.parametrize(
    ("legacy", "kind"),
    [("queue", Queue), ("topic", Topic), ("queue,temporary", TemporaryQueue), ("topic,temporary", TemporaryTopic)],
)
def test_the_annotations_of_older_clients_name_the_kind(legacy: str, kind: Any) -> None:
    message = read(
        encode_message(
            header=Header(),
            message_annotations={"x-opt-to-type": legacy, "x-opt-reply-type": legacy},
            properties=Properties(to="there", reply_to="here"),
            body=ValueBody("x"),
        )
    )
    assert (message.destination, message.reply_to) == (kind("there"), kind("here"))


@pytest.mark.parametrize("kind", [Timestamp, ULong, int])
def test_a_delivery_time_is_read_whatever_its_type(kind: Any) -> None:
    message = read(
        encode_message(header=Header(), message_annotations={"x-opt-delivery-time": kind(99)}, body=ValueBody("x"))
    )
    assert message.delivery_time == 99


_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, (1 << 32) - 1).map(UInt),
    st.floats(allow_nan=False),
    st.text(max_size=10),
    st.binary(max_size=10),
    st.uuids(),
)
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
_bodies: st.SearchStrategy[Body] = st.one_of(
    _values.map(ValueBody), st.lists(_values, max_size=4).map(SequenceBody), st.binary(max_size=300).map(DataBody)
)


@given(
    _bodies,
    st.none() | st.sampled_from(["text/plain", "application/json", "image/png", "x"]),
    st.none() | st.integers(0, 7),
)
def test_any_body_is_received_and_sent_on_with_its_bytes_as_they_came(
    body: Body, content_type: str | None, number: int | None
) -> None:
    annotations = None if number is None else {"x-opt-jms-msg-type": Byte(number)}
    data = foreign(body, content_type, message_annotations=annotations)
    message = read(data)
    try:
        shown = message.body
    except MessageFormatError:
        assert number is not None or content_type is not None
        shown = None
    assert message.content_type == content_type
    if isinstance(shown, dict | list):
        shown.clear()  # what the application does to its copy stays there
    again = encoded(message)
    assert body_bytes(again) == body_bytes(data)
    assert read(again).content_type == content_type


def test_a_message_of_the_python_proton_client_is_sent_on() -> None:
    sent = proton.Message(body=b"tea", content_type="application/octet-stream", content_encoding="gzip")
    message = read(bytes(sent.encode()))
    found = as_proton(encoded(message))
    assert (found.body, found.content_type, found.content_encoding) == (b"tea", "application/octet-stream", "gzip")
