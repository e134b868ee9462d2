"""The ledger's facts as Spark frames: as they are, and one row for each message, commit and transaction."""

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from legato.core.facts import Kind
from legato.core.lanes import LANE_SHIFT

SCHEMA = """
    position bigint, ordinal int, epoch int, time_us bigint, kind string, queue int, seq bigint, size int,
    message_id string, producer int, number bigint, txn binary, consumer int, delivered_us bigint, attempt int,
    flagged boolean, cause string, origin_queue int, origin_seq bigint, dead_queue int, dead_seq bigint, name string,
    stored bigint, consumed bigint, topic int, expires_us bigint, to_queue int, to_seq bigint, waiting bigint,
    paused boolean, queue_kind tinyint, temporary boolean, shared boolean, selector string, no_local boolean,
    container string, duplicate_id binary, group_id string,
    flow_id string, trace_id string, stage string, call string
"""

PLACE = "position * 1048576 + ordinal"
"""SQL: where a fact stands in the log, in one number (a record holds far fewer than 2**20 facts)."""

SENT = "kind in ('MessageStored', 'MessagePublished') and origin_seq is null"
"""SQL: a message came from outside; given together with `txn`, `producer` or `number`, which copies do not have."""

_LEFT = "kind in ('MessageConsumed', 'MessageDeadLettered', 'MessageMoved')"
_FIRST_LANE = f"seq < {1 << LANE_SHIFT}L"


def aggregate(frame: DataFrame, by: str, **columns: str) -> DataFrame:
    """One row for each value of the columns `by`, with further columns that are SQL expressions over its rows.

    Not `SparkSession.sql`: given frames as arguments, it forgets that they were cached.
    """
    return frame.groupBy(*by.split(", ")).agg(*(F.expr(text).alias(name) for name, text in columns.items()))


def read_facts(spark: SparkSession, ledger: Path) -> DataFrame:
    """All facts of a ledger, one row each, in the columns of `legato.spark.table`."""
    return read_segments(spark, [str(ledger)])


def read_segments(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """The facts of some segments, or of all in a directory."""
    return spark.read.schema(SCHEMA).option("pathGlobFilter", "facts-*.parquet").parquet(*paths)


def queues(facts: DataFrame) -> DataFrame:
    """One row a queue, topic or subscription: its number, its name, its `Kind`, and whether it is temporary."""
    created = facts.where("kind = 'QueueCreated'")
    return created.selectExpr(
        "queue", "name", "coalesce(queue_kind, 0Y) as queue_kind", "coalesce(temporary, false) as temporary"
    ).distinct()


def deletions(facts: DataFrame) -> DataFrame:
    """One row a deleted queue or subscription: where in the log, and how many messages waited in it."""
    topics = queues(facts).where(f"queue_kind = {Kind.TOPIC:d}")
    deleted = facts.where("kind = 'QueueDeleted'").selectExpr("queue", f"{PLACE} as mark", "waiting")
    return deleted.join(F.broadcast(topics), "queue", "left_anti")


def records(facts: DataFrame) -> DataFrame:
    """One row a commit: its position and epoch, and how many facts and copies there are of it, and should be."""
    return aggregate(
        facts,
        "position, epoch",
        facts="count(*)",
        facts_said="max(ordinal) + 1 + coalesce(sum(stored) filter (where kind = 'MessagePublished'), 0)",
    )


def transactions(facts: DataFrame) -> DataFrame:
    """One row a transaction: what it stored and consumed and in which queues, what it said it did, its outcomes."""
    return aggregate(
        facts.where("txn is not null"),
        "txn",
        stored=f"count_if({SENT})",
        consumed="count_if(kind = 'MessageConsumed')",
        committed="count_if(kind = 'TransactionCommitted')",
        rolled_back="count_if(kind = 'TransactionRolledBack')",
        stored_said="max(stored) filter (where kind = 'TransactionCommitted')",
        consumed_said="max(consumed) filter (where kind = 'TransactionCommitted')",
        stored_queue_min=f"min(queue) filter (where {SENT})",
        stored_queue_max=f"max(queue) filter (where {SENT})",
    )


def marks(facts: DataFrame) -> DataFrame:
    """One row a high-water mark: what the broker said of a queue, and what the facts before that place amount to.

    Facts are counted by record first, and in a record with a mark by the half before and the half after it: then the
    running sums have a few rows for each commit, not one for each message. What a topic stores are bodies: those of
    publications with copies. `in_order` says that no message's place is beyond the last one's: not so in the schedule.
    """
    said = facts.where("kind = 'QueueMarked'").select("queue", "position", "ordinal", "seq", "stored", "consumed")
    unordered = queues(facts).where(f"queue_kind = {Kind.SCHEDULE:d}").selectExpr("queue", "false as in_order")
    marked_at = said.select("queue", "position", F.col("ordinal").alias("mark_ordinal"))
    moves = (
        facts.selectExpr(
            "queue",
            "position",
            "ordinal",
            "seq",
            "kind = 'MessageStored' or (kind = 'MessagePublished' and stored > 0) as is_stored",
            f"{_LEFT} as is_gone",
        )
        .where("is_stored or is_gone")
        .join(F.broadcast(marked_at), ["queue", "position"], "left")
        .withColumn("after", F.expr("coalesce(ordinal > mark_ordinal, false)"))
    )
    moved = aggregate(
        moves,
        "queue, position, after",
        stored="count_if(is_stored)",
        consumed="count_if(is_gone)",
        seq=f"max(seq) filter (where is_stored and {_FIRST_LANE})",
    )
    nothing = said.selectExpr("queue", "position", "false as after", "0L stored", "0L consumed", "0L seq")
    until_here = Window.partitionBy("queue").orderBy("position", "after").rangeBetween(Window.unboundedPreceding, 0)
    found = (
        moved.unionByName(nothing)
        .select(
            "queue",
            "position",
            "after",
            F.sum("stored").over(until_here).alias("stored_found"),
            F.sum("consumed").over(until_here).alias("consumed_found"),
            F.max("seq").over(until_here).alias("seq_found"),
        )
        .where("not after")
        .distinct()
    )
    places = said.withColumn("place", F.expr(PLACE)).join(F.broadcast(unordered), "queue", "left")
    return places.withColumn("in_order", F.expr("coalesce(in_order, true)")).join(found, ["queue", "position"])
