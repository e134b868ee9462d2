"""Audit of flows: how long calls waited for each stage and were worked on, and how flows ended.

The broker tells of each message that carries a call of a flow (`MessageOfFlow`); when it was stored, delivered and
consumed is in the message's own row (`message_summary_sql.py`), which these are joined with by its place.
"""

from collections.abc import Callable

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from legato.core.facts import Kind
from legato.spark.auditor.metrics import THREE_DIGITS, latency_of, percentiles
from legato.spark.ledger import fact_frames
from legato.spark.ledger.fact_filter import is_kind
from legato.spark.ledger.fact_frames import aggregate
from legato.spark.ledger.fact_schema import COPY
from legato.spark.result import BOTH, PROCESSING, QUEUEING, STAGES, FlowsAudit, FlowsBegun, LatencySummary, StageAudit

FUTURES = "(replies to futures)"
"""In the place of a stage: an answer goes to the temporary queue of whoever waits for it."""

_TOLD = ("queue", "seq", "flow_id", "trace_id", "stage", "call", "number")
_STAGE = f"""
    case when temporary then '{FUTURES}'
         when name like '%.answers' and stage not like '%.answers' then concat(stage, '.answers')
         when name like '%.joined' and stage not like '%.joined' then concat(stage, '.joined')
         else stage end
"""
"""SQL: the joins of a stage have queues of their own, in which messages wait by intention."""

FLOW_MERGED = {
    "begun_us": "min(begun_us)",
    "last_us": "max(last_us)",
    "calls": "sum(calls)",
    "failed": "sum(failed)",
    "waiting": "sum(waiting)",
    "begins": "min(begins)",
}
"""How what is known of a flow from portions of the ledger adds up; only numbers, for strings would have to be sorted.

What waits after a portion is carried into the next one, which counts it again: `calls` are those that are settled.
`begins` is the number of the flow's first call that the ledger has, and a hash of the stage that it was for, in one
number, of which the least one is that of the first call."""

_FIRST_OF = 1 << 54
"""The share of the hash in that number."""

_NUMBER_MAX = 511
"""What the rest of it holds; of a flow that is undone there may be more (`limits.FLOW_CALLS_MAX`)."""

STAGE_HASH = f"xxhash64(stage) & {_FIRST_OF - 1}L"
"""SQL: of a stage, its hash in `begins`."""

FIRST_STAGE = f"begins & {_FIRST_OF - 1}L"
"""SQL: of a flow, the hash of the stage at which it began."""


def calls(facts: DataFrame, queues: DataFrame) -> DataFrame:
    """One row for each call and place in a queue: of what flow, for what stage. Of publications, for each copy; of
    bundles, one row without a flow for `count` calls.

    Args:
        queues: as `ledger.queues` has them.
    """
    told = facts.where(is_kind("MessageOfFlow")).selectExpr(*_TOLD, "stored as count")
    topics = queues.where(f"queue_kind = {Kind.TOPIC:d}").select("queue")
    called = told.join(F.broadcast(topics), "queue", "left_semi").select("queue").distinct()
    copies = facts.where(COPY).selectExpr("topic as queue", "seq", "queue as subscription")
    heard = copies.join(F.broadcast(called), "queue", "left_semi")
    placed = told.join(heard, ["queue", "seq"], "left").withColumn("queue", F.expr("coalesce(subscription, queue)"))
    names = F.broadcast(queues.select("queue", "name", "temporary"))
    named = placed.join(names, "queue", "left").withColumn("temporary", F.expr("coalesce(temporary, false)"))
    return named.withColumn("stage", F.expr(_STAGE)).drop("subscription", "name")


def runs(calls: DataFrame, messages: DataFrame) -> DataFrame:
    """The calls with what became of their messages, in the columns of `message_summary_sql.messages`."""
    return calls.join(messages, ["queue", "seq"])


def stage_counts(runs: DataFrame) -> DataFrame:
    """One row a stage: how many calls came, were worked on, are dead letters, and wait."""
    return aggregate(
        runs,
        "stage",
        calls="sum(count)",
        consumed="sum(if(consumed_count > 0, count, 0L))",
        dead_lettered="sum(if(dead_count > 0, count, 0L))",
        waiting="sum(if(left_count = 0, count, 0L))",
    )


def stage_times(runs: DataFrame) -> DataFrame:
    """Microseconds of each call that was worked on: queueing (stored to delivered), processing (to consumed), both."""
    return (
        runs.where("consumed_count > 0 and stored_count > 0")
        .selectExpr(
            "stage",
            "left_us",
            "count",
            f"""stack(3,
                '{QUEUEING}', delivered_us - stored_us,
                '{PROCESSING}', left_us - delivered_us,
                '{BOTH}', left_us - stored_us) as (what, us)""",
        )
        .withColumn("us", F.expr("greatest(us, 0L)"))
    )


def flow_tallies(runs: DataFrame) -> DataFrame:
    """One row a flow: from when to when, how many calls are settled, how many as dead letters, how many still wait."""
    return aggregate(
        runs.where("flow_id is not null"),
        "flow_id",
        begun_us="min(stored_us)",
        last_us="max(left_us)",
        calls="count_if(left_count > 0)",
        failed="count_if(dead_count > 0)",
        waiting="count_if(left_count = 0 and not temporary)",
        begins=f"min(least(number, {_NUMBER_MAX}) * {_FIRST_OF} + ({STAGE_HASH}))",
    )


def flows(tallies: DataFrame, stages: DataFrame) -> DataFrame:
    """One row a flow: the stage that it began at, and the microseconds that it took so far.

    Args:
        tallies: of flows.
        stages: whatever has the names of all stages in its column `stage`.
    """
    names = stages.select("stage").distinct().withColumn("first", F.expr(STAGE_HASH))
    firsts = tallies.withColumn("first", F.expr(FIRST_STAGE))
    return (
        firsts.join(F.broadcast(names), "first")
        .withColumn("count", F.expr("1L"))
        .withColumn("us", F.expr("greatest(last_us - begun_us, 0L)"))
    )


def flow_counts(flows: DataFrame) -> DataFrame:
    """One row a first stage: how many flows began there, ended, have dead letters, are on their way, and made calls."""
    return aggregate(
        flows,
        "stage",
        begun="count(*)",
        ended="count_if(failed = 0 and waiting = 0)",
        failed="count_if(failed > 0)",
        waiting="count_if(failed = 0 and waiting > 0)",
        calls="sum(calls)",
    )


def rounded(times: DataFrame, by: str) -> DataFrame:
    """How many of the lengths of time `us` there are, to three digits; each stands for `count`."""
    return aggregate(
        times.withColumn("rounded", F.expr(THREE_DIGITS)), f"{by}, rounded", messages="sum(count)", longest="max(us)"
    )


def audit_flows(facts: DataFrame, messages: DataFrame) -> FlowsAudit:
    """What the ledger says of flows.

    Args:
        messages: a row a message, as `messages.lifecycle` makes them: those that are asked for.
    """
    of_flows = runs(calls(facts, fact_frames.queues(facts)), messages).cache()
    try:
        return FlowsAudit(_stages(of_flows), _begun(of_flows))
    finally:
        of_flows.unpersist()


def _stages(runs: DataFrame) -> list[StageAudit]:
    times = _summaries(percentiles(rounded(stage_times(runs), "stage, what"), "stage, what"), lambda row: row["what"])
    return [
        StageAudit(
            **row.asDict(), latencies=sorted(times.get(row["stage"], []), key=lambda each: STAGES.index(each.stage))
        )
        for row in stage_counts(runs).orderBy("stage").collect()
    ]


def _begun(runs: DataFrame) -> list[FlowsBegun]:
    known = flows(flow_tallies(runs), runs)
    ended = known.where("failed = 0 and waiting = 0")
    times = _summaries(percentiles(rounded(ended, "stage"), "stage"), lambda row: "flow")
    return [
        FlowsBegun(**row.asDict(), latency=next(iter(times.get(row["stage"], [])), None))
        for row in flow_counts(known).orderBy("stage").collect()
    ]


def _summaries(frame: DataFrame, what: Callable[[Row], str]) -> dict[str, list[LatencySummary]]:
    found: dict[str, list[LatencySummary]] = {}
    for row in frame.collect():
        found.setdefault(row["stage"], []).append(latency_of(row, what(row)))
    return found
