"""A fact of a run means the facts of its messages, and the ledger has the same rows of it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.core.fact_runs import single_batch
from legato.core.facts import (
    AnyFact,
    DispatchMarked,
    LogRecord,
    MessageConsumed,
    MessagesConsumed,
    MessagesStored,
    MessageStored,
)
from legato.core.records import Batch
from legato.errors import StoreError
from legato.spark.ledger.fact_schema import facts_table, row_count
from tests.support.fused import fuse


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """What a plain queue sees: neighbours stored and consumed, with something else between."""
    facts: list[AnyFact] = []
    bodies: list[bytes] = []
    seq = draw(st.integers(1, 1 << 40))
    for _ in range(draw(st.integers(1, 6))):
        count = draw(st.integers(1, 40))
        match draw(st.sampled_from(["stored", "numbered", "consumed", "mark", "gap"])):
            case "stored" | "numbered" as kind:
                producer = draw(st.integers(1, 3)) if kind == "numbered" else 0
                width = draw(st.integers(0, 3))
                for place in range(count):
                    body = bytes(draw(st.integers(0, 30)))
                    number = seq + place if producer else 0
                    facts.append(MessageStored(7, seq + place, len(body), "abc"[:width], producer, number))
                    bodies.append(body)
                seq += count
            case "consumed":
                when = draw(st.integers(1, 5))
                facts += [MessageConsumed(7, place, 3, when, 1) for place in range(1, 1 + count)]
            case "mark":
                facts.append(DispatchMarked(7, seq))
            case _:
                seq += count
    return Batch(1, 1000, facts, bodies)


@given(batches())
def test_runs_taken_apart_are_the_facts_that_were_fused(batch: Batch) -> None:
    fused = fuse(batch)
    assert single_batch(fused) == batch


@given(st.lists(batches() | st.just(Batch(1, 1000, [], [])), min_size=1, max_size=4))
def test_the_ledger_has_the_same_rows(log: list[Batch]) -> None:
    single = [LogRecord(1, 1000 + place, batch.facts) for place, batch in enumerate(log)]
    fused = [LogRecord(1, 1000 + place, fuse(batch).facts) for place, batch in enumerate(log)]
    assert [*map(row_count, fused)] == [*map(row_count, single)]
    assert rows(fused) == rows(single)
    places = [(row["position"], row["ordinal"], row["time_us"]) for row in rows(single)]
    assert places == [(7 + i, n, 1000 + i) for i, record in enumerate(single) for n in range(max(len(record.facts), 1))]


def rows(records: list[LogRecord]) -> list[dict[str, Any]]:
    """Rows of records in the order of the log."""
    found: list[dict[str, Any]] = facts_table(enumerate(records, 7)).to_pylist()
    return sorted(found, key=lambda row: (row["position"], row["ordinal"]))


@pytest.mark.parametrize("content", [b"", b"abc", b"abcde"])
def test_other_bytes_than_those_of_a_run_are_refused(content: bytes) -> None:
    fact = MessagesStored(1, 1, 2, bytes([0, 0, 0, 2, 0, 0, 0, 4]), b"")
    with pytest.raises(StoreError):
        single_batch(Batch(1, 1, [fact], [content]))


def test_batches_without_runs_stay_as_they_are() -> None:
    batch = Batch(1, 1, [MessageConsumed(1, 1, 1, 1, 1)], [])
    assert single_batch(batch) is batch
    assert single_batch(Batch(1, 1, [MessagesConsumed(1, 1, 1, 1, 1)], [])) == batch
