"""The digest of rows: the same for the same rows in any order and in any parts, and another one for others."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.bulk.digest import RowDigest
from legato.bulk.stage_files import DigestRecord, digest_of
from tests.support.examples import examples

SCHEMA = pa.schema(
    [
        ("body", pa.binary()),
        ("type", pa.string()),
        ("priority", pa.int32()),
        ("ratio", pa.float64()),
        ("properties", pa.map_(pa.string(), pa.string())),
    ]
)
ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=40) | st.binary(min_size=500, max_size=530),
        st.none() | st.text(max_size=10),
        st.none() | st.integers(-3, 3),
        st.none() | st.sampled_from([0.0, 0.5, -1.0]),
        st.none() | st.dictionaries(st.sampled_from("abc"), st.none() | st.text(max_size=3), max_size=3),
    ),
    max_size=12,
)
Row = tuple[object, ...]


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    columns = [[row[at] for row in rows] for at in range(len(SCHEMA))]
    columns[-1] = [None if each is None else list(each.items()) for each in columns[-1]]  # type: ignore[attr-defined]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def digest(*parts: list[Row]) -> bytes:
    found = RowDigest()
    for part in parts:
        found.add(batch_of(part))
    return found.digest()


def known(rows: list[Row]) -> list[str]:
    """Rows without an order, and maps, too."""
    return sorted(repr((*row[:-1], row[-1] and sorted(row[-1].items()))) for row in rows)  # type: ignore[attr-defined]


@settings(max_examples=examples(300))
@given(ROWS, st.randoms(use_true_random=False), st.data())
def test_the_same_rows_have_the_same_digest(rows: list[Row], chance: random.Random, data: st.DataObject) -> None:
    shuffled = list(rows)
    chance.shuffle(shuffled)
    at = data.draw(st.integers(0, len(rows)))
    whole = digest(rows)
    assert digest(shuffled) == digest(shuffled[:at], shuffled[at:]) == whole
    parts = [DigestRecord(len(part), digest(part)) for part in (shuffled[:at], shuffled[at:])]
    assert digest_of(parts) == whole


@settings(max_examples=examples(300))
@given(ROWS, ROWS)
def test_other_rows_have_another_digest(rows: list[Row], others: list[Row]) -> None:
    assert (digest(rows) == digest(others)) == (known(rows) == known(others)) or len(rows) != len(others)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 63, 64, 65, 511, 512, 513, 5000])
def test_every_byte_counts_at_its_place(size: int) -> None:
    body = bytearray(b"x" * size)
    seen = {digest([(bytes(body), None, None, None, None)])}
    for at in {0, size // 3, size - 2, size - 1} & set(range(size)):
        body[at] ^= 1
        seen.add(digest([(bytes(body), None, None, None, None)]))
        body[at] ^= 1
    seen.add(digest([(bytes(body) + b"\0", None, None, None, None)]))
    assert len(seen) == 2 + len({0, size // 3, size - 2, size - 1} & set(range(size)))


def test_what_two_rows_have_cannot_be_exchanged() -> None:
    one = digest([(b"a", "x", None, None, None), (b"b", "y", None, None, None)])
    assert one != digest([(b"a", "y", None, None, None), (b"b", "x", None, None, None)])
    assert one != digest([(b"x", "a", None, None, None), (b"y", "b", None, None, None)])
    assert digest([(b"", "", 0, 0.0, {})]) != digest([(None, None, None, None, None)])


def test_slices_and_other_types_of_the_same_are_the_same() -> None:
    texts = ["a", None, "ccc", "d" * 600, ""]
    whole = pa.array(["before", *texts, "behind"])
    found = set()
    for column in (
        pa.array(texts),
        pa.array(texts, pa.large_string()),
        whole.slice(1, len(texts)),
        pa.array(texts).dictionary_encode(),
    ):
        one = RowDigest()
        one.add(pa.RecordBatch.from_arrays([column], ["type"]))
        found.add(one.digest())
    assert len(found) == 1


def test_a_digest_never_changes() -> None:
    """It is stored: what one version staged another one compares."""
    assert digest([(b"body", "type", 4, 0.5, {"a": "b"}), (b"x" * 600, None, None, None, None)]).hex() == GOLDEN


GOLDEN = "e8fa38db3ba8bac112436b60a31485ab"
