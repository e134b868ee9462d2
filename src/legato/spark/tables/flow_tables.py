"""Flow tables, kept from portion to portion, at the cost of the portion and of what is under way.

    TABLES/flow_calls/batch=N     a row a call: of settled messages (`open=false`), and of those that wait (`open=true`)
    TABLES/flow_states/batch=N    a row a flow that the portion had to do with: ended, and under way after it; both are
                                  kept for the last two portions
    TABLES/parts/flow_...         what both are counted as
    TABLES/gold/flows             how long calls waited and were worked on, and how long flows took, by stage and hour

A ledger without flows has none of it, and a portion without news of flows costs one look at a small file.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from legato.spark.auditor import flows
from legato.spark.auditor.metrics import percentiles
from legato.spark.ledger.fact_frames import aggregate
from legato.spark.summaries.message_summary_sql import OPEN
from legato.spark.tables.gold import HOUR_US

NAME = "flows"
"""Of the table of gold."""

PARTS = ("flow_times", "flow_ends", "flow_names")

FLOW = "flow"
FAILED_FLOW = "flow with a dead letter"
"""What a row of the table is about, besides the stages of a call's life."""

_HOUR = f"timestamp_micros({{}} div {HOUR_US}L * {HOUR_US}L) as hour"
_CALLS, _STATES = "flow_calls", "flow_states"


def any_flows(tables: Path, batch: int) -> bool:
    """Whether a portion, whose facts are counted already, has calls of flows, or an earlier one had."""
    if (tables / _CALLS).is_dir():
        return True
    activity = ds.dataset(tables / "parts" / "activity" / f"batch={batch}", format="parquet")
    return bool(activity.count_rows(filter=ds.field("kind") == "MessageOfFlow"))


def take_over(tables: Path, batch: int, before: int, facts: DataFrame, queues: DataFrame, messages: DataFrame) -> None:
    """Write what a portion says of flows.

    Args:
        tables: directory of all tables.
        batch: the portion's number.
        before: the number of the one before it.
        facts: of the portion.
        queues: all queues so far, as `ledger.queues` has them.
        messages: silver of the portion, settled and open.
    """
    calls = flows.calls(facts, queues)
    columns = calls.columns
    session = facts.sparkSession
    waiting = _read(session, tables / _CALLS / f"batch={before}" / "open=true")
    every = calls if waiting is None else calls.unionByName(waiting.select(*columns))
    runs = _written(flows.runs(every, messages.drop("open", "batch")), OPEN, tables / _CALLS / f"batch={batch}")
    tallies = flows.flow_tallies(runs)
    under_way = _read(session, tables / _STATES / f"batch={before}" / "open=true")
    if under_way is not None:
        added = tallies.unionByName(under_way.select(*tallies.columns).withColumn("waiting", F.expr("0L")))
        tallies = aggregate(added, "flow_id", **flows.FLOW_MERGED)
    states = _written(tallies, "waiting > 0", tables / _STATES / f"batch={batch}")
    for name, part in _parts(runs.where("not open"), runs, states.where("not open")).items():
        part.coalesce(1).write.mode("overwrite").parquet(str(tables / "parts" / name / f"batch={batch}"))
    for table in (_CALLS, _STATES):
        for number in range(before):
            shutil.rmtree(tables / table / f"batch={number}", ignore_errors=True)


def _parts(settled: DataFrame, runs: DataFrame, ended: DataFrame) -> dict[str, DataFrame]:
    times = flows.stage_times(settled).selectExpr("stage", "what", "us", "count", _HOUR.format("left_us"))
    lengths = ended.selectExpr(
        f"{flows.FIRST_STAGE} as first",
        "failed > 0 as failed",
        "greatest(last_us - begun_us, 0L) as us",
        "1L as count",
        _HOUR.format("last_us"),
    )
    return {
        "flow_times": flows.rounded(times, "stage, hour, what"),
        "flow_ends": flows.rounded(lengths, "first, hour, failed"),
        "flow_names": runs.selectExpr(f"{flows.STAGE_HASH} as first", "stage").distinct(),
    }


def view(part: Callable[[str], DataFrame]) -> DataFrame:
    """The table of gold: percentiles by stage, hour and what they are of; a flow is its first stage's.

    Args:
        part: gives what was written for all portions together, by its name in `PARTS`.
    """
    names = F.broadcast(part("flow_names").select("first", "stage").distinct())
    ends = part("flow_ends").join(names, "first").withColumn("what", F.expr(f"if(failed, '{FAILED_FLOW}', '{FLOW}')"))
    columns = ("stage", "hour", "what", "rounded", "messages", "longest")
    counted = aggregate(
        part("flow_times").select(*columns).unionByName(ends.select(*columns)),
        "stage, hour, what, rounded",
        messages="sum(messages)",
        longest="max(longest)",
    )
    shares = (f"percentiles[{index}] / 1000D as {name}" for index, name in enumerate(("p50_ms", "p95_ms", "p99_ms")))
    told = percentiles(counted, "stage, hour, what")
    return told.selectExpr("stage", "hour", "what", "messages", *shares, "longest / 1000D as longest_ms").orderBy(
        "stage", "hour", "what"
    )


def _written(frame: DataFrame, is_open: str, path: Path) -> DataFrame:
    """The frame, once it is written, parted by whether a row is open."""
    writer = frame.selectExpr("*", f"{is_open} as open").write.mode("overwrite").option("compression", "zstd")
    writer.partitionBy("open").parquet(str(path))
    schema = StructType([*frame.schema.fields, StructField("open", StringType())])
    return frame.sparkSession.read.schema(schema).parquet(str(path)).withColumn("open", F.expr("open = 'true'"))


def _read(session: SparkSession, path: Path) -> DataFrame | None:
    return session.read.parquet(str(path)) if path.is_dir() else None
