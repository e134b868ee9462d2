"""What must not be in a ledger: each check is a question to it, and its answer is the rows that offend.

An empty answer passes. Every check finds its own kind of fault only, so that a report names causes, not echoes.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame

from legato.spark.ledger import query

Frames = Mapping[str, DataFrame]


class Check(NamedTuple):
    """A question to the ledger.

    `sentence` says what holds when nothing is found; `frames` names the frames that `find` is given, in order.
    `find` answers with the offending rows: whole rows that a person can follow up.
    """

    name: str
    sentence: str
    frames: tuple[str, ...]
    find: Callable[..., DataFrame]


def lost(lifecycle: DataFrame, waiting: DataFrame) -> DataFrame:
    """Messages that were stored, never left their queue, and do not wait there either."""
    return query(
        """
        select l.queue, l.seq, l.stored_us from {lifecycle} l left anti join {waiting} w
          on l.queue = w.queue and l.seq = w.seq
        where stored_count > 0 and left_count = 0
        """,
        lifecycle=lifecycle,
        waiting=waiting,
    )


def lost_by_marks(lifecycle: DataFrame, marks: DataFrame) -> DataFrame:
    """Messages that never left their queue beyond the number that the last high-water mark says were waiting.

    A mark counts but does not name: as queues are served in order, the oldest are taken for the lost ones.
    """
    return query(
        """
        with
        last_mark as (
          select queue, max(place) place, max_by(stored - consumed, place) waiting from {marks} group by queue
        ),
        unsettled as (
          select l.queue, l.seq, l.stored_us, l.left_count, last_mark.waiting,
            row_number() over (partition by l.queue order by l.seq desc) as newest
          from {lifecycle} l join last_mark on l.queue = last_mark.queue
          where stored_place < last_mark.place and (left_place is null or left_place > last_mark.place)
        )
        select queue, seq, stored_us from unsettled where newest > waiting and left_count = 0
        """,
        lifecycle=lifecycle,
        marks=marks,
    )


def resurrected(lifecycle: DataFrame, waiting: DataFrame) -> DataFrame:
    """Messages that left their queue and wait there all the same."""
    return query(
        """
        select l.queue, l.seq, l.left_us from {lifecycle} l left semi join {waiting} w
          on l.queue = w.queue and l.seq = w.seq
        where left_count > 0
        """,
        lifecycle=lifecycle,
        waiting=waiting,
    )


def place_taken_twice(lifecycle: DataFrame) -> DataFrame:
    """Places of a queue at which more than one message was stored."""
    return query("select queue, seq, stored_count from {lifecycle} where stored_count > 1", lifecycle=lifecycle)


def number_stored_twice(facts: DataFrame) -> DataFrame:
    """Messages of numbered producers that were stored more than once (promise 1)."""
    return query(
        """
        select producer, number, count(*) times, min(queue) queue, min(seq) seq, max(seq) again
        from {facts} where kind = 'MessageStored' and number is not null
        group by producer, number having count(*) > 1
        """,
        facts=facts,
    )


def consumed_twice(lifecycle: DataFrame) -> DataFrame:
    """Messages that left their queue more than once."""
    return query(
        "select queue, seq, consumed_count, dead_count from {lifecycle} where left_count > 1", lifecycle=lifecycle
    )


def consumed_never_stored(lifecycle: DataFrame) -> DataFrame:
    """Messages that left their queue though they were never stored in it."""
    return query(
        "select queue, seq, left_us from {lifecycle} where left_count > 0 and stored_count = 0", lifecycle=lifecycle
    )


def consumed_before_stored(lifecycle: DataFrame) -> DataFrame:
    """Messages that left their queue at a place of the log before the one where they were stored."""
    return query(
        "select queue, seq, stored_us, left_us from {lifecycle} where left_place < stored_place", lifecycle=lifecycle
    )


def attempt_forgotten(lifecycle: DataFrame) -> DataFrame:
    """Messages consumed with a delivery count that forgets deliveries which are on record (promise 4)."""
    return query(
        "select queue, seq, attempt, returned_attempt from {lifecycle} where attempt <= returned_attempt",
        lifecycle=lifecycle,
    )


def dead_letter_missing(facts: DataFrame) -> DataFrame:
    """Dead-lettered messages that did not arrive in the dead-letter queue."""
    return query(
        """
        select d.queue, d.seq, d.dead_queue, d.dead_seq
        from {facts} d left anti join (select * from {facts} where origin_seq is not null) s
          on d.dead_queue = s.queue and d.dead_seq = s.seq and d.queue = s.origin_queue and d.seq = s.origin_seq
        where d.kind = 'MessageDeadLettered'
        """,
        facts=facts,
    )


def uncommitted_work(transactions: DataFrame) -> DataFrame:
    """Transactions that stored or consumed messages without having been committed."""
    return query(
        """
        select hex(txn) txn, stored, consumed, rolled_back from {transactions}
        where committed = 0 and stored + consumed > 0
        """,
        transactions=transactions,
    )


def partial_transactions(transactions: DataFrame) -> DataFrame:
    """Committed transactions of which not all work, or more than all, took place."""
    return query(
        """
        select hex(txn) txn, stored, stored_said, consumed, consumed_said from {transactions}
        where committed > 0 and (stored <> stored_said or consumed <> consumed_said)
        """,
        transactions=transactions,
    )


def two_outcomes(transactions: DataFrame) -> DataFrame:
    """Transactions with more than one outcome (promise 2)."""
    return query(
        """
        select hex(txn) txn, committed, rolled_back from {transactions}
        where committed > 0 and committed + rolled_back > 1
        """,
        transactions=transactions,
    )


def epochs_mixed(records: DataFrame) -> DataFrame:
    """Commits of an epoch after a later epoch had begun: a fenced primary that still wrote (promise 7)."""
    return query(
        """
        select position, epoch, newest_epoch from (
          select position, epoch, max(epoch) over (order by position rows between unbounded preceding and current row)
            as newest_epoch
          from {records}
        ) where epoch < newest_epoch
        """,
        records=records,
    )


def positions_missing(records: DataFrame) -> DataFrame:
    """Positions of the log, from 1 on, that no segment of the ledger holds."""
    return query(
        """
        select previous + 1 as first_missing, position - 1 as last_missing from (
          select position, lag(position, 1, 0L) over (order by position) as previous
          from (select distinct position from {records})
        ) where position > previous + 1
        """,
        records=records,
    )


def records_torn(records: DataFrame) -> DataFrame:
    """Commits of which the ledger holds too few facts, or some twice."""
    return query("select position, facts, facts_said from {records} where facts <> facts_said", records=records)


def marks_missed(marks: DataFrame) -> DataFrame:
    """High-water marks that the facts before them do not amount to, the record of a lost tail.

    That a message left its queue off the record is not for this check: it shows as a lost message.
    """
    return query(
        """
        select queue, position, seq, seq_found, stored, stored_found, consumed, consumed_found from {marks}
        where seq <> seq_found or stored <> stored_found or consumed < consumed_found
        """,
        marks=marks,
    )


CHECKS = (
    Check(
        "lost",
        "No message was lost: what was stored was consumed, dead-lettered or still waits.",
        ("lifecycle", "waiting"),
        lost,
    ),
    Check("resurrected", "No message that was consumed waits again.", ("lifecycle", "waiting"), resurrected),
    Check(
        "number stored twice",
        "No send was stored twice, however often its producer had to send it again.",
        ("facts",),
        number_stored_twice,
    ),
    Check("place taken twice", "No two messages have the same place in a queue.", ("lifecycle",), place_taken_twice),
    Check("consumed twice", "No message was consumed twice.", ("lifecycle",), consumed_twice),
    Check(
        "consumed, never stored",
        "No message was consumed that had not been stored.",
        ("lifecycle",),
        consumed_never_stored,
    ),
    Check(
        "consumed before stored",
        "Every message was stored before it was consumed.",
        ("lifecycle",),
        consumed_before_stored,
    ),
    Check(
        "attempt forgotten",
        "Every delivery that failed was remembered by the ones after it.",
        ("lifecycle",),
        attempt_forgotten,
    ),
    Check(
        "dead letter missing",
        "Every dead-lettered message is in its dead-letter queue.",
        ("facts",),
        dead_letter_missing,
    ),
    Check(
        "uncommitted work",
        "Only committed transactions had an effect.",
        ("transactions",),
        uncommitted_work,
    ),
    Check(
        "partial transaction",
        "Every committed transaction took place as a whole.",
        ("transactions",),
        partial_transactions,
    ),
    Check("two outcomes", "Every transaction has one outcome.", ("transactions",), two_outcomes),
    Check(
        "epochs mixed",
        "Once a new primary had begun, no former one wrote.",
        ("records",),
        epochs_mixed,
    ),
    Check("positions missing", "The ledger holds the whole log.", ("records",), positions_missing),
    Check("records torn", "The ledger holds every commit whole and once.", ("records",), records_torn),
    Check(
        "marks missed",
        "The facts add up to what the broker counted on the way.",
        ("marks",),
        marks_missed,
    ),
)
"""All checks, in the order in which a reader wants the answers."""
