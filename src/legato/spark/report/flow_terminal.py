"""Flows in the terminal: tables of stages with their latencies, and of flows by the stage at which they began."""

from rich.box import SIMPLE_HEAD
from rich.table import Table

from legato.spark.quantities import duration
from legato.spark.result import PROCESSING, QUEUEING, FlowsAudit, LatencySummary
from legato.terminal import cell


def flow_tables(flows: FlowsAudit) -> list[Table]:
    """What an audit found of flows, for a console."""
    stages = _table(
        "stages of flows", "stage", "calls", "done", "dead", "waiting", "queued p50", "p99", "at the service p50", "p99"
    )
    for stage in flows.stages:
        times = {each.stage: each for each in stage.latencies}
        counts = _counts(stage.calls, stage.consumed, stage.dead_lettered, stage.waiting)
        stages.add_row(cell(stage.stage), *counts, *_times(times.get(QUEUEING)), *_times(times.get(PROCESSING)))
    begun = _table("flows", "first stage", "begun", "ended", "dead letter", "on their way", "calls", "p50", "p99")
    for each in flows.begun:
        counts = _counts(each.begun, each.ended, each.failed, each.waiting, each.calls)
        begun.add_row(cell(each.stage), *counts, *_times(each.latency))
    # What only came in bundles, or from plain messages, has no first stage that the ledger knows.
    return [stages, begun] if flows.begun else [stages]


def _table(title: str, first: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0)
    table.add_column(first, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _counts(*numbers: int) -> list[str]:
    return [f"{number:,}" for number in numbers]


def _times(latency: LatencySummary | None) -> tuple[str, str]:
    return (duration(latency.p50_ms * 1e3), duration(latency.p99_ms * 1e3)) if latency else ("", "")
