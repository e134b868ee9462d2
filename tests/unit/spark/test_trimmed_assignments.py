"""What a trimmed ledger still says of pipelines' assignments. No Spark, no JVM."""

from pathlib import Path

from legato.core.facts import (
    AnyFact,
    AssignmentAcknowledged,
    AssignmentFenced,
    EpochBegan,
    Kind,
    LogRecord,
    MessagesAssigned,
    MessageStored,
    QueueCreated,
    QueueDeleted,
)
from legato.spark.ledger.compaction import read_rows
from legato.spark.ledger.segments import segments_of, write_segment
from legato.spark.ledger.trimming import trim

FORMER, PRESENT, ASSIGNMENT, ENDED = 1, 2, 3, 4


def record(time_us: int, *facts: AnyFact) -> LogRecord:
    return LogRecord(1, time_us, [*facts])


def renewed() -> list[LogRecord]:
    """A queue that a stream reads by a pattern is deleted and made again; the assignment goes on with its numbers."""
    return [
        record(1, EpochBegan("a")),
        record(2, QueueCreated(FORMER, "orders"), *(MessageStored(FORMER, seq, 10, f"ID:{seq}") for seq in (1, 2, 3))),
        record(
            3,
            QueueCreated(ASSIGNMENT, "assignment://spark/orders", Kind.ASSIGNMENT, FORMER),
            QueueCreated(ENDED, "assignment://former/orders", Kind.ASSIGNMENT, FORMER),
            AssignmentFenced(ASSIGNMENT, 1),
        ),
        record(4, MessagesAssigned(FORMER, 1, 2, 20, ASSIGNMENT, 1), MessagesAssigned(FORMER, 3, 1, 10, ENDED, 1)),
        record(5, QueueDeleted(FORMER, "orders"), QueueDeleted(ENDED, "assignment://former/orders", 1)),
        record(6, QueueCreated(PRESENT, "orders"), AssignmentFenced(ASSIGNMENT, 2, source=PRESENT)),
        record(7, MessageStored(PRESENT, 1, 10, "ID:4")),
        record(8, MessagesAssigned(PRESENT, 1, 1, 10, ASSIGNMENT, 3)),
        record(9, AssignmentAcknowledged(ASSIGNMENT, 3, 3)),
    ]


def test_what_was_assigned_from_a_queue_that_is_gone_is_still_said(tmp_path: Path) -> None:
    """The audit found that more was acknowledged than assigned, at each acknowledgement from then on."""
    numbered = list(enumerate(renewed(), 1))
    write_segment(tmp_path, numbered[:7])
    write_segment(tmp_path, numbered[7:])
    assert trim(tmp_path, 8)
    rows = read_rows(segments_of(tmp_path)[0]).to_pylist()
    assigned = [(row["to_queue"], row["to_seq"], row["stored"]) for row in rows if row["kind"] == "MessagesAssigned"]
    assert assigned == [(ASSIGNMENT, 1, 2)], "of the assignment that is there, and of no other"
