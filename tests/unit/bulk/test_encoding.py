"""What is encoded for all rows at once is what a client reads, and what columns were made of."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.bulk.columns import Decoder
from legato.bulk.encoding import encode
from legato.bulk.layout import rows_of
from legato.bulk.schema import PROPERTY_MAP
from legato.client.destinations import destination_of
from legato.client.messages import BytesMessage, DeliveryMode, TextMessage
from legato.client.received import read_message
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
    assert second.body in (b"", None)


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
