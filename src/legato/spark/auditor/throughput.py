"""Throughput by queue and bucket of time, departures by cause, and totals of topics, in one query of the commits."""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from legato.spark.auditor.queue_rollup import QueueRollup
from legato.spark.ledger.fact_filter import kind_in
from legato.spark.ledger.fact_frames import aggregate
from legato.spark.result import ThroughputPoint, TopicAudit

_TIMED = ("MessageStored", "MessageConsumed", "MessageDeadLettered")
_KINDS = (*_TIMED, "MessageMoved", "MessagePublished")

Causes = dict[int, dict[str, int]]
"""By queue and cause, a number of messages."""


def activity(commits: DataFrame, start_us: int, bucket_us: int) -> DataFrame:
    """How many facts there are of each kind and cause in each queue, and what publications among them come to.

    What throughput counts also by time: `bucket` counts `bucket_us` from `start_us` on.
    """
    return aggregate(
        commits.where(kind_in(*_KINDS)).withColumn(
            "bucket", F.expr(f"if({kind_in(*_TIMED)}, (time_us - {start_us}L) div {bucket_us}L, null)")
        ),
        "queue, kind, cause, bucket",
        facts="sum(facts)",
        copies="sum(said)",
        heard="sum(heard)",
    )


def throughput(rows: Sequence[Row]) -> list[ThroughputPoint]:
    """Messages stored, consumed and dead-lettered in each queue and bucket of `activity`, in their order."""
    points: dict[tuple[int, int], list[int]] = {}
    for row in rows:
        if row["bucket"] is not None:
            point = points.setdefault((row["queue"], row["bucket"]), [0] * len(_TIMED))
            point[_TIMED.index(row["kind"])] += row["facts"]
    return [ThroughputPoint(*place, *counts) for place, counts in sorted(points.items())]


def departures(rows: Sequence[Row]) -> tuple[Causes, Causes]:
    """Messages that left without being consumed: as dead letters, and else."""
    dead_letters: Causes = {}
    moves: Causes = {}
    counts = {"MessageDeadLettered": dead_letters, "MessageMoved": moves}
    for row in sorted((row for row in rows if row["kind"] in counts), key=lambda row: row["cause"] or ""):
        of_queue = counts[row["kind"]].setdefault(row["queue"], {})
        of_queue[row["cause"]] = of_queue.get(row["cause"], 0) + row["facts"]
    return dead_letters, moves


def topics(rows: Sequence[Row], rollup: QueueRollup, twice: Mapping[int, int]) -> list[TopicAudit]:
    """What was published to each topic, and how much of it was stored `twice`."""
    published = sorted((row for row in rows if row["kind"] == "MessagePublished"), key=lambda row: row["queue"])
    return [
        TopicAudit(
            topic=row["queue"],
            name=rollup.name(row["queue"]),
            published=row["facts"],
            copies=row["copies"],
            unheard=row["facts"] - row["heard"],
            duplicated=twice.get(row["queue"], 0),
        )
        for row in published
    ]
