"""What selectors find in a message's bytes (amqp.md A3), against the careful decoding of the whole message."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.amqp.codec.header import Header
from legato.amqp.codec.map_entries import plain
from legato.amqp.codec.message import DataBody, Properties, decode_message, encode_message
from legato.amqp.codec.message_view import View, entries_of, group_of, read_properties
from legato.amqp.codec.types import Byte, Float, Int, Short, Symbol, Timestamp, UByte, UInt, ULong, UShort
from legato.amqp.codec.values import encode_compound, encode_string, encode_value
from legato.errors import ProtocolError

LONGS = st.integers(-(2**63), 2**63 - 1)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.text(max_size=300),
    LONGS,
    st.integers(-(2**31), 2**31 - 1).map(Int),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.integers(-128, 127).map(Byte),
    st.integers(0, 255).map(UByte),
    st.integers(0, 2**16 - 1).map(UShort),
    st.integers(0, 2**32 - 1).map(UInt),
    st.integers(0, 2**64 - 1).map(ULong),
    LONGS.map(Timestamp),
    st.floats(allow_nan=False),
    st.floats(width=32, allow_nan=False).map(Float),
    st.text("abc", max_size=5).map(Symbol),
    st.uuids(),
    st.binary(max_size=5),
)
# Names of header fields, which a generator finds in the code, are not those of properties.
NAMES = st.text("ab", min_size=1, max_size=2) | st.text(min_size=1, max_size=300).filter(lambda t: t[:3] != "JMS")


def view(data: bytes) -> View:
    return View(data, *entries_of(data))


def message(**parts: Any) -> bytes:
    return encode_message(**{"header": Header(), "body": DataBody(b"x"), **parts})


@given(st.dictionaries(NAMES, VALUES, max_size=5), NAMES)
def test_an_application_property_is_what_the_whole_message_says(items: dict[str, Any], other: str) -> None:
    data = message(application_properties=items)
    decoded = decode_message(data).application_properties
    looked_at = view(data)
    for name in [*items, other]:
        found = looked_at.get(name)
        assert found == plain(decoded.get(name))
        assert found is None or type(found) in (str, int, float, bool, UUID, bytes)


def test_keys_and_values_in_unusual_encodings_are_found() -> None:
    long_key = b"\xb1\x00\x00\x00\x01k"
    symbol_key = b"\xa3\x01s"
    parts = [long_key, encode_value(1), symbol_key, b"\xb1\x00\x00\x00\x02xy", b"\x54\x05", b"\x41"]
    inside = len(parts).to_bytes(4, "big") + b"".join(parts)
    items = b"\xd1" + len(inside).to_bytes(4, "big") + inside
    data = b"\x00\x80" + (0x74).to_bytes(8, "big") + items + b"\x00\x53\x77\x40"
    assert (view(data).get("k"), view(data).get("s"), view(data).get("x")) == (1, "xy", None)


def test_a_key_within_a_value_is_no_key() -> None:
    data = message(application_properties={"a": "\u00a1\x01b", "b": 2})
    assert view(data).get("b") == 2


FIELDS = [
    ("JMSMessageID", {"properties": Properties(message_id="ID:1")}, "ID:1"),
    ("JMSMessageID", {"properties": Properties(message_id=ULong(7))}, "ID:AMQP_ULONG:7"),
    ("JMSMessageID", {"properties": Properties(message_id=b"\xab")}, "ID:AMQP_BINARY:AB"),
    ("JMSMessageID", {"properties": Properties(message_id=UUID(int=1))}, f"ID:AMQP_UUID:{UUID(int=1)}"),
    ("JMSMessageID", {"properties": Properties(to="q")}, None),
    ("JMSMessageID", {}, None),
    ("JMSCorrelationID", {"properties": Properties(correlation_id="c")}, "c"),
    ("JMSType", {"properties": Properties(subject="car")}, "car"),
    ("JMSPriority", {}, 4),
    ("JMSPriority", {"header": Header(priority=7)}, 7),
    ("JMSPriority", {"header": Header(priority=77)}, 9),
    ("JMSDeliveryMode", {}, "NON_PERSISTENT"),
    ("JMSDeliveryMode", {"header": Header(durable=True)}, "PERSISTENT"),
    ("JMSTimestamp", {"properties": Properties(creation_ms=99)}, 99),
    ("JMSTimestamp", {}, None),
    ("JMSXGroupID", {"properties": Properties(group_id="g")}, "g"),
    ("JMSXGroupSeq", {"properties": Properties(group_sequence=3)}, 3),
    ("JMSXGroupSeq", {"properties": Properties(group_sequence=0xFFFFFFFF)}, -1),
    ("JMSXUserID", {"properties": Properties(user_id=b"guest")}, "guest"),
    ("JMSXDeliveryCount", {"header": Header(delivery_count=3)}, None),
    ("JMS_VENDOR", {"application_properties": {"JMS_VENDOR": "x"}}, "x"),
]


@pytest.mark.parametrize(("name", "parts", "value"), FIELDS)
def test_a_header_field_is_where_the_jms_mapping_puts_it(name: str, parts: dict[str, Any], value: Any) -> None:
    assert view(message(**parts)).get(name) == value
    assert type(view(message(**parts)).get(name)) is type(value)


@pytest.mark.parametrize(
    ("group", "sequence"), [("g", 5), ("g", 0xFFFFFFFF), ("", 0xFFFFFFFF), (None, 0xFFFFFFFF), ("g", None)]
)
def test_a_messages_group_and_whether_it_ends(group: str | None, sequence: int | None) -> None:
    data = message(properties=Properties(group_id=group, group_sequence=sequence))
    assert group_of(data) == (group or "", group == "g" and sequence == 0xFFFFFFFF)


def test_a_message_without_properties_is_of_no_group() -> None:
    assert group_of(message()) == ("", False)


def test_the_properties_asked_for_are_read() -> None:
    data = message(application_properties={"a": 1, "b": "two", "c": None, "d": Int(4)})
    assert read_properties(data, ["a", "c", "d", "e"]) == {"a": 1, "d": 4}
    assert read_properties(message(), ["a"]) == {}


@given(st.binary(max_size=20), st.integers(0, 100))
def test_malformed_properties_are_a_protocol_error(inside: bytes, cut: int) -> None:
    whole = message(application_properties={"a": "text", "b": 2})
    for data in (b"\x00\x53\x74" + encode_compound(0xC1, [inside]) + b"\x00\x53\x77\x40", whole[: cut % len(whole)]):
        try:
            read_properties(data, ["a", "b", "c"])
        except ProtocolError:
            continue


def test_a_text_that_ends_after_its_map_is_not_read() -> None:
    inside = encode_string("a") + b"\xa1\x09abc"
    data = b"\x00\x53\x74" + encode_compound(0xC1, [inside]) + b"\x00\x53\x77\xa1\x09abcdefghi"
    with pytest.raises(ProtocolError):
        read_properties(data, ["a"])
