"""The quick reading of a message, after one like it, against the careful one."""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from legato.amqp.codec import run_layouts
from legato.amqp.codec.admission import Admission
from legato.amqp.codec.delivery_options import DeliveryOptions
from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, Properties, ValueBody, encode_message
from legato.amqp.codec.sections import normalise, scan
from legato.amqp.codec.stubs import STUB_MARK
from legato.amqp.codec.types import Byte, Int, Symbol, Timestamp, ULong
from legato.amqp.names import DUPLICATE_ID, FLOW_BUNDLE, FLOW_CALL, FLOW_CALL_NUMBER, FLOW_ID, FLOW_STAGE, FLOW_TRACE_ID
from legato.errors import ProtocolError

MILLISECONDS = st.integers(0, 2**62)
TEXTS = st.text(max_size=4)
SEQUENCES = st.none() | st.sampled_from([0, 5, 2**31, 2**32 - 1])
KEYS = st.sampled_from([DUPLICATE_ID, DUPLICATE_ID + "2", "á\r" + DUPLICATE_ID])
"""The last one has in it what the name looks like on the wire."""
IDS = KEYS | st.text(max_size=3) | st.binary(max_size=3) | st.text(min_size=250, max_size=300) | st.integers(0, 9)
FLOW_NAMES = (FLOW_BUNDLE, FLOW_ID, FLOW_TRACE_ID, FLOW_STAGE, FLOW_CALL, FLOW_CALL_NUMBER)
ANNOTATIONS = st.dictionaries(
    st.sampled_from(["x-opt-delivery-time", "x-opt-delivery-delay", "x-opt-jms-dest", "a", DUPLICATE_ID]).map(Symbol),
    st.integers(-9, 9) | MILLISECONDS.map(Timestamp) | MILLISECONDS.map(ULong) | st.text(max_size=3),
    max_size=3,
)
PROPERTIES = st.builds(
    Properties,
    message_id=st.none() | st.text(max_size=300) | st.uuids() | st.binary(max_size=3),
    to=st.none() | st.text(max_size=9),
    correlation_id=st.none() | st.text(max_size=9),
    absolute_expiry_ms=st.none() | MILLISECONDS,
    creation_ms=st.none() | MILLISECONDS,
    group_id=st.none() | st.text(max_size=3),
    group_sequence=SEQUENCES,
    reply_to_group_id=st.sampled_from([None, None, None, "g"]),
)
PARTS = st.fixed_dictionaries(
    {
        "header": st.builds(
            Header,
            durable=st.booleans(),
            priority=st.integers(0, 12),
            ttl_ms=st.none() | st.integers(0, 9),
            delivery_count=st.sampled_from([0, 0, 0, 3]),
        ),
        "delivery_annotations": st.sampled_from([None, None, {"a": 1}]),
        "message_annotations": st.none() | ANNOTATIONS,
        "properties": st.none() | PROPERTIES,
        "application_properties": st.none()
        | st.dictionaries(st.text(max_size=9), st.text(max_size=99), max_size=4)
        | st.dictionaries(st.text(max_size=3) | KEYS, IDS, max_size=4)
        | st.dictionaries(st.sampled_from(FLOW_NAMES) | KEYS, IDS, max_size=7),
        "body": st.none()
        | st.builds(DataBody, st.binary(max_size=400))
        | st.builds(ValueBody, st.text(max_size=400) | st.integers(0, 9)),
    }
)

Admitted = tuple[bytes, str, DeliveryOptions | None] | str

ADMISSION = Admission()
"""One for all examples: what it remembers of one must not mislead it on the next."""


def admitted(by: Admission, data: bytes) -> Admitted:
    """What is said of a message; if it can be part of a run, the same is said of it there."""
    try:
        said = by.admit(data)
    except ProtocolError as error:
        return error.condition
    count, ids = by.admit_run(b"before" + data, array("I", [6, 6 + len(data)]), 1)
    if count:
        assert said == (data, ids.decode(), None)
    return said


def carefully(data: bytes) -> Admitted:
    """By one that remembers nothing."""
    return admitted(Admission(), data)


def message(parts: dict[str, Any], **changed: Any) -> bytes:
    return encode_message(**{**parts, **changed})


@given(PARTS)
def test_both_readings_agree_on_messages(parts: dict[str, Any]) -> None:
    data = message(parts)
    expected = carefully(data)
    assert admitted(ADMISSION, data) == admitted(ADMISSION, data) == expected
    sections = scan(data)
    assert expected[:2] == (normalise(data, sections), sections.message_id)


@given(PARTS, MILLISECONDS, MILLISECONDS, TEXTS, TEXTS, SEQUENCES, st.binary(max_size=300))
def test_both_readings_agree_on_messages_that_differ_where_messages_do(
    parts: dict[str, Any],
    created_ms: int,
    expires_ms: int,
    beginning: str,
    correlation_id: str,
    sequence: int | None,
    body: bytes,
) -> None:
    properties = parts["properties"] or Properties()
    later = Properties(**{name: getattr(properties, name) for name in properties.__struct_fields__})
    if later.creation_ms is not None:
        later.creation_ms = created_ms
    if later.absolute_expiry_ms is not None:
        later.absolute_expiry_ms = expires_ms
    if isinstance(later.message_id, str):
        later.message_id = beginning + later.message_id[len(beginning) :]
    if later.group_id is not None:
        later.group_id = beginning[: len(later.group_id)] + later.group_id[len(beginning) :]
        later.group_sequence = sequence
    if later.correlation_id is not None:
        later.correlation_id = correlation_id
    admitted(ADMISSION, message(parts, properties=properties))
    data = message(parts, properties=later, body=DataBody(body))
    assert admitted(ADMISSION, data) == carefully(data)


def test_a_duplicate_id_that_is_no_text_is_refused_though_messages_before_it_were_not() -> None:
    others = {"header": Header(), **dict.fromkeys(("delivery_annotations", "message_annotations", "properties"))}
    data = message({**others, "application_properties": {"_AMQ_DUPL_ID": "id"}, "body": DataBody(b"")})
    admitted(ADMISSION, data)
    broken = data.replace(b"\xa1\x02id", b"\xa1\x02\x80d")
    assert broken != data
    assert admitted(ADMISSION, broken) == carefully(broken) == "amqp:decode-error"


@given(PARTS, st.integers(0, 300), st.integers(0, 255))
@example(
    {
        "header": Header(priority=0, ttl_ms=1),
        "delivery_annotations": None,
        "message_annotations": None,
        "properties": None,
        "application_properties": {DUPLICATE_ID: b"\x00", "á\r" + DUPLICATE_ID: ""},
        "body": DataBody(b"\x00"),
    },
    93,
    224,
)
def test_both_readings_agree_on_broken_messages(parts: dict[str, Any], place: int, value: int) -> None:
    data = message(parts)
    admitted(ADMISSION, data)
    broken = bytearray(data)
    broken[place % len(broken)] = value
    assert admitted(ADMISSION, bytes(broken)) == carefully(bytes(broken))
    admitted(ADMISSION, data)
    assert admitted(ADMISSION, data[: place % len(data)]) == carefully(data[: place % len(data)])


def test_a_count_that_is_not_that_of_the_properties_is_malformed_in_both_readings() -> None:
    data = b"\x00Sp\xc0\x04\x02BP\x00\x00St\xc1\x1d\x02\xa1\x0c_AMQ_DUPL_ID\xa1\x0c_AMQ_DUPL_ID\x00Su\xa0\x00"
    admitted(ADMISSION, data)
    broken = data.replace(b"\xc1\x1d\x02", b"\xc1\x1d\x00")
    assert admitted(ADMISSION, broken) == carefully(broken) == "amqp:decode-error"


def asked(**parts: Any) -> DeliveryOptions | None:
    """What a message asks for, read twice."""
    data = message({"header": Header(), "body": DataBody(b"x"), **parts})
    admission = Admission()
    first = admission.admit(data)[2]
    assert admission.admit(data)[2] == first
    return first


def test_a_plain_message_asks_for_nothing() -> None:
    assert asked() is None
    assert asked(header=Header(durable=True, priority=4, ttl_ms=0), properties=Properties(message_id="ID:1")) is None
    assert asked(properties=Properties(absolute_expiry_ms=0, creation_ms=7, group_id="")) is None
    assert asked(message_annotations={"x-opt-jms-msg-type": Byte(5)}) is None


@pytest.mark.parametrize(("sent", "acted_on"), [(0, 0), (9, 9), (10, 9), (255, 9)])
def test_priorities_above_9_are_9(sent: int, acted_on: int) -> None:
    assert asked(header=Header(priority=sent)) == DeliveryOptions(priority=acted_on)


def test_time_to_live_and_expiry_are_told_apart() -> None:
    assert asked(header=Header(ttl_ms=5)) == DeliveryOptions(ttl_ms=5)
    properties = Properties(absolute_expiry_ms=77, creation_ms=7)
    assert asked(properties=properties) == DeliveryOptions(expiry_ms=77)
    assert asked(header=Header(ttl_ms=70), properties=properties) == DeliveryOptions(ttl_ms=70, expiry_ms=77)
    assert asked(properties=Properties(absolute_expiry_ms=77)) == DeliveryOptions(expiry_ms=77)


@pytest.mark.parametrize("kind", [int, Timestamp, ULong])
def test_a_delivery_time_is_a_long_a_timestamp_or_an_unsigned_long(kind: type) -> None:
    assert asked(message_annotations={"x-opt-delivery-time": kind(99)}) == DeliveryOptions(delivery_ms=99)
    assert asked(message_annotations={"x-qpid-not-valid-before": kind(99)}) == DeliveryOptions(delivery_ms=99)
    assert asked(message_annotations={"x-opt-delivery-delay": kind(9)}) == DeliveryOptions(delay_ms=9)


@pytest.mark.parametrize("value", ["soon", 0, -5, True, None])
def test_a_delivery_time_that_is_none_asks_for_nothing(value: Any) -> None:
    assert asked(message_annotations={"x-opt-delivery-time": value}) is None


@pytest.mark.parametrize(("sequence", "closes"), [(None, False), (0, False), (7, False), (0xFFFFFFFF, True)])
def test_a_group_is_closed_by_the_sequence_minus_one(sequence: int | None, closes: bool) -> None:
    properties = Properties(group_id="g", group_sequence=sequence)
    assert asked(properties=properties) == DeliveryOptions(group="g", closes_group=closes)
    assert asked(properties=Properties(group_sequence=sequence)) is None


def test_annotations_of_a_delivery_that_are_no_map_are_refused() -> None:
    data = encode_message(
        header=Header(), message_annotations=b"\x00\x53\x72\xa1\x0fx-opt-delivery-", body=DataBody(b"")
    )
    with pytest.raises(ProtocolError):
        Admission().admit(data)


def test_what_stands_between_expiry_and_creation_time_is_looked_at() -> None:
    properties = Properties(message_id="ID:1", absolute_expiry_ms=77, creation_ms=7)
    data = message({"header": Header(), "properties": properties, "body": DataBody(b"x")})
    admission = Admission()
    admission.admit(data)
    place = data.index(b"\x83" + (7).to_bytes(8, "big"))
    broken = data[:place] + b"\x40" + data[place + 1 :]
    assert admitted(admission, broken) == carefully(broken) == "amqp:decode-error"


def test_each_message_of_a_producer_may_be_of_another_group() -> None:
    admission = Admission()
    for number, (group, sequence) in enumerate([("aa", 1), ("bb", 1), ("aa", 300), ("aa", 0xFFFFFFFF), ("bb", None)]):
        properties = Properties(
            message_id=f"ID:{number}", creation_ms=number, group_id=group, group_sequence=sequence, to="q"
        )
        data = message({"header": Header(), "properties": properties, "body": DataBody(b"x" * number)})
        expected = DeliveryOptions(group=group, closes_group=sequence == 0xFFFFFFFF)
        assert admission.admit(data) == (data, f"ID:{number}", expected)


def test_a_producer_may_use_every_priority_by_turns() -> None:
    admission = Admission()
    for number in range(40):
        data = message({"header": Header(priority=number % 10), "body": DataBody(b"x")})
        assert admission.admit(data)[2] == (None if number % 10 == 4 else DeliveryOptions(priority=number % 10))


ID, TIME = b"\xa1\x01i", b"\x83" + bytes(8)
BEFORE = ID + b"\x40" * 8 + TIME
LOOKALIKES = [
    ("a shorter group, a longer sequence", 12, BEFORE + b"\xa1\x02gg\x40", BEFORE + b"\xa1\x01g\x52\x05"),
    ("a group that is no string", 11, BEFORE + b"\xa1\x02gg", BEFORE + b"\xa0\x02gg"),
    ("a float", 12, BEFORE + b"\xa1\x01g\x70\xff\xff\xff\xff", BEFORE + b"\xa1\x01g\x72\xff\xff\xff\xff"),
    ("too many", 12, BEFORE + b"\xa1\x01g\x70\xff\xff\xff\xff", BEFORE + b"\xa1\x01g\x52\xff\xa1\x01r"),
    ("too many", 10, ID + b"\x40" * 4 + b"\xa1\x01c" + b"\x40" * 3 + TIME, ID + b"\x40" * 10 + TIME),
    ("an expiry that is none", 10, ID + b"\x40" * 7 + TIME + TIME, ID + b"\x40" * 7 + b"\x82" + bytes(8) + TIME),
]


@pytest.mark.parametrize(("what", "count", "first", "second"), LOOKALIKES)
def test_properties_that_look_alike_are_told_apart(what: str, count: int, first: bytes, second: bytes) -> None:
    assert len(first) == len(second), what
    data, lookalike = (
        b"\x00\x53\x73\xc0" + bytes((len(fields) + 1, count)) + fields + b"\x00\x53\x75\xa0\x01x"
        for fields in (first, second)
    )
    admission = Admission()
    admission.admit(data)
    assert admitted(admission, lookalike) == carefully(lookalike)


# What other clients write before the body of a text message, of which id and times change from message to message.
OF_CLIENTS = {
    "Apache Qpid JMS 2.10": (
        "005370c0020141005372c12904a30e782d6f70742d6a6d732d646573745100a312782d6f70742d6a6d732d6d73672d74"
        "7970655105005373d0000000500000000aa13249443a38643862356230652d356134322d346234342d396134612d3063"
        "346634633263396231613a313a313a312d3132333440a1066f726465727340404040404083000001a0c4506c00005377"
    ),
    "Apache Qpid JMS 2.10, properties and a time to live": (
        "005370c008034140700000ea60005372c12904a30e782d6f70742d6a6d732d646573745100a312782d6f70742d6a6d73"
        "2d6d73672d747970655105005373d0000000580000000aa13249443a38643862356230652d356134322d346234342d39"
        "6134612d3063346634633263396231613a313a313a312d3132333440a1066f7264657273404040404083000001a0c451"
        "566083000001a0c4506c00005374c13f0aa106636f6c6f7572a103726564a1067765696768745403a107636f756e7472"
        "79a1024652a106616d6f756e74824029000000000000a106757267656e7441005377"
    ),
    "rhea 3": (
        "005370d0000000050000000141005372d10000001a00000002a312782d6f70742d6a6d732d6d73672d74797065520500"
        "5373d0000000380000000aa11a49443a38643862356230652d356134322d346234342d3132333440a1066f7264657273"
        "40404040404083000001a0c4506c00005374d10000001b00000004a106636f6c6f7572a103726564a106776569676874"
        "5203005377"
    ),
    "rhea 3, nothing set": ("0053704500537345005377"),
    "python-qpid-proton 0.40": (
        "005370c0020141005373c0350aa11a49443a38643862356230652d356134322d346234342d3132333440a1066f726465"
        "727340404040404083000001a0c4506c00005374d10000001b00000004a106636f6c6f7572a103726564a10677656967"
        "68745503005377"
    ),
}


@pytest.mark.parametrize("client", OF_CLIENTS)
def test_the_messages_of_other_clients_are_of_one_shape(client: str) -> None:
    head = bytes.fromhex(OF_CLIENTS[client])
    admission = Admission()
    for number in range(1000, 1020):
        text = b"x" * number
        data = head.replace(b"1234", b"%d" % number) + b"\xb1" + len(text).to_bytes(4, "big") + text
        for time_ms in (1_790_000_000_000, 1_790_000_060_000):
            data = data.replace(time_ms.to_bytes(8, "big"), (time_ms + number).to_bytes(8, "big"))
        assert admission.admit(data) == carefully(data)
    assert len(admission._shapes) == 1


CALL_OF_A_FLOW = {
    FLOW_TRACE_ID: "order 1",
    FLOW_ID: "f1",
    "legato_message_id": "m1",
    FLOW_STAGE: "Order.place",
    FLOW_CALL: "request",
    FLOW_CALL_NUMBER: Int(3),
}


def test_a_message_of_a_flow_tells_which_call_it_carries() -> None:
    expected = DeliveryOptions(flows=(("f1", "order 1", "Order.place", "request", 3, 1),))
    assert asked(application_properties=CALL_OF_A_FLOW) == expected
    both = asked(application_properties={**CALL_OF_A_FLOW, DUPLICATE_ID: "m1"})
    assert both == DeliveryOptions(duplicate_id=b"m1", flows=expected.flows)


def test_a_bundle_tells_how_many_calls_it_carries_and_for_which_stage() -> None:
    bundle = {FLOW_BUNDLE: Int(200), FLOW_STAGE: "Order.place"}
    assert asked(application_properties=bundle) == DeliveryOptions(flows=(("", "", "Order.place", "", 0, 200),))
    apart = asked(application_properties={**CALL_OF_A_FLOW, FLOW_BUNDLE: Int(1)})
    assert apart == asked(application_properties=CALL_OF_A_FLOW)


def test_calls_of_flows_differ_from_message_to_message_of_one_shape() -> None:
    admission = Admission()
    for number in range(1, 9):
        properties = {**CALL_OF_A_FLOW, FLOW_ID: f"f{number}", FLOW_CALL_NUMBER: Int(number)}
        data = message({"header": Header(), "application_properties": properties, "body": DataBody(b"x")})
        special = admission.admit(data)[2]
        assert special == DeliveryOptions(flows=((f"f{number}", "order 1", "Order.place", "request", number, 1),))
    assert len(admission._shapes) == 1


@pytest.mark.parametrize("missing", [FLOW_ID, FLOW_STAGE])
def test_a_message_that_does_not_say_its_flow_or_stage_is_no_flows(missing: str) -> None:
    properties = {name: value for name, value in CALL_OF_A_FLOW.items() if name != missing}
    assert asked(application_properties={**properties, "note": FLOW_STAGE}) is None


def test_a_message_with_properties_that_cannot_be_read_is_of_no_flow_and_kept() -> None:
    entry = b"\xa1\x0clegato_stage\xa1\x01s"
    properties = b"\x00\x53\x74\xc1" + bytes((len(entry) + 2, 3)) + entry + b"\xa1"
    assert Admission().admit(properties + b"\x00\x53\x75\xa0\x00") == (properties + b"\x00\x53\x75\xa0\x00", "", None)


@pytest.mark.skipif(not run_layouts.available, reason="the optional module was not compiled")
def test_a_run_ends_where_a_message_is_not_like_those_before_it() -> None:
    others = {"header": Header(), **dict.fromkeys(("delivery_annotations", "message_annotations"))}

    def numbered(number: int, body: bytes = b"tea", **properties: str) -> bytes:
        said = Properties(message_id=f"ID:{number}")
        return message({**others, "application_properties": properties or None}, properties=said, body=DataBody(body))

    admission = Admission()
    like = [numbered(1), numbered(2, b"x" * 300), numbered(3), numbered(4)]
    assert admission.admit(like[0])[1] == "ID:1"
    assert run_of(admission, like) == (1, b"ID:1"), "a long body is of another layout"
    like[1] = numbered(2, b"")
    assert run_of(admission, like) == (4, b"ID:1ID:2ID:3ID:4")
    assert run_of(admission, [*like[:2], numbered(30)]) == (2, b"ID:1ID:2")
    assert run_of(admission, [*like[:2], like[2].replace(b"ID:3", b"ID:\xe1")]) == (2, b"ID:1ID:2")
    assert run_of(admission, [*like[:2], numbered(3, b"a large message" + STUB_MARK)]) == (2, b"ID:1ID:2")
    assert run_of(admission, [like[0], like[2][:-1]]) == (1, b"ID:1")
    with_properties = [numbered(n, a="b") for n in range(5)]
    assert admission.admit(with_properties[0])[2] is None
    assert run_of(admission, with_properties) == (5, b"ID:0ID:1ID:2ID:3ID:4")
    for name in (DUPLICATE_ID, FLOW_STAGE):
        assert run_of(admission, [*with_properties[:3], numbered(3, b"tea", **{"a": "b", name: "x"})]) == (
            3,
            b"ID:0ID:1ID:2",
        )


def run_of(admission: Admission, messages: list[bytes]) -> tuple[int, bytes]:
    return admission.admit_run(b"".join(messages), array("I", accumulate(map(len, messages))), 0)
