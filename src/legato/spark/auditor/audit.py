"""The audit of a ledger: runs the checks, computes the metrics, and builds the `AuditResult`, in few passes.

All facts are looked at for what happened in each commit and to each message; the rest asks that.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from legato.spark.auditor import metrics
from legato.spark.auditor.actions import audited_actions
from legato.spark.auditor.check_runner import (
    FACT_CANDIDATES,
    FORWARDING,
    candidates_among,
    candidates_in_messages,
    count_candidates,
    run_checks,
    violations_of,
    with_stories,
)
from legato.spark.auditor.flows import audit_flows
from legato.spark.auditor.frames import as_rows, cached, frames_of
from legato.spark.auditor.queue_rollup import QueueRollup
from legato.spark.auditor.scope import EVERYTHING, Scope, ScopedFrames
from legato.spark.auditor.throughput import Causes, activity, departures, throughput, topics
from legato.spark.checks.check import Frames
from legato.spark.exporter import try_export
from legato.spark.ledger import fact_frames
from legato.spark.ledger.segments import being_read_if_any, exported_through, last_commit_of, segments_of
from legato.spark.ledger.trimming import trimmed_of
from legato.spark.ledger.waiting import read_waiting
from legato.spark.result import (
    STAGES,
    AuditResult,
    LatencyCell,
    LatencySummary,
    QueueAudit,
    Takeover,
    Timeline,
)
from legato.spark.runtime.session import (
    SMALL_QUERY_SETTINGS,
    is_local,
    runs_here,
    session_like,
    start_session,
    staying_active,
)
from legato.spark.runtime.thresholds import COMPILE_THOROUGHLY_BYTES_MIN, IN_PROCESS_BYTES_MAX, INLINE_BYTES_MAX
from legato.spark.summaries.prefetch import PrefetchedLedger, ledger_bytes, prefetching

_AUDIT_SETTINGS = {
    # Each message is a group of its own: a small first map for frequent ones is looked into for nothing.
    "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
    # To look at each sum for an overflow costs as much as the sums, in code that is compiled but once; these are counts
    # and microseconds.
    "spark.sql.ansi.enabled": "false",
    # What is kept is asked a few times and then forgotten.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
}
"""Settings of an audit's queries."""

_AT_ONCE = 3
"""Queries under way beside the checks: one is planned while another is computed."""

TIMELINE_BUCKETS_MAX = 240
_BUCKETS_US = [int(s * 1_000_000) for s in (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600, 86400)]


def audit(
    ledger_dir: Path | str,
    spark: SparkSession | None = None,
    waiting: DataFrame | None = None,
    scope: Scope = EVERYTHING,
    *,
    store_dir: Path | str | None = None,
    master: str | None = None,
    keep_classes: bool = False,
) -> AuditResult:
    """Account for every message of a ledger: what was lost, done twice, moved, and how long it took.

    Args:
        ledger_dir: directory of the segments.
        spark: a session; without one, a session is started (`start_session`), and the ledger is read meanwhile.
        waiting: `queue int, seq bigint` of the messages that wait in the store now, if that is known exactly; without
            it the last high-water marks say how many wait.
        scope: which messages it is about.
        store_dir: the store that the ledger comes from, in place of `waiting`. If no broker writes to it now, its log
            is exported to the end first, and what waits in it is read; else it is left alone.
        master: where Spark runs, if a session has to be started.
        keep_classes: let the JVM that is started leave its classes for those after it (`class_archive.py`).

    Raises:
        ConfigError: there is no ledger in the directory, no such destination in it, or no Java.
        StoreCorruptError: a segment is not whole.
        StoreError: the store cannot be read.
    """
    started = time.monotonic()
    ledger_dir = Path(ledger_dir)
    exact = _waiting_in(Path(store_dir), ledger_dir) if store_dir is not None and waiting is None else None
    with ExitStack() as stack:
        stack.enter_context(being_read_if_any(ledger_dir))
        prefetched = None
        if runs_here(master) if spark is None else is_local(spark):
            prefetched = stack.enter_context(prefetching(ledger_dir, FACT_CANDIDATES))
            through = prefetched.through
        else:
            through = last_commit_of(segments_of(ledger_dir))
        if spark is None:
            is_large = ledger_bytes(ledger_dir) >= COMPILE_THOROUGHLY_BYTES_MIN
            spark = start_session(master=master, minutes=is_large, keep_classes=keep_classes)
            started = time.monotonic()
        if exact is not None and exact.through == through:
            waiting = spark.createDataFrame(exact.messages)
        return _since(started, _audit_ledger(ledger_dir, through, spark, waiting, scope, prefetched))


class _Waiting(NamedTuple):
    """What waits in a store behind the commit `through`."""

    through: int
    messages: pa.Table


def _waiting_in(store_dir: Path, ledger_dir: Path) -> _Waiting | None:
    """Export the rest of the log; returns what waits, or None if a broker is still changing it."""
    if not try_export(store_dir, ledger_dir):
        return None
    through = exported_through(ledger_dir)
    messages = read_waiting(store_dir, ledger_dir)
    # If the ledger has gone on before these were read, they are behind a later commit, and count for nothing.
    return None if messages is None else _Waiting(through, messages)


def _audit_ledger(
    ledger_dir: Path,
    through: int,
    spark: SparkSession,
    waiting: DataFrame | None,
    scope: Scope,
    prefetched: PrefetchedLedger | None,
) -> AuditResult:
    """The audit of a ledger up to a commit: whoever looks at it later may find more in it."""
    size = ledger_bytes(ledger_dir)
    session = session_like(spark, _AUDIT_SETTINGS | (SMALL_QUERY_SETTINGS if size < IN_PROCESS_BYTES_MAX else {}))

    def facts() -> DataFrame:
        read = fact_frames.read_ledger(session, ledger_dir).where(f"position <= {through}L")
        return as_rows(read) if size < INLINE_BYTES_MAX else read

    keep = as_rows if size < INLINE_BYTES_MAX else cached
    trimmed = trimmed_of(ledger_dir) if ledger_dir.is_dir() else None
    with staying_active(spark), frames_of(session, facts, waiting, prefetched, keep, trimmed) as frames:
        result = _audit_frames(frames, scope)
        return result if trimmed is None else msgspec.structs.replace(result, trimmed_us=trimmed.us)


def audit_facts(facts: DataFrame, waiting: DataFrame | None = None) -> AuditResult:
    """The same for facts that are a frame already: all of it is asked of Spark."""
    started = time.monotonic()
    with frames_of(facts.sparkSession, lambda: facts, waiting) as frames:
        return _since(started, _audit_frames(frames, EVERYTHING))


def _since(started: float, result: AuditResult) -> AuditResult:
    return msgspec.structs.replace(result, seconds=round(time.monotonic() - started, 2))


def _audit_frames(frames: Frames, scope: Scope) -> AuditResult:
    part = ScopedFrames(scope, frames)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        about = part.frames()
        in_messages = candidates_in_messages(frames) if scope.is_all else {}
        # First what is computed longest and needs nothing else, then what is planned longest.
        summed = pool.submit(lambda: metrics.queue_totals(about["messages"], **in_messages).toArrow())
        candidates_counted = pool.submit(count_candidates, frames, but_messages=scope.is_all)
        span = pool.submit(lambda: metrics.span(about["commits"]).first())
        with closing(QueueRollup(frames["queues"])) as rollup:
            ends = span.result()
            assert ends is not None, "an aggregate has one row"
            first_us, last_us = ends["first_us"] or 0, ends["last_us"] or 0
            bucket_us = bucket_for(last_us - first_us)
            times = pool.submit(_times, rollup.of(about["messages"]), first_us, bucket_us)
            happened = pool.submit(activity(rollup.of(about["commits"]), first_us, bucket_us).collect)
            takeovers = pool.submit(_takeovers, about)
            flows = pool.submit(audit_flows, about["facts"], about["messages"]) if ends["of_flows"] else None
            actions = pool.submit(audited_actions, frames["facts"], scope) if ends["of_actions"] else None
            totals = rollup.rolled_up(summed.result())
            candidates = {**candidates_counted.result(), **(candidates_among(frames, totals) if scope.is_all else {})}
            checks = with_stories(run_checks(frames, part, candidates), frames["facts"])
            violation_counts = {check.name: check.count for check in checks}
            found = _found(frames, part, about, rollup, violation_counts, candidates)
            rows = happened.result()
            latencies, cells = times.result()
            return AuditResult(
                facts=ends["facts"],
                first_us=first_us,
                last_us=last_us,
                last_position=ends["last_position"] or 0,
                queues=_queues(totals, found, rollup, departures(rows), latencies),
                takeovers=takeovers.result(),
                checks=checks,
                timeline=Timeline(first_us, bucket_us, throughput(rows), cells),
                topics=topics(rows, rollup, found.twice),
                flows=flows.result() if flows else None,
                actions=actions.result() if actions else None,
            )


def bucket_for(duration_us: int) -> int:
    """A round length of time in microseconds, of which the timeline needs few enough to be drawn."""
    for bucket_us in _BUCKETS_US:
        if duration_us <= bucket_us * TIMELINE_BUCKETS_MAX:
            return bucket_us
    return _BUCKETS_US[-1] * (1 + duration_us // (_BUCKETS_US[-1] * TIMELINE_BUCKETS_MAX))


class _Found(NamedTuple):
    """By line of the account: messages that are deleted, lost, were stored twice by number, or forwarded."""

    deleted: Mapping[int, int]
    lost: Mapping[int, int]
    twice: Mapping[int, int]
    forwarded: Mapping[int, int]


def _found(
    frames: Frames,
    part: ScopedFrames,
    about: Frames,
    rollup: QueueRollup,
    violation_counts: Mapping[str, int],
    candidates: Mapping[str, int],
) -> _Found:
    """Asks only where there is something to be found."""
    deletions = frames["deletions"]
    deleted: Counter[int] = Counter()
    lost: dict[int, int] = {}
    twice: dict[int, int] = {}
    forwarded: dict[int, int] = {}
    if candidates["used after deletion"]:
        deleted.update(_sum(metrics.in_deleted(metrics.unsettled(about["messages"]), deletions), rollup))
    if violation_counts["lost"]:
        violations = violations_of("lost", frames, part)
        lost = _sum(violations, rollup)
        deleted.subtract(_sum(metrics.in_deleted(violations, deletions), rollup))
    if violation_counts["number stored twice"]:
        twice = _sum(violations_of("number stored twice", frames, part), rollup, "times - 1")
    if candidates[FORWARDING]:
        forwarded = _sum(metrics.forwarded(about["facts"], frames["transactions"]), rollup, "forwarded")
    return _Found(deleted, lost, twice, forwarded)


def _sum(frame: DataFrame, rollup: QueueRollup, each: str = "1") -> dict[int, int]:
    """By line of the account, the sum of `each` over the rows."""
    return {
        row["queue"]: row["n"] for row in fact_frames.aggregate(rollup.of(frame), "queue", n=f"sum({each})").collect()
    }


def _queues(
    totals: Sequence[Mapping[str, int]],
    found: _Found,
    rollup: QueueRollup,
    causes: tuple[Causes, Causes],
    latencies: Mapping[int, list[LatencySummary]],
) -> list[QueueAudit]:
    dead_letters, moves = causes
    return [
        QueueAudit(
            queue=queue,
            name=rollup.name(queue),
            stored=row["stored"],
            consumed=row["consumed"],
            forwarded=found.forwarded.get(queue, 0),
            dead_lettered=row["dead_lettered"],
            waiting=row["unsettled"] - found.lost.get(queue, 0) - found.deleted.get(queue, 0),
            lost=found.lost.get(queue, 0),
            duplicated=row["done_twice"] + found.twice.get(queue, 0),
            redelivered=row["redelivered"],
            latencies=sorted(latencies.get(queue, []), key=lambda latency: STAGES.index(latency.stage)),
            moved=row["moved"],
            deleted=found.deleted.get(queue, 0),
            dead_letters=dead_letters.get(queue, {}),
            moves=moves.get(queue, {}),
        )
        for queue, row in sorted(((row["queue"], row) for row in totals), key=lambda item: (item[0] < 0, abs(item[0])))
    ]


HOW = {"shutdown": "stop", "lapsed": "fenced itself"}
"""What people call the end of an epoch, if not as its fact does."""


def _takeovers(frames: Frames) -> list[Takeover]:
    return [
        Takeover(
            epoch=row["epoch"],
            broker=row["broker"] or "",
            former_broker=row["former_broker"] or "",
            clean=row["ended"] is not None,
            former_last_us=row["lost_us"],
            began_us=row["began_us"],
            duration_ms=max(row["began_us"] - row["lost_us"], 0) / 1000,
            served_ms=max(row["served_us"] - row["lost_us"], 0) / 1000,
            how=HOW.get(row["ended"], row["ended"]) or "crash",
            at_most=row["at_most"],
        )
        for row in sorted(
            metrics.takeovers(frames["queue_and_epoch_facts"], frames["commits"]).collect(),
            key=lambda row: row["epoch"],
        )
    ]


def _times(
    lifecycle: DataFrame, start_us: int, bucket_us: int
) -> tuple[dict[int, list[LatencySummary]], list[LatencyCell]]:
    """Percentiles by line of the account, and how many messages took how long in the course of time."""
    lengths = metrics.lengths(lifecycle, start_us, bucket_us).cache()
    latencies: dict[int, list[LatencySummary]] = {}
    for row in metrics.latencies(lengths).collect():
        latencies.setdefault(row["queue"], []).append(metrics.latency_of(row, row["stage"]))
    cells = [LatencyCell(*row) for row in metrics.latency_histogram(lengths).collect()]
    lengths.unpersist()
    return latencies, cells
