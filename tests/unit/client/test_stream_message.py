"""StreamMessage: values that know their types, in order."""

from __future__ import annotations

from typing import Any

import pytest

from legato.amqp.codec.header import Header
from legato.amqp.codec.message import ValueBody, encode_message
from legato.client import Byte, Char, Float, Int, Long, Short, StreamMessage
from legato.errors import MessageEOFError, MessageFormatError, MessageNotReadableError, MessageNotWriteableError
from tests.unit.client.passing import as_proton, body_bytes, encoded, passed, read

VALUES: list[Any] = [True, Byte(1), Short(2), Char("c"), Int(3), Long(4), Float(1.5), 2.5, "text", b"raw", None]


def test_a_stream_goes_as_an_amqp_sequence() -> None:
    data = encoded(StreamMessage(VALUES))
    assert as_proton(data).annotations["x-opt-jms-msg-type"] == 4
    assert body_bytes(data)[:3] == b"\x00\x53\x76"
    assert as_proton(data).body == VALUES


def test_values_come_back_with_their_types() -> None:
    message = passed(StreamMessage(VALUES))
    assert isinstance(message, StreamMessage)
    assert message.body == VALUES
    found = [message.read_object() for _ in VALUES]
    assert [(type(value), value) for value in found] == [(type(value), value) for value in VALUES]
    with pytest.raises(MessageEOFError):
        message.read_object()
    message.reset()
    assert message.read_boolean() is True


def test_a_message_is_either_written_or_read() -> None:
    message = StreamMessage()
    message.write_int(1)
    with pytest.raises(MessageNotReadableError, match="reset"):
        message.read_int()
    message.reset()
    with pytest.raises(MessageNotWriteableError, match="clear_body"):
        message.write_int(2)
    with pytest.raises(MessageNotWriteableError, match="clear_body"):
        message.body = []
    assert message.read_int() == 1
    message.clear_body()
    assert message.body == []
    message.write_object("x")
    assert message.body == ["x"]


def test_a_received_message_is_read_and_can_be_written_once_it_is_cleared() -> None:
    message = passed(StreamMessage([1]))
    with pytest.raises(MessageNotWriteableError):
        message.write_string("x")
    message.clear_body()
    message.write_string("x")
    assert passed(message).read_string() == "x"


def test_bytes_are_read_in_parts_until_one_is_short() -> None:
    message = passed(StreamMessage([b"abcde", 1]))
    assert message.read_bytes(2) == b"ab"
    for other in (message.read_int, message.read_object, message.read_string):
        with pytest.raises(MessageFormatError, match="rest of the bytes"):
            other()
    assert (message.read_bytes(2), message.read_bytes(2), message.read_int()) == (b"cd", b"e", 1)


def test_bytes_that_fill_the_last_part_end_with_none() -> None:
    message = passed(StreamMessage([b"abcd", 1]))
    assert (message.read_bytes(2), message.read_bytes(2), message.read_bytes(2)) == (b"ab", b"cd", None)
    assert message.read_int() == 1


def test_bytes_are_read_whole_and_none_is_told_from_empty() -> None:
    message = passed(StreamMessage([b"abcd", b"", None, b"ef"]))
    assert (message.read_bytes(), message.read_bytes(2), message.read_bytes(2)) == (b"abcd", b"", None)
    assert (message.read_bytes(1), message.read_bytes()) == (b"e", b"f")
    with pytest.raises(MessageEOFError):
        message.read_bytes()


def test_what_is_no_bytes_is_not_read_as_bytes() -> None:
    message = passed(StreamMessage(["text"]))
    with pytest.raises(MessageFormatError):
        message.read_bytes()
    with pytest.raises(MessageFormatError):
        passed(StreamMessage([b"x"])).read_bytes(-1)
    assert message.read_string() == "text"


@pytest.mark.parametrize("value", [[], {}, object(), 1 << 63])
def test_a_value_is_primitive(value: Any) -> None:
    with pytest.raises(MessageFormatError):
        StreamMessage().write_object(value)
    with pytest.raises(MessageFormatError):
        StreamMessage([value])


def test_get_body_never_returns_a_stream() -> None:
    message = passed(StreamMessage([1]))
    assert message.is_body_assignable_to(object) is False
    with pytest.raises(MessageFormatError):
        message.get_body(list)


def test_the_body_is_a_copy_and_can_be_set_as_a_whole() -> None:
    message = StreamMessage()
    message.body = [1, "two"]
    message.body.append(3)
    assert message.body == [1, "two"]


def test_a_list_as_a_value_is_a_stream_too() -> None:
    """Qpid JMS reads and writes it so if the message came so."""
    data = encode_message(
        header=Header(), message_annotations={"x-opt-jms-msg-type": Byte(4)}, body=ValueBody([Int(1), "x"])
    )
    message = read(data)
    assert (message.read_int(), message.read_string()) == (1, "x")
    assert body_bytes(encoded(message)) == body_bytes(data)
