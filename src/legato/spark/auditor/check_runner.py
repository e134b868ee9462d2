"""Asks the checks: all suspects are counted at once, and only checks that have some are asked for offenders."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from pyspark.sql import DataFrame

from legato.spark.auditor import metrics
from legato.spark.auditor.descriptions import in_words
from legato.spark.auditor.message_stories import short_stories
from legato.spark.auditor.scope import EVERYTHING, Part
from legato.spark.checks.catalogue import CHECKS, SAYS
from legato.spark.checks.check import Check, Frames, count_suspects, find_offenders
from legato.spark.checks.waiting import LOST, LOST_BY_MARKS
from legato.spark.ledger.fact_filter import FactFilter
from legato.spark.result import CheckResult

EXAMPLES_MAX = 5

_AT_ONCE = 3
"""Checks under way: one is planned while another is computed."""

FORWARDING = "forwarding"
"""What the number of transactions that may have forwarded messages is called among the suspects."""


def applicable(frames: Frames) -> list[Check]:
    """The checks that can be made of these frames: without `waiting`, losses are judged by high-water marks."""
    if "waiting" in frames:
        return list(CHECKS)
    without = [LOST_BY_MARKS if check is LOST else check for check in CHECKS]
    return [check for check in without if "waiting" not in check.others]


def _column(check: Check) -> str:
    return "suspects: " + check.name


SUSPECT_FACTS = {
    _column(check): check.suspects
    for check in CHECKS
    if check.frame == "facts" and isinstance(check.suspects, FactFilter)
}
"""The suspects among facts: columns of commits count them, for which all facts are looked at anyway."""


def suspects_in_commits() -> dict[str, str]:
    """These columns in SQL."""
    return {name: f"count_if({filter_})" for name, filter_ in SUSPECT_FACTS.items()}


def suspects_in_messages(frames: Frames) -> dict[str, str]:
    """Columns that count the suspects among messages, in SQL: for who looks at all of them anyway."""
    return {_column(check): f"count_if({check.suspects})" for check in _of_messages(frames)}


def suspects_among(frames: Frames, rows: Sequence[Mapping[str, int]]) -> Mapping[str, int]:
    """How many suspects each check of messages has, by rows with the columns of `suspects_in_messages`."""
    return {check.name: sum(row[_column(check)] for row in rows) for check in _of_messages(frames)}


def _of_messages(frames: Frames) -> list[Check]:
    return [check for check in applicable(frames) if check.frame == "lifecycle"]


def suspects_of(frames: Frames, *, but_messages: bool = False) -> Mapping[str, int]:
    """How many suspects each check has, and how many transactions may have forwarded messages."""
    asked = [
        (check.name, "commits", f"sum(`{_column(check)}`)")
        if check.frame == "facts"
        else (check.name, check.frame, f"count_if({check.suspects})")
        for check in applicable(frames)
        if check.frame != "lifecycle" or not but_messages
    ]
    return count_suspects(frames, [*asked, (FORWARDING, "transactions", f"count_if({metrics.FORWARDING})")])


def run_checks(
    frames: Frames, part: Part | None = None, suspects: Mapping[str, int] | None = None
) -> list[CheckResult]:
    """Every applicable check's answer."""
    part = part or Part(EVERYTHING, frames)
    suspects = suspects or suspects_of(frames)

    def answer(check: Check) -> CheckResult:
        return _answer(check, frames, part) if suspects[check.name] else _answered(check)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(answer, applicable(frames)))


def _answered(check: Check, count: int = 0, examples: list[dict[str, Any]] | None = None) -> CheckResult:
    return CheckResult(check.name, check.says.holds, count, examples or [])


def _answer(check: Check, frames: Frames, part: Part) -> CheckResult:
    found = part.of(find_offenders(check, frames))
    examples = [row.asDict() for row in found.limit(EXAMPLES_MAX).collect()]
    return _answered(check, found.count() if len(examples) == EXAMPLES_MAX else len(examples), examples)


def offenders_by_name(name: str, frames: Frames, part: Part) -> DataFrame:
    """What the check of that name finds."""
    return part.of(find_offenders(next(check for check in applicable(frames) if check.name == name), frames))


def with_stories(checks: list[CheckResult], facts: DataFrame) -> list[CheckResult]:
    """The same, in words, with what the ledger says of each message and transaction that is among the examples."""
    checks = in_words(checks, SAYS, facts)
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
