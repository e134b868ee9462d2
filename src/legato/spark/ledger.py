"""The ledger's facts as Spark frames: as they are, and one row for each message, commit and transaction."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

SCHEMA = """
    position bigint, ordinal int, epoch int, time_us bigint, kind string, queue int, seq bigint, size int,
    message_id string, producer int, number bigint, txn binary, consumer int, delivered_us bigint, attempt int,
    flagged boolean, cause string, origin_queue int, origin_seq bigint, dead_queue int, dead_seq bigint, name string,
    stored bigint, consumed bigint
"""


def aggregate(frame: DataFrame, by: str, **columns: str) -> DataFrame:
    """One row for each value of the columns `by`, with further columns that are SQL expressions over its rows.

    Not `SparkSession.sql`: given frames as arguments, it forgets that they were cached.
    """
    return frame.groupBy(*by.split(", ")).agg(*(F.expr(text).alias(name) for name, text in columns.items()))


def read_facts(spark: SparkSession, ledger: Path) -> DataFrame:
    """All facts of a ledger, one row each, in the columns of `legato.spark.table`."""
    return spark.read.schema(SCHEMA).option("pathGlobFilter", "facts-*.parquet").parquet(str(ledger))


def queue_names(facts: DataFrame) -> DataFrame:
    """One row a queue: its number and its name."""
    return facts.where("kind = 'QueueCreated'").select("queue", "name").distinct()


def records(facts: DataFrame) -> DataFrame:
    """One row a commit: its position and epoch, and how many facts there are of it, and should be."""
    return aggregate(facts, "position, epoch", facts="count(*)", facts_said="max(ordinal) + 1")


def lifecycle(facts: DataFrame) -> DataFrame:
    """One row a message: how often it was stored and left its queue, when, at which place of the log, by which try.

    A place is position and ordinal in one number (a record holds far fewer than 2**20 facts). Only numbers are
    aggregated: with strings among them Spark would have to sort instead of hash.
    """
    messages = facts.selectExpr(
        "queue",
        "seq",
        "time_us",
        "delivered_us",
        "attempt",
        "position * 1048576 + ordinal as place",
        "kind = 'MessageStored' as is_stored",
        "kind = 'MessageConsumed' as is_consumed",
        "kind = 'MessageDeadLettered' as is_dead",
        "kind in ('MessageConsumed', 'MessageDeadLettered') as is_gone",
        "kind = 'MessageReturned' as is_returned",
    ).where("is_stored or is_gone or is_returned")
    return aggregate(
        messages,
        "queue, seq",
        stored_count="count_if(is_stored)",
        consumed_count="count_if(is_consumed)",
        dead_count="count_if(is_dead)",
        left_count="count_if(is_gone)",
        returned_count="count_if(is_returned)",
        stored_us="min(time_us) filter (where is_stored)",
        delivered_us="max(delivered_us) filter (where is_consumed)",
        left_us="max(time_us) filter (where is_gone)",
        stored_place="min(place) filter (where is_stored)",
        left_place="max(place) filter (where is_gone)",
        attempt="max(attempt) filter (where is_consumed)",
        returned_attempt="max(attempt) filter (where is_returned)",
    )


def transactions(facts: DataFrame) -> DataFrame:
    """One row a transaction: what it stored and consumed and in which queues, what it said it did, its outcomes."""
    return aggregate(
        facts.where("txn is not null"),
        "txn",
        stored="count_if(kind = 'MessageStored')",
        consumed="count_if(kind = 'MessageConsumed')",
        committed="count_if(kind = 'TransactionCommitted')",
        rolled_back="count_if(kind = 'TransactionRolledBack')",
        stored_said="max(stored) filter (where kind = 'TransactionCommitted')",
        consumed_said="max(consumed) filter (where kind = 'TransactionCommitted')",
        stored_queue_min="min(queue) filter (where kind = 'MessageStored')",
        stored_queue_max="max(queue) filter (where kind = 'MessageStored')",
    )


def marks(facts: DataFrame) -> DataFrame:
    """One row a high-water mark: what the broker said of a queue, and what the facts before that place amount to.

    Facts are counted by record first, and in a record with a mark by the half before and the half after it: then the
    running sums have a few rows for each commit, not one for each message.
    """
    said = facts.where("kind = 'QueueMarked'").select("queue", "position", "ordinal", "seq", "stored", "consumed")
    marked_at = said.select("queue", "position", F.col("ordinal").alias("mark_ordinal"))
    moves = (
        facts.where("kind in ('MessageStored', 'MessageConsumed', 'MessageDeadLettered')")
        .select("queue", "position", "ordinal", "seq", "kind")
        .join(F.broadcast(marked_at), ["queue", "position"], "left")
        .withColumn("after", F.expr("coalesce(ordinal > mark_ordinal, false)"))
    )
    moved = aggregate(
        moves,
        "queue, position, after",
        stored="count_if(kind = 'MessageStored')",
        consumed="count_if(kind <> 'MessageStored')",
        seq="max(seq) filter (where kind = 'MessageStored')",
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
    places = said.withColumn("place", F.expr("position * 1048576 + ordinal"))
    return places.join(found, ["queue", "position"])
