"""What is encoded for all rows at once is what a client reads, and what columns were made of."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.amqp.codec.message import decode_message
from legato.amqp.codec.types import Byte, Float, Int, Short
from legato.bulk.columns import Decoder
from legato.bulk.encoding import encode
from legato.bulk.layout import rows_of
from legato.bulk.schema import PROPERTY_MAP
from legato.client.mapping.received import read_message
from legato.client.messages import BytesMessage, DeliveryMode, TextMessage
from legato.client.messages.destinations import destination_of
from tests.support.examples import examples

NOW_MS = 1_700_000_000_000

texts = st.text(max_size=20)
pairs = st.dictionaries(texts, st.none() | texts, max_size=3).map(lambda values: list(values.items()))
rows = st.lists(
    st.fixed_dictionaries(
        {
            "priority": st.none() | st.integers(0, 9),
            "delivery_mode": st.sampled_from([None, "PERSISTENT", "NON_PERSISTENT"]),
            "correlation_id": st.none() | texts,
            "reply_to": st.none() | texts,
            "type": st.none() | texts,
            "group_id": st.none() | texts,
            "time_to_live_ms": st.none() | st.integers(0, 100_000),
            "properties": st.none()
            | st.dictionaries(texts, st.none() | texts, max_size=3).map(lambda d: list(d.items())),
            "body": st.none() | st.text(max_size=400),
        }
    ),
    min_size=1,
    max_size=6,
)
TYPES = {
    "priority": pa.int32(),
    "time_to_live_ms": pa.int64(),
    "properties": PROPERTY_MAP,
} | dict.fromkeys(["delivery_mode", "correlation_id", "reply_to", "type", "group_id"], pa.string())


def columns_of(given_rows: list[dict[str, Any]], body: pa.DataType) -> dict[str, pa.Array]:
    return {name: pa.array([row[name] for row in given_rows], TYPES.get(name, body)) for name in given_rows[0]}


@settings(max_examples=examples(120), deadline=None)
@given(rows)
def test_a_client_reads_what_was_encoded(given_rows: list[dict[str, Any]]) -> None:
    messages = encode(columns_of(given_rows, pa.string()), "orders", id_prefix="ID:x:", now_ms=NOW_MS)
    for number, (data, row) in enumerate(zip(messages.to_pylist(), given_rows, strict=True)):
        message = read_message(data, destination_of("orders"), lambda _: None)
        assert isinstance(message, TextMessage)
        assert message.text == row["body"]
        assert message.message_id == f"ID:x:{number}"
        assert message.timestamp == NOW_MS
        assert message.destination == destination_of("orders")
        assert message.priority == (4 if row["priority"] is None else row["priority"])
        persistent = row["delivery_mode"] != "NON_PERSISTENT"
        assert message.delivery_mode == (DeliveryMode.PERSISTENT if persistent else DeliveryMode.NON_PERSISTENT)
        assert message.correlation_id == row["correlation_id"]
        assert message.type == row["type"]
        assert (message.reply_to.name if message.reply_to else None) == row["reply_to"]
        ttl_ms = row["time_to_live_ms"]
        assert message.expiration == (NOW_MS + ttl_ms if ttl_ms else 0)
        sent = {key: value for key, value in message.properties.items() if not key.startswith("JMSX")}
        assert sent == {key: value for key, value in row["properties"] or [] if not key.startswith("JMSX")}


@settings(max_examples=examples(100), deadline=None)
@given(rows)
def test_columns_come_back_as_they_were(given_rows: list[dict[str, Any]]) -> None:
    messages = encode(columns_of(given_rows, pa.string()), "orders", id_prefix="ID:x:", now_ms=NOW_MS)
    found = pa.table(Decoder().decode(rows_of(messages))).to_pylist()
    for row, back in zip(given_rows, found, strict=True):
        for name in ("reply_to", "type", "group_id"):
            assert back[name] == row[name]
        assert back["body"] == (None if row["body"] is None else row["body"].encode())


@pytest.mark.parametrize("size", [0, 1, 255, 256, 100_000])
def test_bytes_of_any_size_are_whole(size: int) -> None:
    messages = encode({"body": pa.array([b"x" * size, None], pa.binary())}, "q", id_prefix="ID:", now_ms=NOW_MS)
    first, second = (read_message(data, destination_of("q"), lambda _: None) for data in messages.to_pylist())
    assert isinstance(first, BytesMessage)
    assert first.body == b"x" * size
    assert isinstance(second, BytesMessage)
    assert second.body == b""


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_a_body_that_is_null_is_not_an_empty_one(kind: pa.DataType) -> None:
    """A null body of bytes came back as an empty one. With properties, a row is decoded by itself."""
    bodies = pa.array([None, b"", b"x"], pa.binary()).cast(kind)
    for properties in (None, [("n", "1")]):
        columns = {"body": bodies, "properties": pa.array([properties] * 3, PROPERTY_MAP)}
        messages = encode(columns, "q", id_prefix="ID:", now_ms=NOW_MS)
        assert Decoder().decode(rows_of(messages))["body"].to_pylist() == [None, b"", b"x"]
    whole = pa.array([None] * 600, kind)
    messages = encode({"body": whole}, "q", id_prefix="ID:", now_ms=NOW_MS)
    assert Decoder().decode(rows_of(messages))["body"].null_count == 600


@pytest.mark.parametrize(
    ("kind", "values", "sent_as"),
    [
        (pa.bool_(), [True, None, False], bool),
        (pa.int8(), [-128, None, 127], Byte),
        (pa.int16(), [-(1 << 15), None, 3], Short),
        (pa.int32(), [-(1 << 31), None, 3], Int),
        (pa.int64(), [-(1 << 63), None, 3], int),
        (pa.float32(), [2.5, None, -0.5], Float),
        (pa.float64(), [0.1, None, float("inf")], float),
        (pa.string(), ["é", None, ""], str),
        (pa.binary(), [b"\xff", None, b""], bytes),
        (pa.null(), [None, None, None], None),
    ],
)
def test_properties_keep_their_types_and_nulls(kind: pa.DataType, values: list[Any], sent_as: Any) -> None:
    """All of them became text, and null an empty one."""
    rows = [[("a", values[0]), ("b", values[1])], None, [("a", values[2])], []]
    properties = pa.array(rows, pa.map_(pa.string(), kind))
    for some in (properties, properties.slice(0, 1), properties.slice(2, 2)):
        columns = {"body": pa.array(["x"] * len(some)), "properties": some}
        for data, row in zip(
            encode(columns, "q", id_prefix="ID:", now_ms=NOW_MS).to_pylist(), some.to_pylist(), strict=True
        ):
            sent = decode_message(data).application_properties
            assert sent == dict(row or [])
            assert all(value is None or type(value) is sent_as for value in sent.values())


def test_a_slice_is_encoded_as_itself() -> None:
    table = pa.table(
        {
            "body": pa.array(list("abcdef"), pa.string()),
            "properties": pa.array([[("n", str(n))] for n in range(6)], PROPERTY_MAP),
        }
    ).slice(2, 3)
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    messages = encode(columns, "q", id_prefix="ID:", now_ms=NOW_MS).to_pylist()
    read = [read_message(data, destination_of("q"), lambda _: None) for data in messages]
    assert [(message.body, message.properties["n"]) for message in read] == [("c", "2"), ("d", "3"), ("e", "4")]


def test_rows_of_the_same_lengths_keep_their_own_values() -> None:
    given_rows = {"body": pa.array([b"one", b"two", b"six"], pa.binary()), "correlation_id": pa.array(["a", "b", "c"])}
    found = pa.table(Decoder().decode(rows_of(encode(given_rows, "q", id_prefix="ID:x:", now_ms=NOW_MS)))).to_pylist()
    assert [(row["message_id"], row["correlation_id"], row["body"]) for row in found] == [
        ("ID:x:0", "a", b"one"),
        ("ID:x:1", "b", b"two"),
        ("ID:x:2", "c", b"six"),
    ]
