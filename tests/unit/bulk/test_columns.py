"""Columns made of all rows at once are those that each message by itself has."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from legato.amqp.codec.header import Header
from legato.amqp.codec.message import Body, DataBody, Properties, SequenceBody, ValueBody, encode_message
from legato.amqp.codec.types import UInt, ULong
from legato.bulk import columns
from legato.bulk.columns import Decoder
from legato.bulk.layout import rows_of
from legato.bulk.row_fallback import decode_row
from legato.bulk.schema import COLUMNS
from tests.support.examples import examples

texts = st.text(max_size=30)
ids = st.one_of(
    st.none(),
    texts.map(lambda text: f"ID:{text}"),
    texts,
    st.just("ID:AMQP_ULONG:7"),
    st.integers(0, 1 << 60).map(ULong),
    st.binary(max_size=20),
    st.just(UUID(int=5)),
)
bodies: st.SearchStrategy[Body | None] = st.one_of(
    st.none(),
    st.binary(max_size=400).map(DataBody),
    st.text(max_size=400).map(ValueBody),
    st.binary(max_size=20).map(ValueBody),
    st.just(ValueBody(None)),
    st.just(ValueBody({"a": 1, "b": "two"})),
    st.just(SequenceBody([1, "two"])),
)
times = st.none() | st.integers(0, 1 << 40) | st.integers(-(1 << 63), (1 << 63) - 1)
properties = st.builds(
    Properties,
    message_id=ids,
    to=st.none() | texts,
    subject=st.none() | texts,
    reply_to=st.none() | texts,
    correlation_id=ids,
    absolute_expiry_ms=times,
    creation_ms=times,
    group_id=st.none() | texts,
)
headers = st.builds(Header, durable=st.booleans(), priority=st.integers(0, 12), ttl_ms=st.none() | st.integers(0, 9999))
applications = st.none() | st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.one_of(st.booleans(), texts, st.integers(0, 9).map(UInt)), max_size=3
)
messages = st.builds(
    lambda header, annotations, of, application, body: encode_message(
        header=header,
        message_annotations=annotations,
        properties=of,
        application_properties=application,
        body=body,
    ),
    headers,
    st.none() | st.just({"x-opt-jms-dest": UInt(0)}),
    st.none() | properties,
    applications,
    bodies,
)


@pytest.fixture(autouse=True, params=["few", "many"])
def amount(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Rows are looked at as if there were many, which may be alike; and as they are."""
    if request.param == "many":
        monkeypatch.setattr(columns, "ALIKE_ROWS_MIN", 1)
    return str(request.param)


def rows(columns: dict[str, pa.Array]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(columns).to_pylist()
    return found


def alone(message: bytes, *, with_properties: bool = True) -> dict[str, Any]:
    """The row of one message, through the same types."""
    one = decode_row(message, properties=with_properties)
    return rows({name: pa.array([one[name]], kind) for name, kind in COLUMNS.items()})[0]


@settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(messages, min_size=1, max_size=8), st.booleans())
def test_all_rows_at_once_are_as_each_row_by_itself(given_messages: list[bytes], with_properties: bool) -> None:
    found = rows(Decoder(properties=with_properties).decode(rows_of(pa.array(given_messages, pa.binary()))))
    assert found == [alone(message, with_properties=with_properties) for message in given_messages]


senders = st.builds(
    lambda of, header, application, digits: (of, header, application, digits),
    properties,
    headers,
    applications,
    st.integers(1, 3),
)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(senders, min_size=1, max_size=3), st.data(), st.booleans())
def test_rows_of_few_senders_are_as_each_row_by_itself(
    given_senders: list[Any], data: st.DataObject, with_properties: bool
) -> None:
    decoder = Decoder(properties=with_properties)
    for number in range(3):
        given_messages = []
        for which in data.draw(st.lists(st.sampled_from(given_senders), min_size=1, max_size=12)):
            of, header, application, digits = which
            number += 1
            own = msgspec.structs.replace(
                of,
                message_id=data.draw(st.sampled_from([of.message_id, f"ID:{number:0{digits}}", f"ID:A{number}"])),
                creation_ms=data.draw(st.sampled_from([of.creation_ms, number])),
            )
            body: Body = DataBody(data.draw(st.binary(max_size=20)))
            given_messages.append(
                encode_message(header=header, properties=own, application_properties=application, body=body)
            )
        found = rows(decoder.decode(rows_of(pa.array(given_messages, pa.binary()))))
        assert found == [alone(message, with_properties=with_properties) for message in given_messages]


@settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages, st.data())
def test_broken_bytes_break_no_row_but_their_own(message: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, max(len(message) - 1, 0)))
    broken = message[:place] + data.draw(st.binary(max_size=3)) + message[place + 1 :]
    cut = message[: data.draw(st.integers(0, len(message)))]
    found = rows(Decoder().decode(rows_of(pa.array([message, broken, cut, message], pa.binary()))))
    assert found[0] == found[3] == alone(message)


def test_a_message_that_cannot_be_decoded_is_its_own_body() -> None:
    [row] = rows(Decoder().decode(rows_of(pa.array([b"\x00\x53\x73\xc0\xff"], pa.binary()))))
    assert row == dict.fromkeys(COLUMNS) | {"body": b"\x00\x53\x73\xc0\xff"}


def test_a_slice_of_an_array_has_its_own_rows() -> None:
    given_messages = [encode_message(header=Header(), body=ValueBody(str(number))) for number in range(10)]
    array = pa.array(given_messages, pa.binary()).slice(3, 4)
    assert [row["body"] for row in rows(Decoder().decode(rows_of(array)))] == [b"3", b"4", b"5", b"6"]


def test_no_rows_are_no_rows() -> None:
    assert rows(Decoder().decode(rows_of(pa.array([], pa.binary())))) == []


@pytest.mark.parametrize("size", [0, 1, 11, 12, 13, 255, 256, 70_000])
def test_bodies_of_any_size_are_whole(size: int) -> None:
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    message = encode_message(header=Header(durable=True), body=DataBody(body))
    [row] = rows(Decoder().decode(rows_of(pa.array([message], pa.binary()))))
    assert row["body"] == body
