"""What NumPy and Arrow find of all facts is what SQL finds: in segments cut anywhere."""

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from legato.core.facts import LogRecord, MessageOfFlow, MessageStored, QueueMarked
from legato.spark import ledger
from legato.spark.checking import SUSPECT_FACTS, suspects_in_commits
from legato.spark.frames import as_rows, frames_of
from legato.spark.marks import landmarks, marks
from legato.spark.preparing import preparing
from legato.spark.segments import write_segment
from tests.spark.history import history, news_history, one_log, order, record


def divided() -> list[LogRecord]:
    """With a mark between messages of one commit, and a transaction that is told of in two segments."""
    records = history()
    records.append(record(2, 500, order(7), QueueMarked(1, 7, 7, 5), order(8)))
    records.append(LogRecord(2, 1_501_000, []))
    return records


def flags_and_ids() -> list[LogRecord]:
    """With what makes facts suspects: expiry and flows."""
    stored = MessageStored(1, 9, 10, "ID:9", expires_us=7)
    return [*history(), record(2, 600, stored, MessageOfFlow(1, 9, "f", "t", "s", "c", 1))]


def test_it_is_what_sql_says(spark: SparkSession, tmp_path: Path) -> None:
    records = list(enumerate(one_log([divided(), flags_and_ids(), news_history()]), 1))
    for part in (records[:5], records[5:40], records[40:]):
        write_segment(tmp_path, part)
    facts = as_rows(ledger.read_facts(spark, tmp_path))
    commits = as_rows(ledger.commits(facts, **suspects_in_commits()))
    with (
        preparing(tmp_path, SUSPECT_FACTS) as prepared,
        frames_of(facts.sparkSession, lambda: facts, prepared=prepared) as frames,
    ):
        assert rows(frames["commits"]) == rows(commits)
        assert rows(frames["transactions"]) == rows(ledger.transactions(facts))
        assert rows(frames["marks"]) == rows(marks(landmarks(facts), commits))
        assert rows(frames["landmarks"]) == rows(landmarks(facts))
        assert rows(frames["deletions"]) == rows(ledger.deletions(ledger.told_of_queues(facts)))
        assert rows(frames["queues"]) == rows(ledger.queues(facts))


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return sorted((row.asDict() for row in frame.collect()), key=repr_of)


def repr_of(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))
