"""BytesMessage: all of it at once, and as a stream of primitive values."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.client import Byte, BytesMessage, Char, Float, Int, Long, Short
from legato.client.messages.modified_utf8 import decode_modified_utf8, encode_modified_utf8
from legato.errors import MessageEOFError, MessageFormatError, MessageNotReadableError, MessageNotWriteableError
from tests.unit.client.passing import as_proton, encoded, passed


def written() -> BytesMessage:
    """A message with a value of each type."""
    message = BytesMessage()
    message.write_boolean(True)
    message.write_byte(-1)
    message.write_short(-2)
    message.write_char("ß")
    message.write_int(-3)
    message.write_long(-4)
    message.write_float(1.5)
    message.write_double(-0.1)
    message.write_utf("a\0ß€🍵")
    message.write_bytes(b"rest")
    return message


JAVA = bytes.fromhex(
    "01 ff fffe 00df fffffffd fffffffffffffffc 3fc00000 bfb999999999999a"
    "000e 61 c080 c39f e282ac eda0bcedbdb5 72657374".replace(" ", "")
)
"""What Java's `DataOutputStream` writes for the same values."""


def test_values_are_written_as_java_writes_them() -> None:
    assert written().body == JAVA


@pytest.mark.parametrize("sent", [False, True], ids=["new", "received"])
def test_values_are_read_as_they_were_written(sent: bool) -> None:
    message = passed(written()) if sent else written()
    message.reset()
    assert message.body_length == len(JAVA)
    assert message.read_boolean() is True
    assert (message.read_byte(), message.read_short(), message.read_char()) == (-1, -2, "ß")
    assert (message.read_int(), message.read_long()) == (-3, -4)
    assert (message.read_float(), message.read_double()) == (1.5, -0.1)
    assert message.read_utf() == "a\0ß€🍵"
    assert [message.read_bytes(3), message.read_bytes(3), message.read_bytes(3)] == [b"res", b"t", b""]
    message.reset()
    assert message.read_bytes() == JAVA


def test_unsigned_values_are_the_same_bytes() -> None:
    message = BytesMessage(b"\xff\xff\xfe\x00")
    message.reset()
    assert (message.read_unsigned_byte(), message.read_unsigned_short(), message.read_byte()) == (255, 65534, 0)


@pytest.mark.parametrize(
    "kind",
    ["boolean", "byte", "unsigned_byte", "short", "unsigned_short", "char", "int", "long", "float", "double", "utf"],
)
def test_a_value_that_the_body_does_not_hold_whole_is_the_end(kind: str) -> None:
    whole = b"" if kind in ("boolean", "byte", "unsigned_byte") else b"\x00"
    message = passed(BytesMessage(whole))
    with pytest.raises(MessageEOFError):
        getattr(message, f"read_{kind}")()
    assert message.read_bytes() == whole


def test_a_string_that_is_cut_off_is_the_end_and_one_that_is_none_stays_unread() -> None:
    cut = passed(BytesMessage(b"\x00\x05abc"))
    with pytest.raises(MessageEOFError):
        cut.read_utf()
    wrong = passed(BytesMessage(b"\x00\x01\xff"))
    with pytest.raises(MessageFormatError):
        wrong.read_utf()
    assert wrong.read_bytes() == b"\x00\x01\xff"


def test_a_message_is_either_written_or_read() -> None:
    message = BytesMessage(b"tea")
    for read in (message.read_byte, message.read_utf, message.read_bytes, lambda: message.body_length):
        with pytest.raises(MessageNotReadableError, match="reset"):
            read()
    message.reset()
    with pytest.raises(MessageNotWriteableError, match="clear_body"):
        message.write_byte(1)
    with pytest.raises(MessageNotWriteableError, match="clear_body"):
        message.body = b"x"
    message.clear_body()
    assert message.body == b""
    message.write_byte(1)
    with pytest.raises(MessageNotReadableError):
        message.read_byte()


def test_the_whole_body_and_its_pieces_can_be_mixed() -> None:
    message = BytesMessage(b"tea")
    message.write_byte(33)
    assert message.body == b"tea!"
    message.write_bytes(bytearray(b"?"))
    assert passed(message).body == b"tea!?"
    message.body = b"coffee"
    message.write_bytes(memoryview(b"."))
    assert as_proton(encoded(message)).body == b"coffee."


def test_a_message_that_was_sent_can_be_written_on() -> None:
    message = BytesMessage()
    message.write_int(1)
    assert passed(message).body == b"\0\0\0\1"
    message.write_int(2)
    assert passed(message).body == b"\0\0\0\1\0\0\0\2"


def test_a_received_message_is_read_and_can_be_written_once_it_is_cleared() -> None:
    message = passed(written())
    with pytest.raises(MessageNotWriteableError):
        message.write_byte(1)
    assert message.read_boolean() is True
    message.clear_body()
    message.write_byte(2)
    assert passed(message).body == b"\2"


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (True, b"\1"),
        (Byte(1), b"\1"),
        (Short(1), b"\0\1"),
        (Int(1), b"\0\0\0\1"),
        (Long(1), b"\0\0\0\0\0\0\0\1"),
        (Float(1.5), b"\x3f\xc0\0\0"),
        (1.5, b"\x3f\xf8\0\0\0\0\0\0"),
        (Char("A"), b"\0A"),
        ("A", b"\0\1A"),
        (b"A", b"A"),
    ],
)
def test_an_object_is_written_as_its_type_says(value: Any, raw: bytes) -> None:
    message = BytesMessage()
    message.write_object(value)
    assert message.body == raw


@pytest.mark.parametrize("value", [1, None, [], Byte(200), "x" * 65536])
def test_an_object_of_no_type_is_refused(value: Any) -> None:
    message = BytesMessage()
    with pytest.raises(MessageFormatError):
        message.write_object(value)
    assert message.body == b""


@pytest.mark.parametrize("length", [-1, -100])
def test_a_negative_number_of_bytes_cannot_be_read(length: int) -> None:
    with pytest.raises(MessageFormatError):
        passed(BytesMessage(b"x")).read_bytes(length)


def test_get_body_returns_the_bytes_and_begins_anew() -> None:
    message = passed(BytesMessage(b"tea"))
    message.read_byte()
    assert (message.get_body(bytes), message.get_body(object)) == (b"tea", b"tea")
    assert message.read_bytes() == b"tea"
    assert (message.is_body_assignable_to(bytes), message.is_body_assignable_to(str)) == (True, False)
    with pytest.raises(MessageFormatError):
        message.get_body(str)
    empty = BytesMessage()
    assert (empty.is_body_assignable_to(str), empty.get_body(str)) == (True, None)


@given(st.text(max_size=50) | st.text(st.characters(), max_size=50))
def test_a_string_in_modified_utf8_is_read_as_it_was_written(text: str) -> None:
    raw = encode_modified_utf8(text)
    assert b"\0" not in raw
    assert not raw or max(raw) < 0xF0
    assert decode_modified_utf8(raw) == text


@pytest.mark.parametrize("raw", [b"\xff", b"\xc3", "🍵".encode(), b"\xe2\x82"])
def test_bytes_that_are_no_modified_utf8_are_refused(raw: bytes) -> None:
    with pytest.raises(MessageFormatError):
        decode_modified_utf8(raw)


@given(st.floats(width=32))
def test_a_float_crosses_as_it_is(number: float) -> None:
    message = BytesMessage()
    message.write_float(number)
    again = passed(message).read_float()
    assert again == number or (math.isnan(again) and math.isnan(number))
