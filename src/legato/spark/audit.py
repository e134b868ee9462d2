"""The audit of a ledger: every check of `checks.py` and every measure of `measures.py`, in as few passes as will do."""

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from legato.errors import ConfigError
from legato.spark import ledger, measures
from legato.spark.accounts import Accounts
from legato.spark.checks import CHECKS, Check, Frames, lost_by_marks
from legato.spark.flows import audit_flows
from legato.spark.messages import lifecycle
from legato.spark.result import (
    AuditResult,
    CheckResult,
    LatencyCell,
    LatencySummary,
    QueueAudit,
    Takeover,
    ThroughputPoint,
    Timeline,
    TopicAudit,
)
from legato.spark.scope import Part, Scope
from legato.spark.story import short_stories
from legato.store.segment_names import spans

_AT_ONCE = 2
"""Queries under way beside the checks."""

EXAMPLES_MAX = 5
EVERYTHING = Scope()
TIMELINE_BUCKETS_MAX = 240
_BUCKETS_US = [int(s * 1_000_000) for s in (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600, 86400)]


def audit(
    ledger_dir: Path, spark: SparkSession, waiting: DataFrame | None = None, scope: Scope = EVERYTHING
) -> AuditResult:
    """Account for every message of a ledger.

    Args:
        ledger_dir: directory of the segments.
        waiting: `queue`, `seq` of the messages that wait in the store now, if that is known exactly; without it the
            last high-water marks say how many wait.
        scope: which messages it is about.

    Raises:
        ConfigError: there is no ledger in the directory, or no such destination in it.
    """
    if next(spans(ledger_dir), None) is None:
        raise ConfigError(f"no ledger segments in {ledger_dir}")
    return audit_facts(ledger.read_facts(spark, ledger_dir), waiting, scope)


def audit_facts(facts: DataFrame, waiting: DataFrame | None = None, scope: Scope = EVERYTHING) -> AuditResult:
    """The same for facts that are a frame already."""
    started = time.monotonic()
    with frames_of(facts, waiting) as frames:
        result = _audit_frames(frames, scope)
    return msgspec.structs.replace(result, seconds=round(time.monotonic() - started, 2))


@contextmanager
def frames_of(facts: DataFrame, waiting: DataFrame | None = None) -> Iterator[Frames]:
    """The frames that checks ask, each computed once while the block lasts."""
    computed = {
        "lifecycle": lifecycle(facts).cache(),
        "transactions": ledger.transactions(facts).cache(),
        "records": ledger.records(facts).cache(),
        "marks": ledger.marks(facts).cache(),
        "deletions": ledger.deletions(facts).cache(),
        "queues": ledger.queues(facts).cache(),
    }
    given = {"facts": facts} if waiting is None else {"facts": facts, "waiting": waiting}
    try:
        yield computed | given
    finally:
        for frame in computed.values():
            frame.unpersist()


def _audit_frames(frames: Frames, scope: Scope) -> AuditResult:
    part = Part(scope, frames)
    span = measures.span(part.facts() if not scope.is_all else frames["facts"]).first()
    assert span is not None, "an aggregate has one row"
    first_us, last_us = span["first_us"] or 0, span["last_us"] or 0
    bucket_us = bucket_for(last_us - first_us)
    about = frames if scope.is_all else {**frames, "facts": part.facts(), "lifecycle": part.lifecycle()}
    with closing(Accounts(frames["facts"])) as accounts, ThreadPoolExecutor(_AT_ONCE) as pool:
        # To plan the checks takes one processor as long as to answer them: meanwhile the others are not idle.
        timeline = pool.submit(_timeline, about, accounts, first_us, bucket_us)
        takeovers = pool.submit(_takeovers, about["facts"])
        flows = pool.submit(audit_flows, about["facts"], about["lifecycle"]) if span["of_flows"] else None
        checks = with_stories(run_checks(frames, part), frames["facts"])
        offences = {check.name: check.count for check in checks}
        twice: dict[int, int] = {}
        if offences["number stored twice"]:
            twice = _sum(_offenders_by_name("number stored twice", frames, part), accounts, "times - 1")
        return AuditResult(
            facts=span["facts"],
            first_us=first_us,
            last_us=last_us,
            last_position=span["last_position"] or 0,
            queues=_queues(about, accounts, offences, twice, _offenders_by_name("lost", frames, part)),
            takeovers=takeovers.result(),
            checks=checks,
            timeline=timeline.result(),
            topics=_topics(about["facts"], accounts, twice),
            flows=flows.result() if flows else None,
        )


def bucket_for(duration_us: int) -> int:
    """A round length of time in microseconds, of which the timeline needs few enough to be drawn."""
    for bucket_us in _BUCKETS_US:
        if duration_us <= bucket_us * TIMELINE_BUCKETS_MAX:
            return bucket_us
    return _BUCKETS_US[-1] * (1 + duration_us // (_BUCKETS_US[-1] * TIMELINE_BUCKETS_MAX))


def applicable(frames: Frames) -> list[Check]:
    """The checks that can be made of these frames: without `waiting`, losses are judged by high-water marks."""
    if "waiting" in frames:
        return list(CHECKS)
    by_marks = CHECKS[0]._replace(frames=("lifecycle", "marks", "deletions"), find=lost_by_marks)
    return [by_marks, *(check for check in CHECKS if "waiting" not in check.frames)]


def find_offenders(check: Check, frames: Frames) -> DataFrame:
    """The rows of which `check` says that they must not be."""
    return check.find(*(frames[name] for name in check.frames))


def run_checks(frames: Frames, part: Part | None = None) -> list[CheckResult]:
    """Every applicable check's answer; all are counted in one job, only offenders are looked at again."""
    part = part or Part(EVERYTHING, frames)
    offenders = {check: part.of(find_offenders(check, frames)) for check in applicable(frames)}
    counted = [
        found.agg(F.count("*").alias("n")).select(F.lit(check.name).alias("name"), "n")
        for check, found in offenders.items()
    ]
    counts = {row["name"]: row["n"] for row in reduce(DataFrame.unionAll, counted).collect()}
    return [
        CheckResult(
            check.name,
            check.sentence,
            counts[check.name],
            [row.asDict() for row in found.limit(EXAMPLES_MAX).collect()] if counts[check.name] else [],
        )
        for check, found in offenders.items()
    ]


def with_stories(checks: list[CheckResult], facts: DataFrame) -> list[CheckResult]:
    """The same, with what the ledger says of each message and transaction that is among the examples."""
    places = {place for check in checks for example in check.examples if (place := _place(check, example))}
    txns = {example["txn"] for check in checks for example in check.examples if example.get("txn")}
    if not places and not txns:
        return checks
    told = short_stories(facts, places, txns)
    return [
        msgspec.structs.replace(
            check,
            stories={
                told[key][0]: told[key][1]
                for example in check.examples
                if (key := _place(check, example) or example.get("txn")) in told
            },
        )
        for check in checks
    ]


def _place(check: CheckResult, example: dict[str, Any]) -> tuple[int, int] | None:
    """Which message an example names; the place in a mark is no message's."""
    if check.name == "marks missed" or not {"queue", "seq"} <= example.keys():
        return None
    return example["queue"], example["seq"]


def _offenders_by_name(name: str, frames: Frames, part: Part) -> DataFrame:
    return part.of(find_offenders(next(check for check in applicable(frames) if check.name == name), frames))


def _sum(frame: DataFrame, accounts: Accounts, each: str = "1") -> dict[int, int]:
    """By line of the account, the sum of `each` over the rows."""
    return {row["queue"]: row["n"] for row in ledger.aggregate(accounts.of(frame), "queue", n=f"sum({each})").collect()}


def _queues(
    frames: Frames, accounts: Accounts, offences: dict[str, int], twice: dict[int, int], offenders: DataFrame
) -> list[QueueAudit]:
    facts, lifecycle, deletions = frames["facts"], accounts.of(frames["lifecycle"]), frames["deletions"]
    totals = {row["queue"]: row for row in measures.queue_totals(lifecycle).collect()}
    forwarded = _sum(measures.forwarded(facts, frames["transactions"]), accounts, "forwarded")
    deleted = Counter(_sum(measures.in_deleted(measures.unsettled(frames["lifecycle"]), deletions), accounts))
    lost: dict[int, int] = {}
    if offences["lost"]:
        lost = _sum(offenders, accounts)
        deleted.subtract(_sum(measures.in_deleted(offenders, deletions), accounts))
    dead_letters, moves = _departures(accounts.of(facts))
    latencies: dict[int, list[LatencySummary]] = {}
    for row in measures.latencies(lifecycle).collect():
        latencies.setdefault(row["queue"], []).append(_latency(row))
    return [
        QueueAudit(
            queue=queue,
            name=accounts.name(queue),
            stored=row["stored"],
            consumed=row["consumed"],
            forwarded=forwarded.get(queue, 0),
            dead_lettered=row["dead_lettered"],
            waiting=row["unsettled"] - lost.get(queue, 0) - deleted[queue],
            lost=lost.get(queue, 0),
            duplicated=row["done_twice"] + twice.get(queue, 0),
            redelivered=row["redelivered"],
            latencies=sorted(latencies.get(queue, []), key=lambda latency: _STAGES.index(latency.stage)),
            moved=row["moved"],
            deleted=deleted[queue],
            dead_letters=dead_letters.get(queue, {}),
            moves=moves.get(queue, {}),
        )
        for queue, row in sorted(totals.items(), key=lambda item: (item[0] < 0, abs(item[0])))
    ]


def _departures(facts: DataFrame) -> tuple[dict[int, dict[str, int]], dict[int, dict[str, int]]]:
    """Per queue and by cause, messages that became dead letters, and messages that were moved."""
    dead_letters: dict[int, dict[str, int]] = {}
    moves: dict[int, dict[str, int]] = {}
    for row in measures.departures(facts).orderBy("queue", "cause").collect():
        for counts, column in ((dead_letters, "dead_lettered"), (moves, "moved")):
            if row[column]:
                counts.setdefault(row["queue"], {})[row["cause"]] = row[column]
    return dead_letters, moves


def _topics(facts: DataFrame, accounts: Accounts, twice: dict[int, int]) -> list[TopicAudit]:
    return [
        TopicAudit(
            row["queue"],
            accounts.name(row["queue"]),
            row["published"],
            row["copies"],
            row["unheard"],
            twice.get(row["queue"], 0),
        )
        for row in measures.topics(accounts.of(facts)).collect()
    ]


_STAGES = ["queueing", "processing", "end to end"]


def _latency(row: Row) -> LatencySummary:
    p50, p95, p99 = (us / 1000 for us in row["percentiles"])
    return LatencySummary(row["stage"], row["messages"], p50, p95, p99, row["longest"] / 1000)


def _takeovers(facts: DataFrame) -> list[Takeover]:
    return [
        Takeover(
            epoch=row["epoch"],
            broker=row["broker"] or "",
            former_broker=row["former_broker"] or "",
            clean=row["clean"],
            former_last_us=row["former_last_us"],
            began_us=row["began_us"],
            duration_ms=row["duration_us"] / 1000,
            served_ms=None if row["served_us"] is None else (row["served_us"] - row["former_last_us"]) / 1000,
        )
        for row in measures.takeovers(facts).collect()
    ]


def _timeline(frames: Frames, accounts: Accounts, start_us: int, bucket_us: int) -> Timeline:
    points = measures.throughput(accounts.of(frames["facts"]), start_us, bucket_us).orderBy("queue", "bucket").collect()
    cells = measures.latency_histogram(accounts.of(frames["lifecycle"]), start_us, bucket_us).collect()
    return Timeline(
        start_us,
        bucket_us,
        [ThroughputPoint(*row) for row in points],
        [LatencyCell(*row) for row in cells],
    )
