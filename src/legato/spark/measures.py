"""What a ledger says of speed: takeovers, throughput over time, and how long messages took."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from legato.spark.ledger import aggregate
from legato.spark.table import COPY

LATENCY_BUCKETS_PER_DECADE = 20
"""Latency histograms have this many buckets for a factor of ten: each is 12 % wide."""


def takeovers(facts: DataFrame) -> DataFrame:
    """One row for each epoch after the first: when it began and served, and how the one before it ended.

    `duration_us` runs from the last commit of the former primary to the first of the new one; `served_us` is the
    first time after it at which a message was stored or consumed.
    """
    epochs = aggregate(
        facts,
        "epoch",
        began_us="min(time_us) filter (where kind = 'EpochBegan')",
        last_us="max(time_us)",
        clean="count_if(kind = 'EpochEnded') > 0",
        served_us="min(time_us) filter (where kind in ('MessageStored', 'MessagePublished', 'MessageConsumed'))",
    )
    brokers = facts.where("kind = 'EpochBegan'").selectExpr("epoch", "name as broker").distinct()
    named = epochs.join(brokers, "epoch", "left")
    former = named.selectExpr("epoch + 1 as epoch", "broker as former_broker", "clean", "last_us as former_last_us")
    return (
        named.drop("clean", "last_us")
        .join(former, "epoch")
        .withColumn("duration_us", F.expr("began_us - former_last_us"))
        .orderBy("epoch")
    )


def throughput(facts: DataFrame, start_us: int, bucket_us: int) -> DataFrame:
    """Messages stored, consumed and dead-lettered in each queue and each `bucket_us` from `start_us` on."""
    moves = facts.where("kind in ('MessageStored', 'MessageConsumed', 'MessageDeadLettered')")
    return aggregate(
        moves.withColumn("bucket", F.expr(f"(time_us - {start_us}L) div {bucket_us}L")),
        "queue, bucket",
        stored="count_if(kind = 'MessageStored')",
        consumed="count_if(kind = 'MessageConsumed')",
        dead_lettered="count_if(kind = 'MessageDeadLettered')",
    )


def latencies(lifecycle: DataFrame) -> DataFrame:
    """Per queue, percentiles in microseconds of queueing (stored to delivered), processing (to consumed) and both."""
    stages = lifecycle.where("consumed_count > 0 and stored_count > 0").selectExpr(
        "queue",
        """stack(3,
            'queueing', delivered_us - stored_us,
            'processing', left_us - delivered_us,
            'end to end', left_us - stored_us) as (stage, us)""",
    )
    counted = aggregate(
        stages.withColumn("us", F.greatest("us", F.lit(0))).withColumn("rounded", F.expr(THREE_DIGITS)),
        "queue, stage, rounded",
        messages="count(*)",
        longest="max(us)",
    )
    return percentiles(counted, "queue, stage")


_DIGITS_MAX = 15
"""A length of time of more digits, of thirty years, keeps more than three of them."""

THREE_DIGITS = (
    "case when us < 1000 then us "
    + " ".join(f"when us < 1{'0' * digits}L then us - us % 1{'0' * (digits - 3)}L" for digits in range(4, _DIGITS_MAX))
    + f" else us - us % 1{'0' * (_DIGITS_MAX - 3)}L end"
)
"""SQL: a length of time to three digits, so that there are few of them: these can be counted and added up.

Not by logarithms, which cost more than all else that is done with it.
"""

SHARES = (0.5, 0.95, 0.99)


def percentiles(counted: DataFrame, by: str) -> DataFrame:
    """For each value of the columns `by`, the `SHARES` percentiles of `rounded`, of which each counts `messages`."""
    upward = Window.partitionBy(*by.split(", ")).orderBy("rounded")
    ranked = counted.withColumn("rank", F.sum("messages").over(upward)).withColumn(
        "total", F.sum("messages").over(upward.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing))
    )
    shares = ", ".join(f"min(rounded) filter (where rank >= {share}D * total)" for share in SHARES)
    return aggregate(ranked, by, messages="sum(messages)", percentiles=f"array({shares})", longest="max(longest)")


def latency_histogram(lifecycle: DataFrame, start_us: int, bucket_us: int) -> DataFrame:
    """Messages per queue, time bucket of their consumption and logarithmic bucket of their end-to-end time."""
    consumed = lifecycle.where("consumed_count > 0 and stored_count > 0").selectExpr(
        "queue",
        f"(left_us - {start_us}L) div {bucket_us}L as bucket",
        f"cast(floor(log10(greatest(left_us - stored_us, 1)) * {LATENCY_BUCKETS_PER_DECADE}) as int) as latency",
    )
    return aggregate(consumed, "queue, bucket, latency", messages="count(*)")


def queue_totals(lifecycle: DataFrame) -> DataFrame:
    """Per queue, how many messages were stored, how many left in which way, came back, were done twice, never left."""
    return aggregate(
        lifecycle,
        "queue",
        stored="count_if(stored_count > 0)",
        consumed="count_if(consumed_count > 0)",
        dead_lettered="count_if(dead_count > 0)",
        moved="count_if(moved_count > 0)",
        unsettled="count_if(stored_count > 0 and left_count = 0)",
        done_twice="sum(greatest(left_count - 1, 0) + greatest(stored_count - 1, 0))",
        redelivered="count_if(returned_count > 0)",
    )


def forwarded(facts: DataFrame, transactions: DataFrame) -> DataFrame:
    """Per queue, how many messages were consumed in a committed transaction that stored one in another queue."""
    storing = transactions.where("committed > 0 and stored > 0").select("txn", "stored_queue_min", "stored_queue_max")
    elsewhere = (
        facts.where("kind = 'MessageConsumed' and txn is not null")
        .select("queue", "txn")
        .join(storing, "txn")
        .where("stored_queue_min <> queue or stored_queue_max <> queue")
    )
    return aggregate(elsewhere, "queue", forwarded="count(*)")


def departures(facts: DataFrame) -> DataFrame:
    """Per queue and cause, how many messages left without being consumed: as dead letters, and else."""
    return aggregate(
        facts.where("kind in ('MessageDeadLettered', 'MessageMoved')"),
        "queue, cause",
        dead_lettered="count_if(kind = 'MessageDeadLettered')",
        moved="count_if(kind = 'MessageMoved')",
    )


def topics(facts: DataFrame) -> DataFrame:
    """Per topic, how many messages were published, how many copies they had, and how many nobody subscribed to."""
    published = aggregate(
        facts.where("kind = 'MessagePublished'"),
        "queue",
        published="count(*)",
        copies="sum(stored)",
        unheard="count_if(stored = 0)",
    )
    return published.orderBy("queue")


def unsettled(lifecycle: DataFrame) -> DataFrame:
    """Messages that were stored and never left their queue."""
    return lifecycle.where("stored_count > 0 and left_count = 0")


def in_deleted(messages: DataFrame, deletions: DataFrame) -> DataFrame:
    """Those of the messages whose queue is deleted."""
    return messages.join(F.broadcast(deletions), "queue", "left_semi")


def span(facts: DataFrame) -> DataFrame:
    """One row: how many facts the ledger holds, from when to when, up to which position, how many of them of flows."""
    return facts.selectExpr(
        f"count_if(kind is not null and not ({COPY})) as facts",
        "min(time_us) as first_us",
        "max(time_us) as last_us",
        "max(position) as last_position",
        "count_if(kind = 'MessageOfFlow') as of_flows",
    )
