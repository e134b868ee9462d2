"""What a broker reads of messages and how it sends them on, against python-proton's own encoder."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import proton
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.amqp.codec.sections import (
    DataBody,
    Declare,
    Discharge,
    Header,
    Properties,
    SequenceBody,
    ValueBody,
    decode_coordinator,
    decode_message,
    encode_declare,
    encode_discharge,
    encode_message,
    normalise,
    scan,
    with_delivery,
)
from legato.amqp.codec.types import Byte, Described, Symbol, UInt, ULong
from legato.amqp.names import REDELIVERED
from legato.errors import ProtocolError
from tests.support.examples import examples

ids = st.one_of(st.none(), st.text(max_size=300), st.integers(0, 2**64 - 1), st.uuids(), st.binary(max_size=20))
texts = st.one_of(st.none(), st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=300))
bodies = st.one_of(st.none(), st.text(max_size=300), st.binary(max_size=400), st.lists(st.integers(0, 5), max_size=3))
KEYS = st.text("abcdefgh-", min_size=1, max_size=8)


@st.composite
def proton_messages(draw: st.DrawFn) -> proton.Message:
    """A message by somebody else's encoder."""
    body = draw(bodies)
    message = proton.Message(body=body, inferred=isinstance(body, bytes))
    message.durable = draw(st.booleans())
    message.priority = draw(st.integers(0, 9))
    message.ttl = draw(st.integers(0, 10**6))
    message.first_acquirer = draw(st.booleans())
    message.delivery_count = draw(st.sampled_from([0, 0, 1, 7, 300, 2**32 - 1]))
    message.id = draw(ids)
    message.correlation_id = draw(ids)
    message.address = draw(texts)
    message.subject = draw(texts)
    message.reply_to = draw(texts)
    message.user_id = draw(st.binary(max_size=5))
    message.creation_time = draw(st.integers(0, 2**40)) / 1000
    message.expiry_time = draw(st.integers(0, 2**40)) / 1000
    message.group_id = draw(texts)
    message.group_sequence = draw(st.integers(0, 2**32 - 1))
    if draw(st.booleans()):
        message.instructions = {proton.symbol(draw(KEYS)): draw(st.integers(0, 9))}
    if draw(st.booleans()):
        message.annotations = {proton.symbol(draw(KEYS)): proton.byte(draw(st.integers(0, 5)))}
    message.properties = draw(st.one_of(st.none(), st.dictionaries(KEYS, st.integers(-9, 9), max_size=4)))
    return message


def read_by_proton(data: bytes) -> proton.Message:
    message = proton.Message()
    message.decode(data)
    return message


def plain(value: Any) -> Any:
    """Proton hands out views of its own memory."""
    return bytes(value) if isinstance(value, memoryview) else value


def id_text(value: Any) -> str:
    value = plain(value)
    if value is None:
        return ""
    return value.hex() if isinstance(value, bytes) else str(value)


def content(message: proton.Message) -> dict[str, Any]:
    """Everything that goes over the wire."""
    names = "durable priority ttl first_acquirer delivery_count id user_id address subject reply_to correlation_id "
    names += "creation_time expiry_time group_id group_sequence instructions annotations properties body"
    return {name: plain(getattr(message, name)) for name in names.split()}


@settings(max_examples=examples(300))
@given(proton_messages())
def test_scanning_finds_what_proton_wrote(message: proton.Message) -> None:
    data = bytes(message.encode())
    sections = scan(data)
    assert sections.durable == message.durable
    assert sections.priority == message.priority
    assert (sections.ttl_ms or 0) == round(message.ttl * 1000)
    assert sections.delivery_count == message.delivery_count
    assert sections.header.first_acquirer == message.first_acquirer
    assert sections.message_id == id_text(message.id)
    assert (sections.absolute_expiry_ms or 0) == round(message.expiry_time * 1000)
    assert sections.to == message.address
    assert sections.has_delivery_annotations == (message.instructions is not None)
    assert sections.application_properties() == (message.properties or {})
    assert sections.message_annotations() == (message.annotations or {})


@settings(max_examples=examples(300))
@given(proton_messages())
def test_what_is_stored_has_neither_count_nor_delivery_annotations(message: proton.Message) -> None:
    data = bytes(message.encode())
    stored = normalise(data, scan(data))
    sections = scan(stored)
    assert sections.delivery_count == 0
    assert not sections.has_delivery_annotations
    assert normalise(stored, sections) is stored
    message = read_by_proton(data)
    message.delivery_count = 0
    message.instructions = None
    assert content(read_by_proton(stored)) == content(message)
    if not scan(data).delivery_count and not scan(data).has_delivery_annotations:
        assert stored is data


@settings(max_examples=examples(300))
@given(proton_messages(), st.sampled_from([0, 1, 5, 255, 256, 2**32 - 1, 2**40]), st.booleans())
def test_a_redelivery_says_so_and_changes_nothing_else(message: proton.Message, count: int, flagged: bool) -> None:
    data = bytes(message.encode())
    stored = normalise(data, scan(data))
    again = with_delivery(stored, count, flagged)
    if not count and not flagged:
        assert again is stored
    message = read_by_proton(data)
    message.delivery_count = min(count, 2**32 - 1)
    message.instructions = {proton.symbol(REDELIVERED): True} if flagged else None
    assert content(read_by_proton(again)) == content(message)
    assert normalise(again, scan(again)) == with_delivery(stored, 0, False) or count
    assert again.endswith(stored[scan(stored).header_end :])


def test_a_message_without_a_header_gets_one_when_it_is_redelivered() -> None:
    stored = encode_message(header=Header(), body=DataBody(b"x"))
    assert normalise(stored, scan(stored)) is stored
    again = with_delivery(stored, 2, True)
    read = read_by_proton(again)
    assert (read.delivery_count, read.durable, read.priority, plain(read.body)) == (2, False, 4, b"x")
    assert normalise(again, scan(again))[-len(stored) :] == stored


def test_every_way_to_write_a_descriptor_is_read() -> None:
    header = b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x70\xc0\x02\x01\x41"
    properties = b"\x00\xa3\x14amqp:properties:list\xd0\x00\x00\x00\x07\x00\x00\x00\x01\xa1\x01i"
    body = b"\x00\xa3\x10amqp:data:binary\xa0\x01x"
    sections = scan(header + properties + body)
    assert sections.durable
    assert sections.message_id == "i"
    assert decode_message(header + properties + body).body == DataBody(b"x")
    assert read_by_proton(with_delivery(header + properties + body, 3, False)).delivery_count == 3


@pytest.mark.parametrize(
    ("encoded", "text"),
    [
        (b"\xa1\x02ID", "ID"),
        (b"\xb1\x00\x00\x00\x02ID", "ID"),
        (b"\x80\x00\x00\x00\x00\x00\x00\x01\x00", "256"),
        (b"\x44", "0"),
        (b"\xa0\x02\x00\xff", "00ff"),
        (b"\x98" + bytes(range(16)), str(UUID(bytes=bytes(range(16))))),
        (b"\x40", ""),
    ],
)
def test_message_ids_of_all_types_have_a_text(encoded: bytes, text: str) -> None:
    fields = bytes((len(encoded) + 1, 1)) + encoded
    assert scan(b"\x00\x53\x73\xc0" + fields + b"\x00\x53\x75\xa0\x00").message_id == text


def test_no_data_is_a_message_without_anything() -> None:
    assert scan(b"").message_id == ""
    assert decode_message(b"").body is None


VALID = encode_message(
    header=Header(durable=True, ttl_ms=5, delivery_count=2),
    delivery_annotations={"d": 1},
    message_annotations={"m": Byte(1)},
    properties=Properties(message_id="id", to="q"),
    application_properties={"a": "b"},
    body=DataBody(b"body"),
)


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"\x00",
        b"\x00\x53",
        b"\x00\x53\x70",
        b"\x00\x53\x70\xc0\x05\x01\x41",
        b"\x00\x53\x70\xa1\x01x",
        b"\x00\x53\x70\xc0\x02\x01\x43",
        b"\x00\x53\x70\xc0\x03\x02\x40\x41",
        b"\x00\x53\x73\xc0\xff\x01\xa1",
        b"\x00\x53\x73\xc0\x04\x01\xa1\x05x",
        b"\x00\x53\x73\xc0\x04\x01\xa1\x01\xff",
        b"\x00\x53\x73\xc0\x03\x01\x41\x00",
        b"\x00\x53\x73\xa1\x01x",
        b"\x00\x53\x74\xc1\x01\x00\x00\x53\x73\x45",
        b"\x00\x53\x73\x45\x00\x53\x73\x45",
        b"\x00\x53\x70\x45\x00\x53\x70\x45",
        b"\x00\x53\x79\x45",
        b"\x00\x53\x10\x45",
        b"\x00\x53\x75\xa0\x05abc",
        b"\x00\x53\x77",
    ],
)
def test_malformed_sections_are_errors(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        scan(data)


def test_a_message_that_is_cut_off_is_an_error_or_ends_between_sections() -> None:
    whole = 0
    for size in range(len(VALID)):
        try:
            sections = scan(VALID[:size])
        except ProtocolError:
            continue
        whole += 1
        assert sections.body_at == size
    assert whole == 6


@settings(max_examples=examples(500))
@given(st.integers(0, len(VALID) - 1), st.integers(0, 255), st.integers(0, 3), st.booleans())
def test_a_message_with_a_byte_changed_is_read_or_an_error(at: int, byte: int, cut: int, flagged: bool) -> None:
    data = VALID[:at] + bytes((byte,)) + VALID[at + 1 + cut :]
    try:
        sections = scan(data)
    except ProtocolError:
        return
    stored = normalise(data, sections)
    assert scan(with_delivery(stored, 3, flagged)).delivery_count == 3
    assert scan(with_delivery(stored, 0, flagged)).message_id == sections.message_id
    for read in (sections.properties, sections.application_properties, sections.message_annotations):
        try:
            read()
        except ProtocolError:
            continue


@settings(max_examples=examples(300))
@given(st.binary(max_size=80))
def test_bytes_are_a_message_or_a_protocol_error(data: bytes) -> None:
    for read in (scan, decode_message, decode_coordinator):
        for message in (data, b"\x00\x53\x70" + data, b"\x00\x53\x73" + data, b"\x00\x53\x77\x00" + data):
            try:
                read(message)
            except ProtocolError:
                continue


def test_headers_of_many_kinds_are_not_confused() -> None:
    """Headers are remembered by their bytes."""
    for number in range(300):
        header = Header(durable=bool(number & 1), priority=number % 10, ttl_ms=number, delivery_count=number % 3)
        data = encode_message(header=header, body=DataBody(b"x"))
        assert scan(data).header == header
        assert scan(data).header == header


@pytest.mark.parametrize("txn_id", [b"t", b"\x00\xff" * 16])
@pytest.mark.parametrize("fail", [True, False])
def test_a_coordinator_understands_its_clients(txn_id: bytes, fail: bool) -> None:
    assert decode_coordinator(encode_declare()) == Declare()
    assert decode_coordinator(encode_discharge(txn_id, fail)) == Discharge(txn_id, fail)
    assert decode_coordinator(b"\x00\x53\x70\x45" + encode_discharge(txn_id, fail)) == Discharge(txn_id, fail)


@settings(max_examples=examples(300))
@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"\x40", b"\x41", b"\x42", b"\x56\x00", b"\x56\x01", b"\x56\x02", b"\x43", b"\x41\x41"]),
    st.sampled_from([0, 0, 0, -1, 1]),
    st.sampled_from([1, 2, 2, 3]),
    st.sampled_from([0, 0, 0, -1, 1]),
)
def test_a_discharge_is_understood_alike_whether_it_is_written_as_usual_or_not(
    txn_id: bytes, flag: bytes, longer: int, count: int, wrong: int
) -> None:
    """A short discharge at the beginning of a message is read without a decoder; one behind a header is not."""
    size = len(txn_id)
    binary = (
        b"\xa0%c%b" % (max(0, min(size + wrong, 255)), txn_id)
        if size < 256
        else b"\xb0\x00\x00\x01%c%b" % (size - 256, txn_id)
    )
    fields = binary + flag
    data = b"\x00\x53\x77\x00\x53\x32\xc0%c%c%b" % (max(0, min(len(fields) + 1 + longer, 255)), count, fields)
    answers: list[object] = []
    for message in (data, b"\x00\x53\x70\x45" + data):
        try:
            answers.append(decode_coordinator(message))
        except ProtocolError as error:
            answers.append((str(error), error.condition))
    assert answers[0] == answers[1]


def test_a_coordinator_understands_python_proton() -> None:
    """It writes symbols and a list with a null (amqp.md A7)."""
    declare = proton.Message(body=proton.Described(proton.symbol("amqp:declare:list"), [None]))
    assert decode_coordinator(bytes(declare.encode())) == Declare()
    discharge = proton.Message(body=proton.Described(proton.symbol("amqp:discharge:list"), [b"id", True]))
    assert decode_coordinator(bytes(discharge.encode())) == Discharge(b"id", True)


@pytest.mark.parametrize(
    "value",
    [None, "declare", Described(ULong(0x33), []), Described(ULong(0x32), []), Described(ULong(0x32), ["text", False])],
)
def test_a_coordinator_refuses_everything_else(value: Any) -> None:
    with pytest.raises(ProtocolError):
        decode_coordinator(encode_message(header=Header(), body=ValueBody(value)))


def test_sequences_and_symbols_are_kept() -> None:
    data = encode_message(header=Header(), body=SequenceBody([Symbol("s"), UInt(7)]))
    message = decode_message(data + b"\x00\x53\x76\x45" + b"\x00\x53\x78\xc1\x01\x00")
    assert message.body == SequenceBody([Symbol("s"), UInt(7)])
