"""Whole messages, written by us and read by python-proton, and the other way round."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.amqp.codec.message import (
    Body,
    DataBody,
    Properties,
    SequenceBody,
    ValueBody,
    decode_message,
    encode_annotations,
    encode_message,
)
from legato.amqp.codec.sections import Header
from legato.amqp.codec.types import Byte, Float, Int, Short
from legato.errors import ProtocolError

texts = st.one_of(st.none(), st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=300))
names = st.one_of(st.none(), st.text("abc/-", min_size=1, max_size=20))
times = st.one_of(st.none(), st.integers(1, 2**42))
headers = st.builds(
    Header,
    durable=st.booleans(),
    priority=st.integers(0, 9),
    ttl_ms=st.one_of(st.none(), st.integers(0, 2**32 - 1)),
    first_acquirer=st.booleans(),
    delivery_count=st.integers(0, 2**32 - 1),
)
properties = st.builds(
    Properties,
    message_id=st.one_of(
        st.none(), st.text(max_size=300), st.uuids(), st.integers(0, 2**64 - 1), st.binary(max_size=9)
    ),
    user_id=st.one_of(st.none(), st.binary(max_size=9)),
    to=texts,
    subject=texts,
    reply_to=texts,
    correlation_id=st.one_of(st.none(), st.text(max_size=9), st.uuids()),
    content_type=names,
    content_encoding=names,
    absolute_expiry_ms=times,
    creation_ms=times,
    group_id=texts,
    group_sequence=st.one_of(st.none(), st.integers(0, 2**32 - 1)),
    reply_to_group_id=texts,
)
bodies = st.one_of(
    st.binary(max_size=400).map(DataBody),
    st.one_of(st.none(), st.text(max_size=300), st.booleans(), st.integers(-(2**63), 2**63 - 1)).map(ValueBody),
    st.lists(st.text(max_size=3), max_size=4).map(SequenceBody),
)
application = st.dictionaries(
    st.text(max_size=9),
    st.one_of(
        st.text(max_size=9), st.booleans(), st.integers(-5, 5), st.integers(-5, 5).map(Int), st.floats(allow_nan=False)
    ),
    max_size=5,
)


def plain(value: Any) -> Any:
    """Proton hands out views of its own memory."""
    return bytes(value) if isinstance(value, memoryview) else value


@given(headers, properties, application, bodies)
def test_what_is_encoded_decodes_to_itself(header: Header, props: Properties, app: dict[str, Any], body: Body) -> None:
    annotations = {"x-opt-jms-msg-type": Byte(5), "x-opt-jms-dest": Byte(0)}
    for given_annotations in (annotations, encode_annotations(annotations)):
        data = encode_message(
            header=header,
            delivery_annotations={"d": True},
            message_annotations=given_annotations,
            properties=props,
            application_properties=app,
            body=body,
        )
        message = decode_message(data)
        assert message.header == header
        assert message.delivery_annotations == {"d": True}
        assert message.message_annotations == annotations
        assert message.properties == props
        assert message.application_properties == app
        assert message.body == body


@given(headers, properties, application, bodies)
def test_proton_reads_what_we_write(header: Header, props: Properties, app: dict[str, Any], body: Body) -> None:
    data = encode_message(header=header, properties=props, application_properties=app, body=body)
    message = proton.Message()
    message.decode(data)
    assert (message.durable, message.priority, message.delivery_count) == (
        header.durable,
        header.priority,
        header.delivery_count,
    )
    assert round(message.ttl * 1000) == (header.ttl_ms or 0)
    assert plain(message.id) == props.message_id
    assert message.correlation_id == props.correlation_id
    assert (message.address, message.subject, message.reply_to) == (props.to, props.subject, props.reply_to)
    assert str(message.content_type) == str(props.content_type)
    assert str(message.content_encoding) == str(props.content_encoding)
    assert round(message.creation_time * 1000) == (props.creation_ms or 0)
    assert round(message.expiry_time * 1000) == (props.absolute_expiry_ms or 0)
    assert (message.group_id, message.group_sequence) == (props.group_id, props.group_sequence or 0)
    assert (message.properties or {}) == app
    expected = body.data if isinstance(body, DataBody) else body.value if isinstance(body, ValueBody) else body.values
    assert plain(message.body) == expected


@given(texts, st.one_of(st.none(), st.text(max_size=300), st.uuids()), st.binary(max_size=400))
def test_we_read_what_proton_writes(to: str | None, message_id: str | UUID | None, body: bytes) -> None:
    written = proton.Message(address=to, id=message_id, body=body, durable=True, inferred=True, properties={"n": 3})
    message = decode_message(bytes(written.encode()))
    assert message.header.durable
    assert message.properties.to == to
    assert message.properties.message_id == message_id
    assert message.application_properties == {"n": 3}
    assert message.body == DataBody(body)


def test_types_of_application_properties_survive() -> None:
    """Jakarta Messaging 3.5.4 converts between them, so they must be known."""
    sent: dict[str, Any] = {
        "byte": Byte(1),
        "short": Short(1),
        "int": Int(1),
        "long": 1,
        "float": Float(0.5),
        "double": 0.5,
    }
    data = encode_message(header=Header(), application_properties=sent)
    came = decode_message(data).application_properties
    assert [(key, type(value)) for key, value in came.items()] == [(key, type(value)) for key, value in sent.items()]


def test_remembered_annotations_are_not_shared() -> None:
    data = encode_message(header=Header(), message_annotations={"x": Byte(1)})
    decode_message(data).message_annotations["x"] = "changed"
    assert decode_message(data).message_annotations == {"x": 1}


def test_several_data_sections_are_one_body() -> None:
    assert decode_message(b"\x00\x53\x75\xa0\x01a" * 3).body == DataBody(b"aaa")


def test_no_body_is_written_as_a_null_value() -> None:
    assert decode_message(encode_message(header=Header())).body == ValueBody(None)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x53\x77\x40\x00\x53\x77\x40",
        b"\x00\x53\x75\xa0\x00\x00\x53\x77\x40",
        b"\x00\x53\x75\x40",
        b"\x00\x53\x76\xa0\x00",
        b"\x00\x53\x72\x45",
        b"\x00\x53\x73\xc0\x03\x02\x40\x41",
        b"\x00\x53\x78\x45",
        b"\x00\x53\x75\xa0\x00\x00\x53\x72\xc1\x01\x00",
    ],
)
def test_malformed_messages_are_errors(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_message(data)


@pytest.mark.parametrize(
    "props", [Properties(group_sequence=2**32), Properties(message_id=2**64), Properties(to="\ud800")]
)
def test_properties_out_of_range_are_refused(props: Properties) -> None:
    with pytest.raises(ValueError, match=r"range|surrogates"):
        encode_message(header=Header(), properties=props)
