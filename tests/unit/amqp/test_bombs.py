"""Few bytes that ask for much: what is decoded of them is counted, and has a bound (SECURITY findings 2, 3 and 17)."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Callable

import pytest

from legato import limits
from legato.amqp.codec import decoding
from legato.amqp.codec.admission import Admission
from legato.amqp.codec.coordinator import decode_coordinator
from legato.amqp.codec.decoding import DEPTH_MAX, ELEMENTS_MAX, EMPTY_ELEMENTS_MAX
from legato.amqp.codec.map_entries import LONG_MAP_BYTES
from legato.amqp.codec.message import DataBody, SequenceBody, decode_message
from legato.amqp.codec.sections import scan
from legato.amqp.codec.selection import matcher
from legato.amqp.codec.values import (
    Array,
    ULong,
    decode_value,
    encode_compound,
    encode_string,
    skip_value,
    whole_budget,
)
from legato.amqp.engine import pndata
from legato.amqp.engine.sasl import SASL_HEADER, SaslClient, SaslServer
from legato.client.links.receiver_end import HELD_MAX
from legato.client.mapping.received import Received
from legato.errors import MessageFormatError, ProtocolError

BODY = b"\x00\x53\x75\xa0\x01x"


def array(constructor: int, count: int) -> bytes:
    """An array of elements without bytes."""
    return b"\xf0" + (5).to_bytes(4, "big") + count.to_bytes(4, "big") + bytes((constructor,))


def wide(code: int, count: int, content: bytes) -> bytes:
    """A list (0xD0) or map (0xD1)."""
    return bytes((code,)) + (len(content) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + content


def bomb(arrays: int = 400, elements: int = 65_536) -> bytes:
    """A list of arrays: 4 KB for 26 million elements."""
    return wide(0xD0, arrays, array(0x40, elements) * arrays)


def described(depth: int) -> bytes:
    """A described value in a described value and so on."""
    return b"\x00\x53\x01" * depth + b"\x40"


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many elements without bytes were decoded, added up."""
    made = [0]

    def null(data: bytes, at: int) -> None:
        made[0] += 1

    monkeypatch.setitem(decoding._FIXED, 0x40, (0, null))
    return made


@pytest.mark.parametrize("constructor", sorted(decoding._EMPTY))
def test_an_array_of_elements_without_bytes_is_legal_up_to_a_bound(constructor: int) -> None:
    value, end = decode_value(array(constructor, EMPTY_ELEMENTS_MAX))
    assert isinstance(value, Array)
    assert len(value) == EMPTY_ELEMENTS_MAX
    assert end == 10
    with pytest.raises(ProtocolError):
        decode_value(array(constructor, EMPTY_ELEMENTS_MAX + 1))


def test_nested_arrays_share_one_budget(counted: list[int]) -> None:
    for hostile in (bomb(), wide(0xD1, 2, encode_string("k") + bomb()), b"\x00\x53\x01" + bomb(), bomb(5000, 4000)):
        with pytest.raises(ProtocolError):
            decode_value(hostile)
    assert counted[0] <= 4 * EMPTY_ELEMENTS_MAX


def test_one_value_has_so_many_elements_and_no_more() -> None:
    assert len(decode_value(wide(0xD0, ELEMENTS_MAX, b"\x43" * ELEMENTS_MAX))[0]) == ELEMENTS_MAX
    for item in (b"\x43", b"\x45", b"\xc0\x01\x00", b"\x00\x43\x43", b"\xe0\x02\x00\x40"):
        with pytest.raises(ProtocolError) as refused:
            decode_value(wide(0xD0, ELEMENTS_MAX + 1, item * (ELEMENTS_MAX + 1)))
        assert refused.value.condition == "amqp:resource-limit-exceeded"


@pytest.mark.parametrize("read", [skip_value, decode_value])
def test_a_value_described_without_end_is_an_error_of_its_sender(read: Callable[[bytes], object]) -> None:
    assert read(described(DEPTH_MAX - 1))
    for depth in (DEPTH_MAX + 1, 20_000, 300_000):
        with pytest.raises(ProtocolError):
            read(described(depth))


@pytest.mark.parametrize(
    "section",
    [b"\x00\x53\x70", b"\x00\x53\x71", b"\x00\x53\x72", b"\x00\x53\x73", b"\x00\x53\x74", b"\x00\x53\x77"],
    ids=["header", "delivery-annotations", "message-annotations", "properties", "application-properties", "body"],
)
@pytest.mark.parametrize("value", [bomb(), described(20_000), wide(0xD1, 2, encode_string("_AMQ_DUPL_ID") + bomb())])
def test_a_broker_looks_at_a_bounded_part_of_a_message(section: bytes, value: bytes, counted: list[int]) -> None:
    for data in (section + value + BODY, section + wide(0xD0, 3, b"\x40" + bomb() + bomb()) + BODY):
        for read in (Admission().admit, decode_message, scan, decode_coordinator, matcher("a = 'b' AND JMSType = 'c'")):
            with contextlib.suppress(ProtocolError):
                read(data)
    assert counted[0] <= 10 * 3 * EMPTY_ELEMENTS_MAX


@pytest.mark.parametrize("field", range(13))
def test_no_field_of_the_properties_is_a_bomb(field: int, counted: list[int]) -> None:
    data = b"\x00\x53\x73" + wide(0xD0, field + 1, b"\x40" * field + bomb()) + BODY
    for read in (
        Admission().admit,
        decode_message,
        matcher("JMSMessageID = 'a' OR JMSType = 'b' OR JMSXGroupID = 'c'"),
    ):
        with contextlib.suppress(ProtocolError):
            read(data)
    assert counted[0] <= 8 * EMPTY_ELEMENTS_MAX


def test_properties_that_would_take_long_to_search_are_refused() -> None:
    entry = b"\xa1\x00\x40"
    few = LONG_MAP_BYTES // len(entry) - 10
    assert Admission().admit(b"\x00\x53\x74" + wide(0xD1, 2 * few, entry * few) + BODY)
    for data in (
        b"\x00\x53\x74" + wide(0xD1, 600_000, entry * 300_000) + BODY,
        b"\x00\x53\x74" + wide(0xD1, 2, entry * 300_000) + BODY,
        b"\x00\x53\x73" + wide(0xD0, 900_000, b"\x40" * 900_000) + BODY,
    ):
        admission = Admission()
        for _ in range(2):
            with pytest.raises(ProtocolError):
                admission.admit(data)
    long_text = b"\xb1" + (300_000).to_bytes(4, "big") + b"x" * 300_000
    assert Admission().admit(b"\x00\x53\x74" + wide(0xD1, 2, b"\xa1\x01k" + long_text) + BODY)


def test_a_message_of_the_known_shape_is_looked_at_when_it_has_too_many_entries() -> None:
    admission = Admission()
    small = b"\x00\x53\x74" + wide(0xD1, 2, b"\xa1\x01k\x40") + BODY
    admission.admit(small)
    admission.admit(small)
    with pytest.raises(ProtocolError):
        admission.admit(b"\x00\x53\x74" + wide(0xD1, 600_000, b"\xa1\x00\x40" * 300_000) + BODY)


def test_a_request_of_very_many_body_sections_is_read_in_one_pass() -> None:
    sections = ELEMENTS_MAX - 1
    assert decode_message(b"\x00\x53\x75\xa0\x01x" * sections).body == DataBody(b"x" * sections)
    assert decode_message(b"\x00\x53\x76\xc0\x02\x01\x40" * 100).body == SequenceBody([None] * 100)
    with pytest.raises(ProtocolError):
        decode_message(b"\x00\x53\x76\x45" * (ELEMENTS_MAX + 1))
    data = b"\x00\x53\x76\xc0\x02\x01\x40" * (3 * ELEMENTS_MAX)
    assert decode_message(data, whole_budget(data)).body == SequenceBody([None] * (3 * ELEMENTS_MAX))


def test_a_client_reads_a_poison_message_with_an_error_and_little_memory(counted: list[int]) -> None:
    received = Received(b"\x00\x53\x77" + bomb(), None)  # type: ignore[arg-type]
    with pytest.raises(MessageFormatError):
        received.body()
    received = Received(b"\x00\x53\x74" + wide(0xD1, 2, encode_string("k") + bomb()) + BODY, None)  # type: ignore[arg-type]
    with pytest.raises(MessageFormatError):
        received.headers()
    assert counted[0] <= 2 * EMPTY_ELEMENTS_MAX


def test_a_client_reads_a_list_of_as_many_elements_as_it_has_bytes() -> None:
    count = 4 * ELEMENTS_MAX
    assert len(Received(b"\x00\x53\x77" + wide(0xD0, count, b"\x54\x07" * count), None).body()) == count  # type: ignore[arg-type]


def sasl_frame(body: bytes) -> bytes:
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


@pytest.mark.parametrize("side", [SaslServer, SaslClient])
def test_nothing_before_a_login_is_a_bomb(side: Callable[[], SaslServer | SaslClient], counted: list[int]) -> None:
    for fields in (bomb(300), wide(0xD0, 1, array(0x40, 4000)), wide(0xD0, 4000, b"\x40" * 4000), described(1300)):
        for code in (b"\x00\x53\x40", b"\x00\x53\x41"):
            end = side()
            end.receive_data(SASL_HEADER + sasl_frame(code + fields))
            assert end.failed is not None
    end = side()
    end.receive_data(SASL_HEADER + (limits.SASL_FRAME_BYTES_MAX + 1).to_bytes(4, "big") + b"\x02\x01\x00\x00")
    assert end.failed is not None
    assert counted[0] == 0


def test_the_header_of_a_message_is_not_remembered_whatever_its_size() -> None:
    tracemalloc.start()
    try:
        for number in range(40):
            text = b"\xb1" + (100_000).to_bytes(4, "big") + b"%06d" % number + b"x" * 99_994
            Admission().admit(b"\x00\x53\x70" + wide(0xD0, 6, b"\x40" * 5 + text) + BODY)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1 << 20


def test_a_value_of_the_engine_has_so_many_elements_and_no_more() -> None:
    from cproton import lib

    data = lib.pn_data(0)
    try:
        pndata.put(data, [None] * (limits.FRAME_ELEMENTS_MAX + 1))
        with pytest.raises(ProtocolError):
            pndata.read(data)
        lib.pn_data_clear(data)
        held = Array([ULong(number) for number in range(HELD_MAX)])
        pndata.put(data, held)
        assert pndata.read(data) == held, "a client that comes back names what it holds"
    finally:
        lib.pn_data_free(data)


def test_a_map_is_encoded_as_before() -> None:
    assert decode_value(encode_compound(0xC1, [encode_string("a"), b"\x41"]))[0] == {"a": True}
