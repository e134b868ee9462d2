"""A message is annotated with the reason it was put away, and is otherwise what it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.amqp.codec.dead_letter import annotate
from legato.amqp.codec.header import Header
from legato.amqp.codec.message import AmqpMessage, DataBody, Properties, ValueBody, decode_message, encode_message
from legato.amqp.codec.message_view import read_properties
from legato.amqp.codec.types import Byte, Int, Symbol
from legato.amqp.codec.values import decode_value, encode_compound
from legato.errors import ProtocolError

NAMES = st.text("JMS_LEGATOabc", min_size=1, max_size=12)
ITEMS = st.dictionaries(NAMES, st.text(max_size=300) | st.integers(-(2**63), 2**63 - 1), max_size=4)
PARTS = st.fixed_dictionaries(
    {
        "header": st.builds(Header, durable=st.booleans(), priority=st.integers(0, 9)),
        "message_annotations": st.sampled_from([None, {Symbol("x-opt-jms-dest"): Byte(0)}]),
        "properties": st.none()
        | st.builds(Properties, message_id=st.text(max_size=9), to=st.none() | st.text(max_size=9)),
        "application_properties": st.none()
        | st.dictionaries(NAMES, st.text(max_size=99) | st.booleans() | st.floats(allow_nan=False), max_size=4),
        "body": st.builds(DataBody, st.binary(max_size=300)) | st.builds(ValueBody, st.text(max_size=300)),
    }
)
FOOTER = b"\x00\x53\x78" + encode_compound(0xC1, [b"\xa3\x01f", b"\x41"])


@given(PARTS, ITEMS, st.booleans())
def test_the_properties_are_there_and_all_else_is_as_it_was(
    parts: dict[str, Any], added: dict[str, str | int], with_footer: bool
) -> None:
    """CONTRACT D: dead letters say why."""
    data = encode_message(**parts) + (FOOTER if with_footer else b"")
    annotated = annotate(data, added)
    assert read_properties(annotated, added) == added
    before, after = decode_message(data), decode_message(annotated)
    assert after.application_properties == {**before.application_properties, **added}
    assert _rest(after) == _rest(before)
    assert annotated.endswith(FOOTER) == with_footer
    assert annotate(annotated, added) == annotated or set(added) & set(before.application_properties)


def _rest(message: AmqpMessage) -> list[Any]:
    return [getattr(message, name) for name in message.__struct_fields__ if name != "application_properties"]


def test_other_properties_keep_their_bytes() -> None:
    odd = b"\xb1\x00\x00\x00\x01k" + b"\x71\x00\x00\x00\x05"
    begin, end = b"\x00\x53\x70\x45", b"\x00\x53\x75\xa0\x01x"
    data = begin + b"\x00\x53\x74" + encode_compound(0xC1, [odd[:6], odd[6:], b"\xa1\x01r", b"\x41"]) + end
    annotated = annotate(data, {"r": 5})
    assert (
        annotated
        == begin + b"\x00\x53\x74" + encode_compound(0xC1, [odd[:6], odd[6:], b"\xa1\x01r", b"\x54\x05"]) + end
    )


def test_a_small_number_is_an_int_and_a_large_one_a_long() -> None:
    data = annotate(encode_message(header=Header(), body=DataBody(b"x")), {"a": 2**31 - 1, "b": 2**31})
    values = decode_message(data).application_properties
    assert (type(values["a"]), type(values["b"])) == (Int, int)


@pytest.mark.parametrize("inside", [b"\xa1", b"\xa1\x05a", b"\xa1\x01a", b"\x54\x01\x54\x01\x54"])
def test_a_message_whose_properties_cannot_be_read_is_kept_as_it_is(inside: bytes) -> None:
    data = b"\x00\x53\x74" + encode_compound(0xC1, [inside]) + b"\x00\x53\x77\x40"
    with pytest.raises(ProtocolError):
        decode_value(data, 3)
    assert annotate(data, {"a": "why"}) is data
