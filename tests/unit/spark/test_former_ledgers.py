"""Ledgers that brokers of former versions wrote (tests/data/stores/ledgers): facts are for ever."""

from __future__ import annotations

import pytest

from legato.spark.ledger.segments import segments_of
from legato.spark.query.ledger_query import LedgerQuery
from legato.spark.summaries.message_summary_numpy import add_up, messages_of, read_segment
from tests.support.stores import DIRECTORY, NAMES

COUNTS = ("stored_count", "consumed_count", "dead_count", "moved_count", "left_count", "returned_count")
SILVER = ("queue", "seq", *COUNTS, "presented_count", "first_epoch", "last_epoch", "attempt")


@pytest.mark.parametrize("name", NAMES)
def test_a_query_over_a_former_ledger_knows_each_message(name: str) -> None:
    ledger = DIRECTORY / "ledgers" / name
    with LedgerQuery(ledger) as query:

        def asked(sql: str) -> list[dict[str, object]]:
            rows: list[dict[str, object]] = query.table(sql).to_pylist()
            return rows

        states = asked(
            "select destination, state, count(*) as messages from messages "
            "where destination in ('numbers', 'committed') group by all order by all"
        )
        silver = asked(f"select {', '.join(SILVER)} from messages order by queue, seq")
        kinds = {str(row["kind"]) for row in asked("select distinct kind from facts")}
    # One that an application had acknowledged when its broker was killed is consumed, too.
    assert [(row["destination"], row["state"], row["messages"]) for row in states] == [
        ("committed", "waiting", 2),
        ("numbers", "consumed", 8),
        ("numbers", "waiting", 12),
    ]
    pieces = [piece for segment in segments_of(ledger) for piece in read_segment(segment)]
    assert silver == messages_of(add_up(pieces)).select(list(SILVER)).to_pylist()
    assert {"EpochBegan", "QueueCreated", "MessageStored", "MessageConsumed", "TransactionCommitted"} <= kinds
