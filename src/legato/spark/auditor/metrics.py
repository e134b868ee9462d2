"""Metrics of a ledger: takeovers, latencies, and the totals of each queue."""

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from legato.spark.ledger.fact_filter import is_kind
from legato.spark.ledger.fact_frames import FURTHER, aggregate
from legato.spark.result import BOTH, STAGES, LatencySummary

LATENCY_BUCKETS_PER_DECADE = 20
"""Latency histograms have this many buckets for a factor of ten: each is 12 % wide."""


def takeovers(facts: DataFrame, commits: DataFrame) -> DataFrame:
    """One row for each epoch after the first: how the one before it ended, and how long nobody served.

    `lost_us` is when that had last served for all that is known: when it ended, or when its successor lost it; else
    its last commit, which may be long before its end if it was idle (`at_most`). `served_us` is when clients were
    answered again. Whether anybody had a message for it then does not matter.
    """
    queue_and_epoch_facts = facts.where(is_kind("EpochBegan", "ServingBegan"))
    named = queue_and_epoch_facts.selectExpr(
        "epoch",
        f"if({is_kind('EpochBegan')}, name, null) as broker",
        "at_us",
        f"if({is_kind('ServingBegan')}, cause, null) as began_after",
        "detection_us",
    )
    epochs = aggregate(
        commits.select("epoch", "kind", "cause", "time_us").unionByName(named, allowMissingColumns=True),
        "epoch",
        broker="max(broker)",
        # Where the ledger lacks an epoch's beginning, what it has of it first.
        began_us=EPOCH_BEGAN,
        last_us="max(time_us)",
        ended="max(cause) filter (where kind = 'EpochEnded')",
        served_us=f"coalesce(min(at_us), {EPOCH_BEGAN})",
        seen_us=f"{EPOCH_BEGAN} - {LOST_AFTER}",
    )
    upward = Window.orderBy("epoch")
    former = (F.lag(name).over(upward).alias(f"former_{name}") for name in ("epoch", "broker", "ended", "last_us"))
    return (
        epochs.select("epoch", "broker", "began_us", "served_us", "seen_us", *former)
        .where("former_epoch = epoch - 1")
        .withColumn("lost_us", F.expr(LAST_SERVED))
        .selectExpr(
            *("epoch", "broker", "former_broker", "began_us", "served_us", "lost_us"),
            "former_ended as ended",
            "former_ended is null and seen_us is null as at_most",
        )
    )


EPOCH_BEGAN = "coalesce(min(time_us) filter (where kind = 'EpochBegan'), min(time_us))"
"""SQL: when an epoch began."""

LOST_AFTER = "max(if(began_after <> 'start', detection_us, null))"
"""SQL: how long before its epoch a primary had lost the one before it, if it had seen that serve."""

LAST_SERVED = """if(former_ended is null, greatest(former_last_us, seen_us), former_last_us)"""
"""SQL: when the former primary had last served for all that is known."""


def lengths(lifecycle: DataFrame, start_us: int, bucket_us: int) -> DataFrame:
    """How many messages took how long to three digits, by queue and stage; end to end by time of consumption too.

    Stages are queueing (stored to delivered), processing (to consumed) and both; `bucket` counts `bucket_us` from
    `start_us` on.
    """
    stages = lifecycle.where("consumed_count > 0 and stored_count > 0").selectExpr(
        "queue",
        f"""stack(3,
            0Y, greatest(delivered_us - stored_us, 0L), null,
            1Y, greatest(left_us - delivered_us, 0L), null,
            2Y, greatest(left_us - stored_us, 0L), (left_us - {start_us}L) div {bucket_us}L) as (number, us, bucket)""",
    )
    counted = aggregate(
        stages.withColumn("rounded", F.expr(THREE_DIGITS)),
        "queue, number, bucket, rounded",
        messages="count(*)",
        longest="max(us)",
    )
    return counted.withColumn("stage", F.expr(f"element_at(array{STAGES}, number + 1)"))


def latencies(lengths: DataFrame) -> DataFrame:
    """Per queue, percentiles in microseconds of queueing, processing and both."""
    counted = aggregate(lengths, "queue, stage, rounded", messages="sum(messages)", longest="max(longest)")
    return percentiles(counted, "queue, stage")


def latency_histogram(lengths: DataFrame) -> DataFrame:
    """Messages per queue, time bucket of their consumption and logarithmic bucket of their end-to-end time."""
    consumed = lengths.where(f"stage = '{BOTH}'").selectExpr(
        "queue",
        "bucket",
        f"cast(floor(log10(greatest(rounded, 1)) * {LATENCY_BUCKETS_PER_DECADE}) as int) as latency",
        "messages",
    )
    return aggregate(consumed, "queue, bucket, latency", messages="sum(messages)")


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


def latency_of(row: Row, stage: str) -> LatencySummary:
    """What a row of `percentiles` says, as a summary of a stage."""
    p50, p95, p99 = (us / 1000 for us in row["percentiles"])
    return LatencySummary(stage, row["messages"], p50, p95, p99, row["longest"] / 1000)


def queue_totals(lifecycle: DataFrame, **also: str) -> DataFrame:
    """Per queue, how many messages were stored, how many left in which way, came back, were done twice, never left.

    `also` are further columns, SQL over a queue's messages.
    """
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
        **also,
    )


FORWARDING = "committed > 0 and stored > 0 and consumed > 0"
"""SQL: a transaction in which messages may have been forwarded."""


def forwarded(facts: DataFrame, transactions: DataFrame) -> DataFrame:
    """Per queue, how many messages were consumed in a committed transaction that stored one in another queue."""
    storing = transactions.where(FORWARDING).select("txn", "stored_queue_min", "stored_queue_max")
    elsewhere = (
        facts.where(f"{is_kind('MessageConsumed')} and txn is not null")
        .select("queue", "txn")
        .join(storing, "txn")
        .where("stored_queue_min <> queue or stored_queue_max <> queue")
    )
    return aggregate(elsewhere, "queue", forwarded="count(*)")


def unsettled(lifecycle: DataFrame) -> DataFrame:
    """Messages that were stored and never left their queue."""
    return lifecycle.where("stored_count > 0 and left_count = 0")


def in_deleted(messages: DataFrame, deletions: DataFrame) -> DataFrame:
    """Those of the messages whose queue is deleted."""
    return messages.join(F.broadcast(deletions), "queue", "left_semi")


def span(commits: DataFrame) -> DataFrame:
    """One row: how many facts the ledger holds, from when to when, up to which position, how many of them of flows
    and of the audit trail."""
    return commits.selectExpr(
        f"coalesce(sum(if(kind is null, 0, facts)), 0) - coalesce(sum({FURTHER}), 0) as facts",
        "min(time_us) as first_us",
        "max(time_us) as last_us",
        "max(position) as last_position",
        "coalesce(sum(facts) filter (where kind = 'MessageOfFlow'), 0) as of_flows",
        "coalesce(sum(facts) filter (where kind = 'ActionAudited'), 0) as of_actions",
    )
