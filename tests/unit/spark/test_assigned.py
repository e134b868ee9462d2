"""What pipelines take and acknowledge in runs is accounted for message by message."""

from legato.core.facts import AssignmentAcknowledged, LogRecord, MessagesAssigned, RunStored
from legato.spark.ledger.fact_schema import facts_table, row_count


def test_each_message_of_a_run_has_moved_and_is_stored_and_consumed() -> None:
    first = LogRecord(3, 1000, [MessagesAssigned(1, 10, 2, 50, 9, 1), MessagesAssigned(1, 20, 1, 25, 9, 3)])
    second = LogRecord(3, 2000, [AssignmentAcknowledged(9, 2, 2)])
    rows = facts_table([(7, first), (8, second)]).to_pylist()
    assert len(rows) == row_count(first) + row_count(second)
    moved = [
        (r["ordinal"], r["queue"], r["seq"], r["to_queue"], r["to_seq"]) for r in rows if r["kind"] == "MessageMoved"
    ]
    assert moved == [(0, 1, 10, 9, 1), (0, 1, 11, 9, 2), (1, 1, 20, 9, 3)]
    stored = [(r["queue"], r["seq"], r["origin_queue"], r["origin_seq"]) for r in rows if r["kind"] == "MessageStored"]
    assert stored == [(9, 1, 1, 10), (9, 2, 1, 11), (9, 3, 1, 20)]
    consumed = [(r["position"], r["queue"], r["seq"], r["time_us"]) for r in rows if r["kind"] == "MessageConsumed"]
    assert consumed == [(8, 9, 1, 2000), (8, 9, 2, 2000)]


def test_of_numbers_with_gaps_those_are_consumed_that_were_there() -> None:
    acknowledged = [AssignmentAcknowledged(9, 2, 2), AssignmentAcknowledged(9, 5, 2), AssignmentAcknowledged(9, 6, 0)]
    record = LogRecord(3, 2000, [*acknowledged])
    rows = facts_table([(8, record)]).to_pylist()
    assert len(rows) == row_count(record) == 7
    consumed = [(r["ordinal"], r["seq"]) for r in rows if r["kind"] == "MessageConsumed"]
    assert consumed == [(0, 1), (0, 2), (1, 4), (1, 5)]


def test_each_message_of_a_published_batch_is_stored() -> None:
    record = LogRecord(3, 1000, [RunStored(1, 10, 3, 50, 4, 1)])
    rows = facts_table([(7, record)]).to_pylist()
    assert len(rows) == row_count(record)
    assert [(r["queue"], r["seq"]) for r in rows if r["kind"] == "MessageStored"] == [(1, 10), (1, 11), (1, 12)]
