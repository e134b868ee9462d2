"""Each check finds its own kind of fault, and no other check finds anything."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession

from legato.core.facts import (
    DuplicateIdKept,
    EpochBegan,
    LogRecord,
    MessageConsumed,
    MessageDeadLettered,
    MessageDelivered,
    MessageMoved,
    MessageReleased,
    MessageSeen,
    MessageStored,
    QueueCreated,
    QueueDeleted,
    QueueMarked,
    TransactionCommitted,
    TransactionRolledBack,
)
from legato.spark.audit import audit
from legato.spark.check import Check, find_offenders
from legato.spark.checking import run_checks, suspects_of
from legato.spark.checks import CHECKS
from legato.spark.checks_log import MARKS_MISSED, POSITIONS_MISSING, RECORDS_TORN
from legato.spark.frames import as_rows, frames_of
from legato.spark.ledger import read_facts
from legato.spark.result import CheckResult
from legato.spark.segments import write_segment
from tests.spark.conftest import MakeFacts
from tests.spark.history import (
    ARCHIVE,
    DEAD,
    FIRST_TXN,
    INVOICES,
    NEWS,
    NEWS_TXN,
    NEWS_WAITING,
    ORDERS,
    QUEUES_EACH,
    READERS,
    REPLIES,
    SECOND_TXN,
    URGENT,
    WAITING,
    history,
    instead,
    moved_txn,
    ms_us,
    news_history,
    one_log,
    order,
    published,
    record,
    stored,
    took,
    without,
)

Spoil = Callable[[list[LogRecord]], list[LogRecord]]

INVOICE_CONSUMED = MessageConsumed(INVOICES, 4, 2, ms_us(312), 1)


def waiting_frame(spark: SparkSession, waiting: list[tuple[int, int]]) -> DataFrame:
    return spark.createDataFrame(waiting, "queue int, seq bigint")


def offenders(check: Check, facts: DataFrame) -> list[Row]:
    with frames_of(facts.sparkSession, lambda: facts, keep=as_rows) as frames:
        return find_offenders(check, frames).collect()


def failing(
    facts: DataFrame, waiting: DataFrame | None = None, *, without_suspects: bool = False
) -> dict[str, CheckResult]:
    """What fails, asked as an audit asks, or also `without_suspects`: then nothing must be found."""
    with frames_of(facts.sparkSession, lambda: facts, waiting, keep=as_rows) as frames:
        suspects = suspects_of(frames)
        asked = dict.fromkeys(suspects, 1) if without_suspects else suspects
        failed = {check.name: check for check in run_checks(frames, suspects=asked) if check.count}
        assert [name for name in failed if not suspects[name]] == []
        return failed


def stored_by_number_again(records: list[LogRecord]) -> list[LogRecord]:
    again = record(2, 402, MessageStored(ORDERS, 7, 10, "ID:2", 1, 2), MessageConsumed(ORDERS, 7, 1, ms_us(401), 1))
    return [*records, again]


def consumed_before_its_send(records: list[LogRecord]) -> list[LogRecord]:
    without(records, INVOICE_CONSUMED)
    records[9].facts.append(INVOICE_CONSUMED)
    return records


FAULTS: dict[str, Spoil] = {
    "number stored twice": stored_by_number_again,
    "duplicate id stored twice": lambda r: [
        *r,
        record(2, 402, *(DuplicateIdKept(ORDERS, each, 2) for each in (b"a", b"b", b"c", b"a", b"c"))),
    ],
    "place taken twice": lambda r: [*r, record(2, 402, MessageStored(DEAD, 1, 10, "ID:other"))],
    "consumed twice": lambda r: [*r, record(2, 402, INVOICE_CONSUMED)],
    "consumed, never stored": lambda r: [*r, record(2, 402, MessageConsumed(INVOICES, 9, 2, ms_us(400), 1))],
    "consumed before stored": consumed_before_its_send,
    "attempt forgotten": lambda r: instead(
        r,
        MessageConsumed(ORDERS, 3, 1, ms_us(305), 2, SECOND_TXN),
        MessageConsumed(ORDERS, 3, 1, ms_us(305), 1, SECOND_TXN),
    ),
    "dead letter missing": lambda r: instead(
        r, MessageStored(DEAD, 1, 10, "", origin=(ORDERS, 5)), MessageStored(DEAD, 1, 10, "", origin=(ORDERS, 4))
    ),
    "uncommitted work": lambda r: instead(
        r, TransactionCommitted(FIRST_TXN, 2, 2), TransactionRolledBack(FIRST_TXN, 2, 2, "client")
    ),
    "partial transaction": lambda r: instead(
        r, TransactionCommitted(FIRST_TXN, 2, 2), TransactionCommitted(FIRST_TXN, 2, 3)
    ),
    "two outcomes": lambda r: [*r, record(2, 402, TransactionRolledBack(FIRST_TXN, 2, 2, "disconnect"))],
    "epochs mixed": lambda r: [*r, record(1, 402, EpochBegan("a"))],
    "marks missed": lambda r: instead(r, QueueMarked(DEAD, 1, 1, 0), QueueMarked(DEAD, 2, 2, 1)),
    "attempt invented": lambda r: instead(
        r,
        MessageConsumed(ORDERS, 4, 1, ms_us(305), 1, SECOND_TXN),
        MessageConsumed(ORDERS, 4, 1, ms_us(305), 2, SECOND_TXN),
    ),
    "redelivered without flag": lambda r: [
        *r,
        record(2, 402, order(7), MessageDelivered(ORDERS, 7, 1, 1, False, ms_us(402)), MessageSeen(ORDERS, 7, 1)),
        record(2, 403, MessageDelivered(ORDERS, 7, 1, 1, False, ms_us(403)), MessageConsumed(ORDERS, 7, 1, 1, 1)),
    ],
    "out of order in a group": lambda r: [
        *r,
        record(2, 402, order(7), order(8)),
        record(2, 403, *(MessageDelivered(ORDERS, seq, 1, 1, False, ms_us(403), "g") for seq in (8, 7))),
        record(2, 404, *(MessageConsumed(ORDERS, seq, 1, ms_us(403), 1) for seq in (7, 8))),
    ],
    "queue unknown": lambda r: without(r, QueueCreated(DEAD, "DLQ")),
    "lost": lambda r: [*r, record(2, 402, order(7), QueueMarked(ORDERS, 7, 7, 5))],
    "resurrected": lambda r: [
        *r,
        record(2, 402, MessageConsumed(ORDERS, 6, 1, ms_us(401), 1), QueueMarked(ORDERS, 6, 6, 6)),
    ],
}
"""Each spoils a history in one way. What waits at the end is `WAITING` all the same."""


def copy_consumed_before_it_was_published(records: list[LogRecord]) -> list[LogRecord]:
    without(records, took(READERS, 2))
    records[1].facts.append(took(READERS, 2))
    return records


LATE = msgspec.structs.replace(took(READERS, 2), delivered_us=ms_us(31))

NEWS_FAULTS: list[tuple[str, Spoil]] = [
    ("expired, consumed", lambda r: instead(r, took(READERS, 2), LATE)),
    ("used after deletion", lambda r: [*r, record(1, 92, published(9, [REPLIES]), MessageMoved(REPLIES, 9, "purged"))]),
    ("lost", lambda r: without(r, took(READERS, 6))),
    ("lost", lambda r: instead(r, QueueDeleted(REPLIES, "replies", 2), QueueDeleted(REPLIES, "replies", 1))),
    ("resurrected", lambda r: [*r, record(1, 92, MessageMoved(READERS, 8, "purged"))]),
    ("number stored twice", lambda r: instead(r, published(4, [], number=4), published(4, [], number=3))),
    ("place taken twice", lambda r: [*r, record(1, 92, published(1, [READERS]))]),
    ("consumed twice", lambda r: [*r, record(1, 92, took(READERS, 1))]),
    ("consumed twice", lambda r: [*r, record(1, 92, MessageMoved(URGENT, 1, "expired"))]),
    ("consumed, never stored", lambda r: [*r, record(1, 92, took(READERS, 7))]),
    ("consumed before stored", copy_consumed_before_it_was_published),
    ("attempt forgotten", lambda r: instead(r, took(READERS, 5, attempt=2), took(READERS, 5))),
    (
        "dead letter missing",
        lambda r: [*r, record(1, 92, published(9, [READERS]), MessageDeadLettered(READERS, 9, 1, "poison", DEAD, 2))],
    ),
    (
        "moved message missing",
        lambda r: [*r, record(1, 92, stored(URGENT, 5), MessageMoved(URGENT, 5, "moved", DEAD, 2))],
    ),
    (
        "deleted, not counted",
        lambda r: instead(
            r, QueueDeleted(ARCHIVE, "volatile://c//link", 2), QueueDeleted(ARCHIVE, "volatile://c//link", 3)
        ),
    ),
    (
        "partial transaction",
        lambda r: instead(r, TransactionCommitted(NEWS_TXN, 0, 3), TransactionCommitted(NEWS_TXN, 0, 4)),
    ),
    ("marks missed", lambda r: instead(r, QueueMarked(NEWS, 8, 6, 4), QueueMarked(NEWS, 8, 7, 4))),
    ("marks missed", lambda r: instead(r, QueueMarked(READERS, 8, 6, 5), QueueMarked(READERS, 8, 7, 5))),
    ("marks missed", lambda r: instead(r, QueueMarked(URGENT, 4, 7, 6), QueueMarked(URGENT, 4, 8, 6))),
]
"""Each spoils a history of topics, moves and temporary queues. What waits at the end is `NEWS_WAITING` all the same."""

LEDGER_FAULTS = {"positions missing", "records torn"}
"""Checks of the ledger as a whole, tested one by one."""


def test_a_history_without_fault_passes_every_check(spark: SparkSession, facts_of: MakeFacts, tmp_path: Path) -> None:
    facts_of(history())
    result = audit(tmp_path, spark, waiting_frame(spark, WAITING))
    assert [check.name for check in result.checks if check.count] == []
    assert len(result.checks) == len(CHECKS)
    assert result.total("waiting") == len(WAITING)


def test_every_check_has_a_fault_to_find() -> None:
    assert {check.name for check in CHECKS} == FAULTS.keys() | {name for name, _ in NEWS_FAULTS} | LEDGER_FAULTS


def test_each_fault_is_found_by_its_own_check_and_by_no_other(spark: SparkSession, facts_of: MakeFacts) -> None:
    assert_each_is_found(spark, facts_of, list(FAULTS.items()), history, WAITING)


def test_topics_priorities_expiry_moves_and_deleted_queues_raise_no_alarm(
    spark: SparkSession, facts_of: MakeFacts
) -> None:
    facts = facts_of(news_history())
    assert failing(facts, waiting_frame(spark, NEWS_WAITING)) == {}
    assert failing(facts) == {}


def test_each_fault_of_topics_and_moves_is_found_by_its_own_check(spark: SparkSession, facts_of: MakeFacts) -> None:
    assert_each_is_found(spark, facts_of, NEWS_FAULTS, news_history, NEWS_WAITING)


def assert_each_is_found(
    spark: SparkSession,
    facts_of: MakeFacts,
    faults: list[tuple[str, Spoil]],
    begin: Callable[[], list[LogRecord]],
    waiting_each: list[tuple[int, int]],
) -> None:
    """Audit as many histories in one log as there are faults, each spoiled by another."""
    spoiled = [spoil(begin()) for _, spoil in faults]
    last_positions = list(accumulate(map(len, spoiled)))
    waiting = [(queue + QUEUES_EACH * number, seq) for number in range(len(faults)) for queue, seq in waiting_each]
    found = failing(facts_of(one_log(spoiled)), waiting_frame(spark, waiting), without_suspects=True)
    assert {name: check.count for name, check in found.items()} == Counter(name for name, _ in faults)
    txns = {
        moved_txn(txn, number).hex().upper(): number for number in range(len(faults)) for txn in (FIRST_TXN, NEWS_TXN)
    }

    def number_of(example: dict[str, int | str]) -> int:
        if "queue" in example:
            return int(example["queue"]) // QUEUES_EACH
        return txns[str(example["txn"])] if "txn" in example else bisect_left(last_positions, int(example["position"]))

    blamed = {name: sorted(number_of(example) for example in check.examples) for name, check in found.items()}
    assert blamed == {name: [number for number, (own, _) in enumerate(faults) if own == name] for name in found}


def test_a_copy_that_the_ledger_does_not_hold_is_missed(facts_of: MakeFacts) -> None:
    facts = facts_of(news_history()).where(f"not (kind = 'MessageStored' and queue = {ARCHIVE} and seq = 6)")
    torn = offenders(RECORDS_TORN, facts)
    assert [(row["facts"], row["facts_said"]) for row in torn] == [(5, 6)]


def test_without_a_store_the_last_mark_tells_what_is_lost(facts_of: MakeFacts) -> None:
    found = failing(facts_of(without(history(), INVOICE_CONSUMED)))
    assert list(found) == ["lost"]
    assert found["lost"].examples == [{"queue": INVOICES, "seq": 4, "stored_us": ms_us(310)}]


def test_a_lost_tail_is_seen_by_the_mark_after_it(facts_of: MakeFacts) -> None:
    missed = offenders(MARKS_MISSED, facts_of(without(history(), order(6))))
    assert [(row["queue"], row["stored"], row["stored_found"]) for row in missed] == [(ORDERS, 6, 5)]


def test_a_mark_counts_what_stands_before_it_in_its_own_commit(facts_of: MakeFacts) -> None:
    happened = history()
    assert happened[6].facts[0] == order(5), "it stands before the mark in the same commit"
    without(happened, order(6))
    happened[6].facts.append(order(6))
    assert offenders(MARKS_MISSED, facts_of(happened)) == []


def test_missing_positions_are_named(spark: SparkSession, tmp_path: Path) -> None:
    numbered = list(enumerate(history(), 3))
    write_segment(tmp_path, numbered[:8])
    write_segment(tmp_path, [(position + 4, each) for position, each in numbered[8:]])
    missing = offenders(POSITIONS_MISSING, read_facts(spark, tmp_path))
    assert [tuple(row) for row in missing] == [(1, 2), (11, 14)]


def test_a_commit_that_the_ledger_holds_in_part_or_twice_is_torn(spark: SparkSession, tmp_path: Path) -> None:
    numbered = list(enumerate(history(), 1))
    write_segment(tmp_path, numbered)
    write_segment(tmp_path, numbered[8:9])
    facts = read_facts(spark, tmp_path).where("not (kind = 'QueueCreated' and name = 'orders')")
    torn = sorted(tuple(row) for row in offenders(RECORDS_TORN, facts))
    assert torn == [(2, 2, 3), (9, 2, 1)]


def test_a_message_that_was_released_is_new_to_the_next_consumer(spark: SparkSession, facts_of: MakeFacts) -> None:
    released = record(
        2,
        402,
        MessageDelivered(ORDERS, 6, 1, 1, False, ms_us(402), "g"),
        MessageSeen(ORDERS, 6, 1),
        MessageReleased(ORDERS, 6, 1, False),
        MessageDelivered(ORDERS, 6, 2, 1, False, ms_us(402), "g"),
        MessageSeen(ORDERS, 6, 2),
        MessageDelivered(ORDERS, 6, 1, 2, True, ms_us(402), "g"),
    )
    assert failing(facts_of([*history(), released]), waiting_frame(spark, WAITING)) == {}
