"""What NumPy and Arrow find of all facts is what SQL finds: in segments cut anywhere."""

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from legato.core.facts import (
    Kind,
    LogRecord,
    MessageOfFlow,
    MessageStored,
    ProducerForgotten,
    ProducerRegistered,
    QueueCreated,
    QueueMarked,
)
from legato.spark.auditor.check_runner import FACT_CANDIDATES, candidates_in_commits
from legato.spark.auditor.frames import as_rows, frames_of
from legato.spark.auditor.high_water_marks import marks, queue_and_epoch_facts
from legato.spark.ledger import fact_frames
from legato.spark.ledger.segments import write_segment
from legato.spark.summaries.prefetch import prefetching
from legato.spark.summaries.producer_order_sql import odd_numbers, registered_anew
from tests.spark.history import HIGH, history, news_history, one_log, order, record


def divided() -> list[LogRecord]:
    """With a mark between messages of one commit, and a transaction that is told of in two segments."""
    records = history()
    records.append(record(2, 500, order(7), QueueMarked(1, 7, 7, 5), order(8)))
    records.append(LogRecord(2, 1_501_000, []))
    return records


def flags_and_ids() -> list[LogRecord]:
    """With what makes facts candidates: expiry and flows."""
    stored = MessageStored(1, 9, 10, "ID:9", expires_us=7)
    return [*history(), record(2, 600, stored, MessageOfFlow(1, 9, "f", "t", "s", "c", 1))]


def disordered() -> list[LogRecord]:
    """Numbers that go back, in one commit and from one to another, that come twice, and in lanes of two queues."""
    further = [
        record(2, 700, QueueCreated(5, "$schedule", Kind.SCHEDULE), ProducerRegistered(7, "bus"), numbered(1, 7, 9, 1)),
        record(2, 701, numbered(1, 8, 7, 2), numbered(1, 9, 7, 1), numbered(1, HIGH + 1, 7, 3), numbered(1, 10, 7, 4)),
        record(2, 702, numbered(2, 7, 7, 6), numbered(5, 900, 8, 1), numbered(5, 800, 8, 2), numbered(2, 8, 7, 6)),
        record(2, 703, ProducerForgotten(7, "bus"), ProducerRegistered(9, "bus"), numbered(2, 9, 9, 1)),
        record(2, 704, *(numbered(3, seq, 11, seq) for seq in range(1, 9)), numbered(2, 10, 9, 2)),
    ]
    return [*history(), *further]


def numbered(queue: int, seq: int, producer: int, number: int) -> MessageStored:
    return MessageStored(queue, seq, 10, f"ID:{producer}-{number}", producer, number)


def test_it_is_what_sql_says(spark: SparkSession, tmp_path: Path) -> None:
    records = list(enumerate(one_log([divided(), flags_and_ids(), news_history(), disordered()]), 1))
    for part in (records[:5], records[5:40], records[40:70], records[70:]):
        write_segment(tmp_path, part)
    facts = as_rows(fact_frames.read_ledger(spark, tmp_path))
    commits = as_rows(fact_frames.commits(facts, **candidates_in_commits()))
    with (
        prefetching(tmp_path, FACT_CANDIDATES) as prefetched,
        frames_of(facts.sparkSession, lambda: facts, prefetched=prefetched) as frames,
    ):
        assert rows(frames["commits"]) == rows(commits)
        assert rows(frames["transactions"]) == rows(fact_frames.transactions(facts))
        assert rows(frames["marks"]) == rows(marks(queue_and_epoch_facts(facts), commits))
        assert rows(frames["queue_and_epoch_facts"]) == rows(queue_and_epoch_facts(facts))
        assert rows(frames["deletions"]) == rows(fact_frames.deletions(fact_frames.queue_facts(facts)))
        assert rows(frames["queues"]) == rows(fact_frames.queues(facts))
        assert rows(frames["odd_numbers"]) == rows(odd_numbers(facts)) != []
        assert rows(frames["reregistered"]) == rows(registered_anew(facts)) != []


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return sorted((row.asDict() for row in frame.collect()), key=repr_of)


def repr_of(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))
