"""Each check finds its own kind of fault, and no other check finds anything."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from legato.core.facts import (
    AnyFact,
    AssignmentAcknowledged,
    AssignmentFenced,
    BatchPublished,
    ConsumerAttached,
    DuplicateDropped,
    DuplicateIdDropped,
    DuplicateIdKept,
    EpochBegan,
    Kind,
    LogRecord,
    MessageConsumed,
    MessageDeadLettered,
    MessageDelivered,
    MessageMoved,
    MessagePresented,
    MessageReleased,
    MessageReturned,
    MessagesAssigned,
    MessageSeen,
    MessageStored,
    NumberRefused,
    ProducerForgotten,
    ProducerRegistered,
    QueueCreated,
    QueueDeleted,
    QueueMarked,
    RunStored,
    TransactionCommitted,
    TransactionRolledBack,
)
from legato.spark.auditor.audit import audit
from legato.spark.auditor.check_runner import count_candidates, run_checks
from legato.spark.auditor.descriptions import in_words
from legato.spark.auditor.frames import as_rows, frames_of
from legato.spark.checks.catalogue import CHECKS, WORDINGS
from legato.spark.checks.check import Check
from legato.spark.checks.log import marks_missed, positions_missing, records_torn
from legato.spark.ledger.fact_frames import read_ledger
from legato.spark.ledger.segments import write_segment
from legato.spark.result import CheckResult
from tests.spark.conftest import Audit, MakeFacts
from tests.spark.history import (
    ARCHIVE,
    DEAD,
    DUE,
    FIRST_TXN,
    HIGH,
    INVOICES,
    NEWS,
    NEWS_TXN,
    NEWS_WAITING,
    ORDERS,
    QUEUES_EACH,
    READERS,
    REPLIES,
    SCHEDULE,
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


def violations(check: Check, facts: DataFrame) -> list[Row]:
    with frames_of(facts.sparkSession, lambda: facts, keep=as_rows) as frames:
        return check.violations(frames).collect()


def failing(
    facts: DataFrame, waiting: DataFrame | None = None, *, without_candidates: bool = False
) -> dict[str, CheckResult]:
    """What fails, asked as an audit asks, or also `without_candidates`: then nothing must be found."""
    with frames_of(facts.sparkSession, lambda: facts, waiting, keep=as_rows) as frames:
        candidates = count_candidates(frames)
        asked = dict.fromkeys(candidates, 1) if without_candidates else candidates
        failed = {check.name: check for check in run_checks(frames, candidates=asked) if check.count}
        assert [name for name in failed if not candidates[name]] == []
        return failed


def stored_by_number_again(records: list[LogRecord]) -> list[LogRecord]:
    again = record(2, 402, MessageStored(ORDERS, 7, 10, "ID:2", 1, 2), MessageConsumed(ORDERS, 7, 1, ms_us(401), 1))
    return [*records, again]


def consumed_before_its_send(records: list[LogRecord]) -> list[LogRecord]:
    without(records, INVOICE_CONSUMED)
    records[9].facts.append(INVOICE_CONSUMED)
    return records


def stored_anew(records: list[LogRecord]) -> list[LogRecord]:
    """The broker forgets the shop, and stores again what it has in flight (correctness D4)."""
    again = MessageStored(ORDERS, 7, 10, "ID:2", 2, 2)
    return [
        *records,
        record(2, 402, ProducerForgotten(1, "shop")),
        record(2, 403, ProducerRegistered(2, "shop"), again, MessageConsumed(ORDERS, 7, 1, ms_us(403), 1)),
    ]


def in_wrong_order(records: list[LogRecord]) -> list[LogRecord]:
    instead(records, order(3), MessageStored(ORDERS, 3, 10, "ID:4", 1, 4))
    return instead(records, order(4), MessageStored(ORDERS, 4, 10, "ID:3", 1, 3))


def in_wrong_order_of_commits(records: list[LogRecord]) -> list[LogRecord]:
    """The places are right, but the later one was there first."""
    without(records, order(2))
    records[3].facts.append(order(2))
    return records


ASSIGNMENT, SINK = 20, 5


def streamed(*further: AnyFact) -> Spoil:
    """A sink publishes two batches of orders, a pipeline is assigned two of them; then something more."""

    def spoil(records: list[LogRecord]) -> list[LogRecord]:
        seconds = [MessageStored(ORDERS, seq, 10, f"ID:s{seq}", SINK, 2) for seq in (10, 11)]
        return [
            *records,
            record(2, 500, QueueCreated(ASSIGNMENT, "assignment://p/orders", Kind.ASSIGNMENT, ORDERS)),
            record(2, 501, AssignmentFenced(ASSIGNMENT, 1, []), ProducerRegistered(SINK, "sink://totals")),
            record(2, 502, RunStored(ORDERS, 7, 3, 60, SINK, 1)),
            record(2, 503, *seconds, *(took_order(seq) for seq in (10, 11)), BatchPublished(SINK, 2, 2, b"rows")),
            record(2, 504, MessagesAssigned(ORDERS, 7, 2, 40, ASSIGNMENT, 1), took_order(9)),
            record(2, 505, AssignmentAcknowledged(ASSIGNMENT, 1, 1), AssignmentAcknowledged(ASSIGNMENT, 2, 1)),
            # An empty batch is stored as nothing, and may come again.
            record(2, 506, DuplicateDropped(SINK, 1)),
            record(2, 507, RunStored(INVOICES, 5, 1, 20, SINK, 4), took(INVOICES, 5), DuplicateDropped(SINK, 3)),
            record(2, 508, *further),
        ]

    return spoil


OTHERS = BatchPublished(6, 2, 0, b"others")


def took_order(seq: int) -> MessageConsumed:
    return took(ORDERS, seq)


def given(consumer: int, attempt: int = 1, *, flagged: bool = False) -> MessageDelivered:
    """The order that waits is delivered to a consumer."""
    return MessageDelivered(ORDERS, 6, consumer, attempt, flagged, ms_us(402))


def expired(expires_us: int, expired_us: int = 0) -> Spoil:
    """An order is stored, and leaves as expired 402 ms after the history began."""
    stays = MessageStored(ORDERS, 7, 10, "ID:7", expires_us=expires_us)
    return lambda r: [*r, record(2, 401, stays), record(2, 402, MessageMoved(ORDERS, 7, "expired", 0, 0, expired_us))]


def died(deliveries_max: int, *returned: MessageReturned) -> Spoil:
    """An order is a dead letter of too many deliveries, after these had failed."""
    dead = MessageDeadLettered(ORDERS, 7, 1, "maximum deliveries", 0, 0, deliveries_max)
    return lambda r: [*r, record(2, 402, order(7)), record(2, 403, *returned, dead)]


def failed(count: int, cause: str = "modified") -> MessageReturned:
    """A delivery of that order failed."""
    return MessageReturned(ORDERS, 7, count, False, 1, cause)


def attached(consumer: int, container: str, link: str = "") -> ConsumerAttached:
    """A consumer of orders."""
    return ConsumerAttached(consumer, ORDERS, container, link)


FURTHER_FAULTS: list[tuple[str, Spoil]] = [
    ("duplicate never stored", lambda r: [*r, record(2, 402, DuplicateDropped(1, 9))]),
    (
        "duplicate never stored",
        lambda r: [*r, record(2, 402, NumberRefused(1, 7)), record(2, 403, DuplicateDropped(1, 7))],
    ),
    ("duplicate never stored", lambda r: [*r[:9], record(2, 250, DuplicateDropped(1, 6)), *r[9:]]),
    ("duplicate never stored", streamed(DuplicateDropped(SINK, 5))),
    ("duplicate id never kept", lambda r: [*r, record(2, 402, DuplicateIdDropped(ORDERS, b"x", "ID:x", "ID:1"))]),
    (
        "duplicate id never kept",
        lambda r: [
            *r,
            record(2, 402, DuplicateIdKept(INVOICES, b"x", 9, "ID:1")),
            record(2, 403, DuplicateIdDropped(ORDERS, b"x", "ID:x", "ID:1")),
        ],
    ),
    ("expired too early", expired(0)),
    ("expired too early", expired(0, ms_us(402))),
    ("expired too early", expired(ms_us(402) + 3_600_000_000)),
    ("expired too early", expired(ms_us(401), ms_us(400))),
    ("stored again after registering anew", stored_anew),
    (
        "stored again after registering anew",
        streamed(ProducerRegistered(6, "sink://totals"), RunStored(ORDERS, 12, 1, 20, 6, 1), took_order(12)),
    ),
    ("sent out of order", in_wrong_order),
    ("sent out of order", in_wrong_order_of_commits),
    (
        "sent out of order",
        lambda r: [
            *r,
            record(2, 402, stored(URGENT, HIGH + 2, number=8), MessageStored(ORDERS, 8, 10, "ID:8", 1, 9)),
            record(2, 403, QueueCreated(URGENT, "urgent"), stored(URGENT, HIGH + 3, number=7), took(ORDERS, 8)),
            record(2, 404, took(URGENT, HIGH + 2), took(URGENT, HIGH + 3)),
        ],
    ),
    ("second holder", lambda r: [*r, record(2, 402, given(1)), record(2, 403, given(2, flagged=True))]),
    (
        "second holder",
        lambda r: [
            *r,
            record(2, 402, attached(8, "w", "one")),
            record(2, 403, given(8), MessageSeen(ORDERS, 6, 8)),
            record(2, 404, attached(9, "w", "other"), given(9, flagged=True)),
        ],
    ),
    (
        "second holder",
        lambda r: [
            *r,
            record(2, 402, attached(8, "w"), attached(9, "w")),
            record(2, 403, given(8), MessageSeen(ORDERS, 6, 8), given(9, flagged=True)),
        ],
    ),
    (
        "second holder",
        lambda r: [
            *r,
            record(2, 402, given(1), MessageReturned(ORDERS, 6, 1, False, 1, "modified"), given(2, 2, flagged=True)),
            record(2, 403, MessageReturned(ORDERS, 6, 1, True, 1, "claimed"), given(1, 2, flagged=True)),
        ],
    ),
    ("dead too early", died(0)),
    ("dead too early", died(3, failed(1), failed(2))),
    ("dead too early", died(3, failed(3))),
    ("batch stored twice", streamed(RunStored(ORDERS, 12, 1, 20, SINK, 1), took_order(12))),
    ("batch stored twice", streamed(BatchPublished(SINK, 2, 2))),
    (
        "stored again after registering anew",
        streamed(ProducerRegistered(6, "sink://totals"), BatchPublished(6, 2, 2, b"rows")),
    ),
    ("number stored twice", streamed(MessageStored(ORDERS, 12, 10, "ID:s10", SINK, 2), took_order(12))),
    ("acknowledged, not assigned", streamed(AssignmentAcknowledged(ASSIGNMENT, 3, 1))),
]
"""Each spoils a history in one way that the broker itself does not contradict. What waits is `WAITING` all the same."""


def in_lanes(records: list[LogRecord]) -> list[LogRecord]:
    """Numbers ascend in each lane of each address, and not in all together; what is for later is stored by due time."""
    return [
        *records,
        record(2, 402, QueueCreated(URGENT, "urgent"), QueueCreated(SCHEDULE, "$schedule", Kind.SCHEDULE)),
        record(2, 403, stored(URGENT, HIGH + 1, number=7), stored(URGENT, 1, number=8), stored(URGENT, 2, number=10)),
        record(2, 404, stored(SCHEDULE, DUE, number=11), stored(SCHEDULE, DUE - 9, number=12)),
        record(
            2, 405, NumberRefused(1, 13), stored(URGENT, 3, number=13), NumberRefused(1, 14), DuplicateDropped(1, 8)
        ),
        record(2, 406, *(took(URGENT, seq) for seq in (1, 2, 3, HIGH + 1))),
        record(2, 407, MessageMoved(SCHEDULE, DUE, "dropped"), MessageMoved(SCHEDULE, DUE - 9, "dropped")),
    ]


def held_in_turn(records: list[LogRecord]) -> list[LogRecord]:
    """Holdings end with a release, a failure, an epoch; and go on with the next link of an application cut off."""
    return [
        *records,
        record(2, 402, attached(8, "w", "one")),
        record(2, 403, given(2), MessageReleased(ORDERS, 6, 2, False), given(1), MessageSeen(ORDERS, 6, 1)),
        record(3, 500, EpochBegan("a")),
        record(3, 501, given(8, 2, flagged=True), MessagePresented(ORDERS, 6, 8)),
        record(3, 502, attached(9, "w", "one"), given(9, 2, flagged=True), MessageSeen(ORDERS, 6, 9)),
        record(3, 502, attached(10, "w"), given(10, 2, flagged=True)),
        record(3, 503, MessageReturned(ORDERS, 6, 2, False, 10, "disconnect"), given(2, 3, flagged=True)),
    ]


def known_by_name(records: list[LogRecord]) -> list[LogRecord]:
    """A producer that was forgotten goes on with its numbers under another one of the store's."""
    return [
        *records,
        record(2, 402, ProducerForgotten(1, "shop"), ProducerRegistered(2, "shop")),
        record(2, 403, MessageStored(ORDERS, 7, 10, "ID:7", 2, 7), took(ORDERS, 7), DuplicateDropped(2, 6)),
    ]


def dropped_twice(records: list[LogRecord]) -> list[LogRecord]:
    """A message that was dropped for its duplicate id comes again under its number."""
    kept = DuplicateIdKept(ORDERS, b"x", 9, "ID:7", 1, 7)
    return [
        *records,
        record(2, 402, kept, MessageStored(ORDERS, 7, 10, "ID:7", 1, 7), took(ORDERS, 7)),
        record(2, 403, DuplicateIdDropped(ORDERS, b"x", "ID:8", "ID:7", 1, 8), DuplicateDropped(1, 8)),
    ]


RIGHT: list[Spoil] = [
    streamed(),
    # Who had a sink forgotten begins again with its first batch, of other rows.
    streamed(ProducerForgotten(SINK, "sink://totals"), ProducerRegistered(6, "sink://totals"), OTHERS),
    in_lanes,
    held_in_turn,
    known_by_name,
    dropped_twice,
    expired(ms_us(402)),
    # The clock was set back between the judgement and the commit.
    expired(ms_us(450), ms_us(451)),
    died(0, failed(1)),
    died(2, failed(1), failed(2)),
    died(3, failed(2, "carried"), failed(3)),
]
"""More of what a broker does right."""


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
    ("consumed twice", lambda r: [*r, record(1, 100, MessageMoved(URGENT, 1, "expired"))]),
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


@pytest.mark.slow
def test_a_history_without_fault_passes_every_check(spark: SparkSession, facts_of: MakeFacts, tmp_path: Path) -> None:
    facts_of(history())
    result = audit(tmp_path, spark, waiting_frame(spark, WAITING))
    assert [check.name for check in result.checks if check.count] == []
    assert len(result.checks) == len(CHECKS)
    assert result.total("waiting") == len(WAITING)


def test_every_check_has_a_fault_to_find() -> None:
    assert {check.name for check in CHECKS} == (
        FAULTS.keys() | {name for name, _ in (*NEWS_FAULTS, *FURTHER_FAULTS)} | LEDGER_FAULTS
    )


def test_each_fault_is_found_by_its_own_check_and_by_no_other(spark: SparkSession, facts_of: MakeFacts) -> None:
    """All in one log: Spark spends its time on each query, not on its few rows.

    Among them are those that an adversary planted and the audit did not see (correctness D7).
    """
    faults = [
        *((name, spoil(history()), WAITING) for name, spoil in (*FAULTS.items(), *FURTHER_FAULTS)),
        *((name, spoil(news_history()), NEWS_WAITING) for name, spoil in NEWS_FAULTS),
    ]
    assert_each_is_found(spark, facts_of, faults)


@pytest.mark.slow
def test_streams_lanes_turns_and_names_raise_no_alarm(spark: SparkSession, facts_of: MakeFacts) -> None:
    facts = facts_of(one_log([change(history()) for change in RIGHT]))
    waiting = [(queue + QUEUES_EACH * number, seq) for number in range(len(RIGHT)) for queue, seq in WAITING]
    assert failing(facts, waiting_frame(spark, waiting), without_candidates=True) == {}


@pytest.mark.slow
def test_topics_priorities_expiry_moves_and_deleted_queues_raise_no_alarm(
    spark: SparkSession, facts_of: MakeFacts
) -> None:
    facts = facts_of(news_history())
    assert failing(facts, waiting_frame(spark, NEWS_WAITING)) == {}
    assert failing(facts) == {}


def assert_each_is_found(
    spark: SparkSession, facts_of: MakeFacts, faults: list[tuple[str, list[LogRecord], list[tuple[int, int]]]]
) -> None:
    """Audit as many histories in one log as there are faults: each with its fault, and what waits at its end."""
    spoiled = [records for _, records, _ in faults]
    last_positions = list(accumulate(map(len, spoiled)))
    waiting = [(queue + QUEUES_EACH * number, seq) for number, (*_, each) in enumerate(faults) for queue, seq in each]
    facts = facts_of(one_log(spoiled))
    found = failing(facts, waiting_frame(spark, waiting), without_candidates=True)
    assert {name: check.count for name, check in found.items()} == Counter(name for name, *_ in faults)
    txns = {
        moved_txn(txn, number).hex().upper(): number for number in range(len(faults)) for txn in (FIRST_TXN, NEWS_TXN)
    }

    def number_of(example: dict[str, int | str]) -> int:
        if number := example.get("queue") or example.get("producer"):
            return int(number) // QUEUES_EACH
        return txns[str(example["txn"])] if "txn" in example else bisect_left(last_positions, int(example["position"]))

    for check in in_words(found.values(), WORDINGS, facts):
        assert check.complaint.endswith("."), check.name
        assert len(check.told) == len(check.examples)
        assert not any("{" in text or "None" in text for text in (check.complaint, check.remedy, *check.told))
    blamed = {name: sorted(number_of(example) for example in check.examples) for name, check in found.items()}
    assert blamed == {name: [number for number, (own, *_) in enumerate(faults) if own == name] for name in found}


def test_a_copy_that_the_ledger_does_not_hold_is_missed(facts_of: MakeFacts) -> None:
    facts = facts_of(news_history()).where(f"not (kind = 'MessageStored' and queue = {ARCHIVE} and seq = 6)")
    torn = violations(records_torn, facts)
    assert [(row["facts"], row["facts_said"]) for row in torn] == [(5, 6)]


def test_without_a_store_the_last_mark_tells_what_is_lost(facts_of: MakeFacts) -> None:
    found = failing(facts_of(without(history(), INVOICE_CONSUMED)))
    assert list(found) == ["lost"]
    assert found["lost"].examples == [{"queue": INVOICES, "seq": 4, "stored_us": ms_us(310)}]


def test_a_lost_tail_is_seen_by_the_mark_after_it(facts_of: MakeFacts) -> None:
    missed = violations(marks_missed, facts_of(without(history(), order(6))))
    assert [(row["queue"], row["stored"], row["stored_found"]) for row in missed] == [(ORDERS, 6, 5)]


def test_a_mark_counts_what_stands_before_it_in_its_own_commit(facts_of: MakeFacts) -> None:
    happened = history()
    assert happened[6].facts[0] == order(5), "it stands before the mark in the same commit"
    without(happened, order(6))
    happened[6].facts.append(order(6))
    assert violations(marks_missed, facts_of(happened)) == []


def test_missing_positions_are_named(spark: SparkSession, tmp_path: Path) -> None:
    numbered = list(enumerate(history(), 3))
    write_segment(tmp_path, numbered[:8])
    write_segment(tmp_path, [(position + 4, each) for position, each in numbered[8:]])
    missing = violations(positions_missing, read_ledger(spark, tmp_path))
    assert [tuple(row) for row in missing] == [(1, 2), (11, 14)]


def test_a_commit_that_the_ledger_holds_in_part_or_twice_is_torn(spark: SparkSession, tmp_path: Path) -> None:
    numbered = list(enumerate(history(), 1))
    write_segment(tmp_path, numbered[:9])
    write_segment(tmp_path, numbered[8:])
    facts = read_ledger(spark, tmp_path).where("not (kind = 'QueueCreated' and name = 'orders')")
    torn = sorted(tuple(row) for row in violations(records_torn, facts))
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
        MessageReturned(ORDERS, 6, 1, False, 2, "modified"),
        MessageDelivered(ORDERS, 6, 1, 2, True, ms_us(402), "g"),
    )
    assert failing(facts_of([*history(), released]), waiting_frame(spark, WAITING)) == {}


def test_a_fault_without_a_place_in_a_queue_is_told_beside_one_that_has_a_place(audit_of: Audit) -> None:
    again = streamed(ProducerRegistered(6, "sink://totals"), BatchPublished(6, 2, 2, b"rows"), INVOICE_CONSUMED)
    failed = {check.name: check for check in audit_of(again(history())).failed}
    assert sorted(failed) == ["consumed twice", "stored again after registering anew"]
    assert list(failed["consumed twice"].stories) == [f"invoices 4 ({INVOICES}/4) ID:i4"]
    assert failed["stored again after registering anew"].stories == {}
