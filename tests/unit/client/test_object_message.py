"""ObjectMessage: what AMQP can carry, and Java's objects passing through."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID

import pytest

from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, Properties, encode_message
from legato.client import Byte, JavaObject, Long, ObjectMessage
from legato.errors import MessageFormatError, MessageNotWriteableError
from tests.unit.client.passing import as_proton, body_bytes, encoded, passed, read

ORDER = {"id": 7, "items": ["tea", {"grams": 100.5}], "paid": True, "note": None, "key": UUID(int=5), "raw": b"\x00"}
JAVA_LONG = bytes.fromhex(
    "aced0005 7372 000e 6a6176612e6c616e672e4c6f6e67 3b8be490cc8f23df 02 0001 4a 0005 76616c7565"
    "7872 0010 6a6176612e6c616e672e4e756d626572 86ac951d0b94e08b 02 0000 7870 0000000000000005".replace(" ", "")
)
"""What Java writes for `Long.valueOf(5)`."""
JAVA_STRING = bytes.fromhex("aced00057400037465") + b"a"
JAVA_NULL = bytes.fromhex("aced000570")
JAVA_ARRAY = bytes.fromhex("aced00057572000b5b") + b"B\xac\xf3"


def from_java(serialised: bytes) -> Any:
    return read(
        encode_message(
            header=Header(),
            message_annotations={"x-opt-jms-msg-type": Byte(1)},
            properties=Properties(content_type="application/x-java-serialized-object"),
            body=DataBody(serialised),
        )
    )


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    LARGE = 3


def test_an_object_goes_as_an_amqp_value_that_every_client_reads() -> None:
    data = encoded(ObjectMessage(ORDER))
    assert as_proton(data).annotations["x-opt-jms-msg-type"] == 1
    assert (as_proton(data).body, read(data).content_type) == (ORDER, None)


@pytest.mark.parametrize("value", [ORDER, [1, 2.5], "text", b"bytes", 5, True, None, UUID(int=1), [], {}])
def test_an_object_comes_back_equal(value: Any) -> None:
    message = passed(ObjectMessage(value))
    assert isinstance(message, ObjectMessage)
    assert (message.object, message.body, message.java_class_name) == (value, value, None)


def test_pythons_own_kinds_of_numbers_strings_and_lists_go_as_what_they_are() -> None:
    value = {"colour": Colour.RED, "size": Size.LARGE, "pair": (1, 2), "long": Long(1), "buffer": bytearray(b"x")}
    found = passed(ObjectMessage(value)).object
    assert found == {"colour": "red", "size": 3, "pair": [1, 2], "long": 1, "buffer": b"x"}
    assert [type(item) for item in found.values()] == [str, int, list, int, bytes]


@pytest.mark.parametrize("value", [object(), {1, 2}, datetime.now(UTC), 1 << 64, [[object()]], {(1, 2): 3}, 1j])
def test_what_amqp_cannot_carry_is_refused_at_once(value: Any) -> None:
    with pytest.raises(MessageFormatError, match="cannot be sent"):
        ObjectMessage(value)


def test_an_object_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(MessageFormatError):
        ObjectMessage(value)


def test_later_changes_to_the_object_do_not_change_the_message() -> None:
    value = [1]
    message = ObjectMessage(value)
    value.append(2)
    message.object.append(3)
    assert (message.object, passed(message).object) == ([1], [1])
    received = passed(message)
    received.object.append(3)
    assert received.object == [1]


def test_a_received_object_is_read_only_until_it_is_cleared() -> None:
    message = passed(ObjectMessage([1]))
    with pytest.raises(MessageNotWriteableError):
        message.object = 2
    message.clear_body()
    assert message.object is None
    message.object = 2
    assert passed(message).object == 2


@pytest.mark.parametrize(
    ("serialised", "name"),
    [(JAVA_LONG, "java.lang.Long"), (JAVA_STRING, "java.lang.String"), (b"", None), (b"\xac\xed\x00\x05\x73", None)],
)
def test_a_java_object_is_its_bytes_with_the_name_of_its_class(serialised: bytes, name: str | None) -> None:
    message = from_java(serialised)
    assert isinstance(message, ObjectMessage)
    assert isinstance(message.object, JavaObject)
    assert (message.object, message.java_class_name, message.object.class_name) == (serialised, name, name)


@pytest.mark.parametrize("serialised", [JAVA_LONG, JAVA_STRING, JAVA_NULL, JAVA_ARRAY])
def test_a_java_object_goes_back_to_java_unchanged(serialised: bytes) -> None:
    original = from_java(serialised)
    for message in (original, ObjectMessage(JavaObject(serialised))):
        found = as_proton(encoded(message))
        assert (found.body, found.content_type) == (serialised, "application/x-java-serialized-object")
        assert found.annotations["x-opt-jms-msg-type"] == 1
    assert body_bytes(encoded(original)) == body_bytes(encoded(ObjectMessage(JavaObject(serialised))))


def test_javas_null_is_none() -> None:
    message = from_java(JAVA_NULL)
    assert (message.object, message.is_body_assignable_to(str), message.get_body(str)) == (None, True, None)


def test_a_cleared_java_message_is_javas_no_longer() -> None:
    message = from_java(JAVA_LONG)
    message.clear_body()
    message.object = {"a": 1}
    assert (passed(message).object, passed(message).content_type) == ({"a": 1}, None)


def test_nothing_is_unpickled() -> None:
    message = from_java(pickle.dumps(ORDER))
    assert (message.object, message.java_class_name) == (pickle.dumps(ORDER), None)


def test_get_body_returns_the_object_as_what_it_is() -> None:
    message = passed(ObjectMessage({"a": 1}))
    assert (message.get_body(dict), message.get_body(object)) == ({"a": 1}, {"a": 1})
    assert message.is_body_assignable_to(list) is False
    with pytest.raises(MessageFormatError):
        message.get_body(list)
