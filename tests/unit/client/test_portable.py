"""Messages as objects for JSON, and back: each type of body and property comes back as it was."""

import json
import math
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.amqp.codec.types import (
    Array,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from legato.client import BytesMessage, MapMessage, Message, ObjectMessage, Queue, StreamMessage, TextMessage, Topic
from legato.client.messages.java_object import JavaObject
from legato.client.messages.message import DeliveryMode
from legato.client.messages.portable import as_plain, from_plain, tagged, untagged
from legato.errors import MessageFormatError

VALUES: list[Any] = [
    *(None, True, False, "", "tea\u2028\U0001f375", 1.5, -0.0, math.inf, -math.inf),
    *(Byte(-128), Short(-1), Int(7), 7, 1 << 62, Float(0.1), Char("x"), b"\x00\xff", Symbol("s")),
    *(UByte(255), UShort(1), UInt(1), ULong((1 << 64) - 1), Timestamp(5), UUID(int=3), Decimal(b"1234")),
    *([1, [Int(2), {"a": b"b"}]], {"a": 1, 2: {"b": [None]}}, Array([Int(1), Int(2)]), {"long": 5}, {"map": []}),
    *(Described(ULong(3), "x"), JavaObject(b"\xac\xed\x00\x05t\x00\x01a")),
]


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return len(one) == len(other) and all(map(same, one.items(), other.items()))
    if isinstance(one, tuple):
        return all(map(same, one, other))
    return repr(one) == repr(other)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_with_its_type(value: Any) -> None:
    assert same(untagged(through_json(tagged(value))), value)


@given(st.recursive(st.none() | st.booleans() | st.text() | st.floats(allow_nan=False) | st.binary(), st.lists))
def test_any_value_comes_back(value: Any) -> None:
    assert same(untagged(through_json(tagged(value))), value)


def message_with(kind: type[Message], body: Any) -> Message:
    message = kind()
    message._body_value = body
    message.properties.update({"byte": Byte(1), "long": 5, "text": "tea", "half": Float(0.5), "none": None})  # type: ignore[typeddict-item, unused-ignore]
    message.properties._values["a-b"] = ULong(3)  # As AMQP clients may say.
    message.correlation_id = b"\x01"
    message.reply_to = Topic("answers")
    message.type, message.content_type = "order", "text/plain"
    message.priority, message.delivery_mode, message.expiration = 7, DeliveryMode.NON_PERSISTENT, 12345
    return message


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (TextMessage, "tea"),
        (TextMessage, None),
        (BytesMessage, b"\x00\xff"),
        (MapMessage, {"short": Short(3), "bytes": b"x", "null": None, "char": Char("c"), "int": Int(1), "long": 1}),
        (StreamMessage, [Byte(1), "x", Float(0.5), None]),
        (ObjectMessage, {"a": [1, {"b": UUID(int=1)}]}),
        (Message, None),
    ],
)
def test_a_message_comes_back_as_it_was(kind: type[Message], body: Any) -> None:
    message = message_with(kind, body)
    again = from_plain(through_json(as_plain(message)))
    assert type(again) is kind
    assert same(again._read_body(), body)
    assert same(again.properties._values, message.properties._values)
    for header in ("correlation_id", "reply_to", "type", "content_type", "priority", "delivery_mode", "expiration"):
        assert getattr(again, header) == getattr(message, header), header
    assert again._encoded_body() == message._encoded_body()


def test_what_somebody_writes_is_short() -> None:
    message = from_plain({"body": "tea", "properties": {"pounds": 2, "milk": False}, "reply_to": "answers"})
    assert isinstance(message, TextMessage)
    assert (message.text, dict(message.properties)) == ("tea", {"pounds": 2, "milk": False})
    assert message.reply_to == Queue("answers")


@pytest.mark.parametrize(
    ("plain", "hint"),
    [
        ({"boddy": "x"}, "'boddy': known are body,"),
        ({"kind": "txt"}, "kind is 'txt'"),
        ({"body": 5}, "body is a text"),
        ({"kind": "bytes", "body": "no base64!"}, "is not base64"),
        ({"kind": "map", "body": []}, "An object is needed"),
        ({"kind": "map", "body": {"a": {"b": 1, "c": 2}}}, "a type and a value are needed"),
        ({"kind": "stream", "body": "x"}, "is a list"),
        ({"properties": {"a": {"lang": 5}}}, "There is no type 'lang'; there are long, byte"),
        ({"properties": {"a": {"byte": 500}}}, ""),
        ({"properties": {"a": {"long": 1 << 64}}}, ""),
        ({"properties": 5}, "An object is needed"),
        ({"priority": 10}, "priority is a whole number from 0 to 9"),
        ({"priority": True}, "priority is a whole number"),
        ({"persistent": "yes"}, "persistent is true or false"),
        ({"reply_to": "x://y"}, "reply_to is 'x://y'"),
        ({"correlation_id": 5}, "correlation_id is a text, or bytes"),
        ({"expiration": -1}, "expiration is a whole number"),
    ],
)
def test_what_no_message_has_is_named(plain: dict[str, Any], hint: str) -> None:
    with pytest.raises(MessageFormatError) as raised:
        from_plain(plain)
    assert hint in str(raised.value)
    assert str(raised.value)
