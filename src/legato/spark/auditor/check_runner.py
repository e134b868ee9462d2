"""Runner of the checks: counts the candidates of all in one look, and asks only checks that have some."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from legato.spark.auditor import metrics
from legato.spark.auditor.descriptions import in_words
from legato.spark.auditor.message_stories import short_stories
from legato.spark.auditor.scope import EVERYTHING, ScopedFrames
from legato.spark.checks.catalogue import CHECKS, WORDINGS
from legato.spark.checks.check import Check, Frames
from legato.spark.checks.waiting import lost, lost_by_marks
from legato.spark.ledger.fact_filter import FactFilter
from legato.spark.result import CheckResult

EXAMPLES_MAX = 5

_AT_ONCE = 3
"""Checks under way: one is planned while another is computed."""

FORWARDING = "forwarding"
"""What the number of transactions that may have forwarded messages is called among the candidates."""


def applicable(frames: Frames) -> list[Check]:
    """The checks that can be made of these frames: without `waiting`, losses are judged by high-water marks."""
    if "waiting" in frames:
        return list(CHECKS)
    without = [lost_by_marks if check is lost else check for check in CHECKS]
    return [check for check in without if "waiting" not in check.others]


def _column(check: Check) -> str:
    return "candidates: " + check.name


FACT_CANDIDATES = {
    _column(check): check.candidates
    for check in CHECKS
    if check.frame == "facts" and isinstance(check.candidates, FactFilter)
}
"""The candidates among facts: columns of commits count them, for which all facts are looked at anyway."""


def candidates_in_commits() -> dict[str, str]:
    """These columns in SQL."""
    return {name: f"count_if({filter_})" for name, filter_ in FACT_CANDIDATES.items()}


def candidates_in_messages(frames: Frames) -> dict[str, str]:
    """Columns that count the candidates among messages, in SQL: for who looks at all of them anyway."""
    return {_column(check): f"count_if({check.candidates})" for check in _of_messages(frames)}


def candidates_among(frames: Frames, rows: Sequence[Mapping[str, int]]) -> Mapping[str, int]:
    """How many candidates each check of messages has, by rows with the columns of `candidates_in_messages`."""
    return {check.name: sum(row[_column(check)] for row in rows) for check in _of_messages(frames)}


def _of_messages(frames: Frames) -> list[Check]:
    return [check for check in applicable(frames) if check.frame == "messages"]


def count_candidates(frames: Frames, *, but_messages: bool = False) -> Mapping[str, int]:
    """How many candidates each check has, and how many transactions may have forwarded messages."""
    asked = [
        (check.name, "commits", f"sum(`{_column(check)}`)")
        if check.frame == "facts"
        else (check.name, check.frame, f"count_if({check.candidates})")
        for check in applicable(frames)
        if check.frame != "messages" or not but_messages
    ]
    return _counted(frames, [*asked, (FORWARDING, "transactions", f"count_if({metrics.FORWARDING})")])


def _counted(frames: Frames, asked: Iterable[tuple[str, str, str]]) -> dict[str, int]:
    """Counts, given as name, frame and SQL: each frame is looked at once, and all of a session in one job."""
    of_frame: dict[str, list[tuple[str, str]]] = {}
    for name, frame, count in asked:
        of_frame.setdefault(frame, []).append((name, count))
    of_session: dict[SparkSession, list[DataFrame]] = {}
    for frame, counts in of_frame.items():
        look = frames[frame].agg(
            F.map_from_arrays(
                F.array(*(F.lit(name) for name, _ in counts)),
                F.array(*(F.coalesce(F.expr(count), F.lit(0)) for _, count in counts)),
            ).alias("counts")
        )
        of_session.setdefault(look.sparkSession, []).append(look)
    with ThreadPoolExecutor(len(of_session)) as pool:
        answers = list(pool.map(lambda looks: reduce(DataFrame.unionAll, looks).collect(), of_session.values()))
    return {name: count for rows in answers for row in rows for name, count in row["counts"].items()}


def run_checks(
    frames: Frames, part: ScopedFrames | None = None, candidates: Mapping[str, int] | None = None
) -> list[CheckResult]:
    """Every applicable check's answer."""
    part = part or ScopedFrames(EVERYTHING, frames)
    candidates = candidates or count_candidates(frames)

    def answer(check: Check) -> CheckResult:
        return _answer(check, frames, part) if candidates[check.name] else _answered(check)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(answer, applicable(frames)))


def _answered(check: Check, count: int = 0, examples: list[dict[str, Any]] | None = None) -> CheckResult:
    return CheckResult(check.name, check.wording.holds, count, examples or [])


def _answer(check: Check, frames: Frames, part: ScopedFrames) -> CheckResult:
    violations = part.of(check.violations(frames))
    examples = [row.asDict() for row in violations.limit(EXAMPLES_MAX).collect()]
    return _answered(check, violations.count() if len(examples) == EXAMPLES_MAX else len(examples), examples)


def violations_of(name: str, frames: Frames, part: ScopedFrames) -> DataFrame:
    """What the check of that name finds."""
    return part.of(next(check for check in applicable(frames) if check.name == name).violations(frames))


def with_stories(checks: list[CheckResult], facts: DataFrame) -> list[CheckResult]:
    """The same, in words, with what the ledger says of each message and transaction that is among the examples."""
    checks = in_words(checks, WORDINGS, facts)
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
    """Which message an example names: none in a mark, and none in a batch, which has no place in a queue."""
    queue, seq = example.get("queue"), example.get("seq")
    if check.name == "marks missed" or queue is None or seq is None:
        return None
    return queue, seq
