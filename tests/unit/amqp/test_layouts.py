"""A message means the same however its sections are written: everything that reads one is asked about every layout."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.amqp.codec.admission import Admission
from legato.amqp.codec.dead_letter import annotate
from legato.amqp.codec.expiry_removal import without_expiry
from legato.amqp.codec.message import AmqpMessage, decode_message
from legato.amqp.codec.message_view import flow_calls_of, group_of, read_properties
from legato.amqp.codec.sections import scan, with_delivery
from legato.amqp.codec.selection import matcher
from legato.amqp.codec.stubs import find_body
from legato.amqp.names import FLOW_CALL, FLOW_CALL_NUMBER, FLOW_ID, FLOW_STAGE, FLOW_TRACE_ID
from legato.bulk.columns import Decoder
from legato.bulk.layout import rows_of
from legato.bulk.row_fallback import decode_row
from legato.bulk.schema import COLUMNS
from legato.client.mapping.received import Received
from legato.client.messages.destinations import destination_of
from tests.support.layouts import CONTENTS, Content, layouts, plainly

SELECTORS = [
    "JMSCorrelationID = 'red'",
    "JMSCorrelationID IN ('red', 'blue')",
    "JMSType = 'red'",
    "JMSMessageID LIKE 'a%'",
    "JMSXGroupID = 'blue'",
    "JMSType = 'red' AND colour = 'red'",
    "colour = 'red'",
    "JMSType <> 'red' OR weight = 3",
    "JMSPriority > 4 AND JMSDeliveryMode = 'PERSISTENT'",
    "JMSXGroupSeq = 5 OR JMSXGroupSeq = -1",
]
BARE = Content(True, 4, 0, None, {5: "red"}, None, 0, False)


FLOW = {FLOW_ID: "flow", FLOW_TRACE_ID: "trace", FLOW_STAGE: "stage", FLOW_CALL: "REQUEST", FLOW_CALL_NUMBER: 7}


@st.composite
def same_messages(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A message as most write it, and as anybody may."""
    content = draw(CONTENTS)
    if draw(st.booleans()):
        content = content._replace(items={**(content.items or {}), **FLOW})
    return plainly(content), draw(layouts(content))


@pytest.mark.parametrize("data", [plainly(BARE), plainly(BARE._replace(footer=True))])
def test_a_selector_finds_a_header_field_of_a_message_without_a_body(data: bytes) -> None:
    """Jakarta Messaging 3.8.1: Qpid JMS' `createMessage()` ends with its properties; its replies were lost."""
    assert matcher("JMSCorrelationID = 'red'")(data)


@pytest.mark.parametrize("descriptor", [b"\x00\x80" + (0x75).to_bytes(8, "big"), b"\x00\xa3\x10amqp:data:binary"])
def test_a_selector_finds_a_header_field_whatever_the_bodys_descriptor(descriptor: bytes) -> None:
    data = plainly(BARE) + descriptor + b"\xa0\x01x"
    assert matcher("JMSCorrelationID = 'red'")(data)
    assert not matcher("JMSCorrelationID = 'blue'")(data)


@pytest.mark.parametrize("text", SELECTORS)
def test_a_selector_does_not_see_how_a_message_is_written(text: str) -> None:
    """AMQP 1.2, 3.2; one matcher sees all, since it remembers what messages look like."""
    matches = matcher(text)

    @given(same_messages())
    def agree(pair: tuple[bytes, bytes]) -> None:
        plain, other = pair
        assert matches(other) is matches(plain) is matcher(text)(plain)

    agree()


@given(same_messages())
def test_what_a_message_asks_for_does_not_depend_on_how_it_is_written(pair: tuple[bytes, bytes]) -> None:
    """Message id, priority, times, group, duplicate id: asked twice, of one admission that has seen the other."""
    plain, other = pair
    admission = Admission()
    for data in (plain, other, plain, other):
        stored, message_id, special = admission.admit(data)
        assert (message_id, special) == Admission().admit(plain)[1:]
        assert stored == data


@given(same_messages())
def test_what_a_queue_reads_does_not_depend_on_how_a_message_is_written(pair: tuple[bytes, bytes]) -> None:
    plain, other = pair
    assert group_of(other) == group_of(plain)
    assert flow_calls_of(other) == flow_calls_of(plain)
    assert scan(other).to == scan(plain).to
    assert scan(other).absolute_expiry_ms == scan(plain).absolute_expiry_ms
    names = ["colour", "weight", "JMS_LEGATO_CAUSE"]
    assert read_properties(other, names) == read_properties(plain, names)


@given(same_messages())
def test_what_the_broker_adds_does_not_depend_on_how_a_message_is_written(pair: tuple[bytes, bytes]) -> None:
    """Delivery counts, dead letters' reasons, expiry taken away: the rest stays as it is."""
    plain, other = pair
    for change in (
        lambda data: with_delivery(data, 3, True),
        lambda data: annotate(data, {"JMS_LEGATO_CAUSE": "expired", "colour": 3}),
        without_expiry,
    ):
        assert _decoded(change(other)) == _decoded(change(plain))


@given(same_messages())
def test_a_client_and_a_pipeline_read_the_same_however_a_message_is_written(pair: tuple[bytes, bytes]) -> None:
    plain, other = (Received(data, destination_of("q")) for data in pair)
    assert other.kind is plain.kind
    assert other.headers() == plain.headers()
    assert other.body() == plain.body()
    assert decode_row(pair[1], properties=True) == decode_row(pair[0], properties=True)


@given(st.lists(same_messages(), min_size=1, max_size=4), st.booleans())
def test_columns_of_messages_do_not_depend_on_how_they_are_written(
    pairs: list[tuple[bytes, bytes]], properties: bool
) -> None:
    """Rows that are laid out in another way than the others are decoded by themselves."""
    decoder = Decoder(properties=properties)
    plain, other = (decoder.decode(rows_of(pa.array(messages, pa.binary()))) for messages in zip(*pairs, strict=True))
    for name in COLUMNS:
        assert other[name].to_pylist() == plain[name].to_pylist()


@given(CONTENTS.filter(lambda content: content.body > 0).flatmap(layouts))
def test_the_body_of_a_large_message_is_found_however_it_is_written(data: bytes) -> None:
    assert find_body(data) == scan(data).body_at


def _decoded(data: bytes) -> tuple[Any, ...]:
    message: AmqpMessage = decode_message(data)
    # An empty section says as much as none.
    empty_means_none = tuple(part or None for part in (message.message_annotations, message.application_properties))
    return message.header, message.delivery_annotations, *empty_means_none, message.properties, message.body
