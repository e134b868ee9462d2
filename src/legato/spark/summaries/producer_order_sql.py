"""The order of producers' numbers, and producers registered anew, in SQL: the model of `producer_order_numpy.py`."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from legato.core.facts import Kind
from legato.core.lanes import LANE_SHIFT
from legato.spark.ledger.fact_filter import NUMBERED, REGISTERED, is_kind
from legato.spark.ledger.fact_frames import aggregate
from legato.spark.summaries.producer_order_numpy import GROUP


def odd_numbers(facts: DataFrame) -> DataFrame:
    """Producers' numbers in lanes of addresses that are `disordered`, or `doubtful`: one may be stored twice.

    Equal numbers, ranges that meet and what is out of order are doubtful; of the schedule nothing is out of order.
    """
    sent = facts.where(str(NUMBERED)).selectExpr(
        *(f"cast({name} as bigint) as {name}" for name in ("producer", "queue", "number", "seq")),
        f"shiftright(seq, {LANE_SHIFT}) as lane",
        "position",
        "ordinal",
    )
    in_order = Window.partitionBy(*GROUP).orderBy("position", "ordinal")
    steps = sent.select("*", *(F.lag(name).over(in_order).alias(f"{name}_before") for name in ("number", "seq")))
    lanes = aggregate(
        steps,
        ", ".join(GROUP),
        messages="count(*)",
        low="min(number)",
        high="max(number)",
        repeats="count_if(number = number_before)",
        ascending="bool_and(coalesce(number >= number_before and seq > seq_before, true))",
    )
    schedules = facts.where(f"{is_kind('QueueCreated')} and queue_kind = {Kind.SCHEDULE:d}")
    scheduled = schedules.selectExpr("cast(queue as bigint) as queue", "true as scheduled").distinct()
    of_producer = Window.partitionBy("producer").orderBy("low", "queue", "lane")
    beside = lanes.join(F.broadcast(scheduled), "queue", "left").select(
        "*",
        F.max("high").over(of_producer.rowsBetween(Window.unboundedPreceding, -1)).alias("before"),
        F.min("low").over(of_producer.rowsBetween(1, Window.unboundedFollowing)).alias("after"),
    )
    return beside.selectExpr(
        *(*GROUP, "messages", "low", "high"),
        "not ascending and scheduled is null as disordered",
        "not ascending or repeats > 0 or coalesce(low <= before, false) or coalesce(after <= high, false) as doubtful",
    ).where("disordered or doubtful")


def registered_anew(facts: DataFrame) -> DataFrame:
    """Producers whose name was given another number before or later: they had been forgotten, and came again."""
    names = facts.where(str(REGISTERED)).select("producer", "name").distinct()
    several = aggregate(names, "name", producers="collect_set(producer)").where("size(producers) > 1")
    return several.selectExpr("explode(producers) as producer", "name")
