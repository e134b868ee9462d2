"""MapMessage: a map with the specification's typed methods."""

from __future__ import annotations

from datetime import date
from typing import Any

import proton
import pytest

from legato.amqp.codec.header import Header
from legato.amqp.codec.message import ValueBody, encode_message
from legato.amqp.codec.types import Timestamp, UInt
from legato.client import Byte, Char, Float, Int, Long, MapMessage, Short, StreamMessage
from legato.client.messages.sendable import jakarta_message_of
from legato.errors import MessageFormatError, MessageNotWriteableError
from tests.unit.client.passing import as_proton, encoded, passed, read

FIELDS: dict[str, Any] = {
    "boolean": True,
    "byte": Byte(1),
    "short": Short(2),
    "char": Char("c"),
    "int": Int(3),
    "long": Long(4),
    "float": Float(1.5),
    "double": 2.5,
    "string": "text",
    "bytes": b"raw",
    "null": None,
}


def test_proton_reads_every_field_with_its_type() -> None:
    found = as_proton(encoded(MapMessage(FIELDS)))
    assert found.annotations["x-opt-jms-msg-type"] == 2
    assert found.body == FIELDS
    assert {name: type(value) for name, value in found.body.items()} == {
        "boolean": bool,
        "byte": proton.byte,
        "short": proton.short,
        "char": proton.char,
        "int": proton.int32,
        "long": int,
        "float": proton.float32,
        "double": float,
        "string": str,
        "bytes": memoryview,
        "null": type(None),
    }


def test_a_field_comes_back_with_its_type() -> None:
    message = passed(MapMessage(FIELDS))
    assert isinstance(message, MapMessage)
    assert (message.body, list(message)) == (FIELDS, list(FIELDS))
    assert {name: type(value) for name, value in message.items()} == {n: type(v) for n, v in FIELDS.items()}


def test_a_copied_message_is_the_same_on_the_wire() -> None:
    original = passed(MapMessage(FIELDS))
    copy = MapMessage(original)
    assert as_proton(encoded(copy)).body == as_proton(encoded(original)).body
    assert {name: type(value) for name, value in copy.items()} == {n: type(v) for n, v in original.items()}


def test_a_python_integer_takes_the_type_that_it_fits() -> None:
    message = MapMessage({"small": 1, "large": 1 << 31})
    assert [type(value) for value in message.values()] == [Int, Long]
    assert (message.get_int("small"), message.get_long("small"), message.get_long("large")) == (1, 1, 1 << 31)
    with pytest.raises(MessageFormatError):
        message.get_int("large")
    with pytest.raises(MessageFormatError):
        message["larger"] = 1 << 63


def test_a_message_is_a_mapping() -> None:
    message = MapMessage({"a": 1})
    message["b"] = "two"
    message.update(c=None)
    del message["a"]
    assert (dict(message), len(message), "b" in message, message.get("x")) == ({"b": "two", "c": None}, 2, True, None)
    assert (message.item_exists("c"), message.item_exists("a")) == (True, False)
    with pytest.raises(KeyError):
        message["a"]
    message.body = {"z": 1}
    assert message.body == {"z": 1}


def test_a_message_is_itself_whatever_it_holds() -> None:
    """An empty one must not look like no message in `while message := consumer.receive():`."""
    empty, other = MapMessage(), MapMessage()
    assert empty
    assert empty != other
    assert len({empty, other}) == 2


def test_the_body_is_a_copy() -> None:
    message = MapMessage({"a": 1})
    message.body["a"] = 2
    assert message["a"] == 1


def test_a_received_map_is_read_only_until_it_is_cleared() -> None:
    message = passed(MapMessage({"a": 1}))
    for change in (
        lambda: message.set_int("a", 2),
        lambda: message.update(a=2),
        lambda: message.pop("a"),
        lambda: message.clear(),
        lambda: setattr(message, "body", {}),
    ):
        with pytest.raises(MessageNotWriteableError):
            change()
    assert dict(message) == {"a": 1}
    message.clear_body()
    assert dict(message) == {}
    message["b"] = 2
    assert dict(passed(message)) == {"b": 2}


@pytest.mark.parametrize("name", ["", None, 1])
def test_a_name_is_a_string_and_not_empty(name: Any) -> None:
    with pytest.raises(MessageFormatError):
        MapMessage()[name] = 1


@pytest.mark.parametrize("value", [[], {}, object(), 1 << 63, 1j])
def test_a_field_holds_a_primitive_value(value: Any) -> None:
    with pytest.raises(MessageFormatError):
        MapMessage()["a"] = value


def test_get_body_returns_a_dict() -> None:
    message = passed(MapMessage({"a": 1}))
    assert message.get_body(dict) == {"a": 1}
    assert (message.is_body_assignable_to(dict), message.is_body_assignable_to(str)) == (True, False)
    with pytest.raises(MessageFormatError):
        message.get_body(str)
    assert MapMessage().get_body(str) is None


def test_amqps_own_types_are_read_as_the_narrowest_that_holds_them_and_sent_on_as_they_came() -> None:
    data = encode_message(
        header=Header(),
        message_annotations={"x-opt-jms-msg-type": Byte(2)},
        body=ValueBody({"uint": UInt(5), "time": Timestamp(7), "list": [1, 2]}),
    )
    message = read(data)
    assert (message.get_long("uint"), message.get_long("time"), message.get_string("uint")) == (5, 7, "5")
    with pytest.raises(MessageFormatError):
        message.get_int("uint")
    assert message["list"] == [1, 2]
    with pytest.raises(MessageFormatError, match="list"):
        message.get_string("list")
    copy = MapMessage({"uint": message["uint"], "time": message["time"]})
    assert {name: type(value) for name, value in passed(copy).items()} == {"uint": UInt, "time": Timestamp}


@pytest.mark.parametrize("nested", [{"street": "High"}, ["a", "b"], ("a",), {1, 2}], ids=repr)
def test_what_is_nested_is_refused_with_its_name_the_types_and_what_to_do(nested: Any) -> None:
    """The error named neither the field nor a way out."""
    kind = type(nested).__name__
    types = "boolean, byte, short, char, int, long, float, double, string, bytes or None"
    field = rf"The field 'address' may be a {types}, not a {kind}\. .* JSON: .*create_json_message"
    message = MapMessage()
    for call in (
        lambda: MapMessage({"name": "Ann", "address": nested}),
        lambda: message.set_object("address", nested),
        lambda: message.update(address=nested),
        lambda: jakarta_message_of({"name": "Ann", "address": nested}),
    ):
        with pytest.raises(MessageFormatError, match=field):
            call()
    with pytest.raises(MessageFormatError, match=r"The property 'address' may be a boolean, .* create_json_message"):
        message.properties["address"] = nested
    with pytest.raises(MessageFormatError, match=r"A value of a stream message may be a .* create_json_message"):
        StreamMessage(["Ann", nested])


def test_what_does_not_fit_is_refused_with_its_name() -> None:
    message = MapMessage()
    with pytest.raises(MessageFormatError, match=r"The field 'count' is 4294967296, which does not fit the type int\."):
        message.set_int("count", 1 << 32)
    with pytest.raises(MessageFormatError, match=r"The property 'count' is 'x', which does not fit the type byte\."):
        message.set_byte_property("count", "x")  # type: ignore[arg-type]
    with pytest.raises(MessageFormatError, match=r"The property 'when' may be .*, not a date\. Convert it"):
        message.set_property("when", date(2026, 1, 1))  # type: ignore[arg-type]
    with pytest.raises(
        MessageFormatError, match=r"The field 'n' is a very large number, which does not fit the type long"
    ):
        message["n"] = 10**10_000
    with pytest.raises(MessageFormatError, match=r"characters more, which does not fit the type int"):
        message.set_int("n", "x" * 1000)  # type: ignore[arg-type]
