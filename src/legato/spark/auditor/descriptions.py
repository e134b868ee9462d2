"""Sentences about failed checks, with the names of queues, producers and consumers, and with times."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from pyspark.sql import DataFrame

from legato.core.facts import Kind
from legato.spark.auditor.message_stories import names_in
from legato.spark.auditor.story_words import KNOWN_BY, Names
from legato.spark.checks.check import Wording
from legato.spark.result import CheckResult
from legato.store.segment_names import SegmentSpan

_QUEUES = ("queue", "dead_queue", "to_queue")
_CONSUMERS = ("consumer", "holder")
_KINDS = {
    Kind.QUEUE: "queue",
    Kind.TOPIC: "topic",
    Kind.SUBSCRIPTION: "subscription",
    Kind.SCHEDULE: "queue",
    Kind.ASSIGNMENT: "pipeline",
}


def in_words(checks: Iterable[CheckResult], wordings: Mapping[str, Wording], facts: DataFrame) -> list[CheckResult]:
    """The same, of which those that do not hold say so.

    Args:
        wordings: what a report says of each check, by its name.
        facts: the ledger, which is asked for names only if there is something to say.
    """
    checks = list(checks)
    examples = [example for check in checks for example in check.examples]
    if not examples:
        return checks
    names = names_in(facts, {KNOWN_BY[kind]: _numbers(examples, columns) for kind, columns in _NAMED.items()})
    return [_told(check, wordings[check.name], names) if check.count else check for check in checks]


_NAMED = {"QueueCreated": _QUEUES, "ConsumerAttached": _CONSUMERS, "ProducerRegistered": ("producer",)}


def _numbers(examples: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> set[int]:
    return {example[column] for example in examples for column in columns if example.get(column)}


def _told(check: CheckResult, wording: Wording, names: Names) -> CheckResult:
    first = _Values(check.examples[0], names)
    headline = wording.one if check.count == 1 else wording.many
    return msgspec.structs.replace(
        check,
        complaint=_sentence(headline.format_map({**first, "count": f"{check.count:,}"})),
        remedy=wording.remedy.format_map(first),
        told=[_sentence(wording.each.format_map(_Values(example, names))) for example in check.examples],
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


class _Values(dict[str, str]):
    """The columns of a row in words."""

    def __init__(self, row: Mapping[str, Any], names: Names) -> None:
        super().__init__({column: _word(column, value, names) for column, value in row.items()})
        if "first_missing" in row:
            self["segment"] = SegmentSpan(row["first_missing"], row["last_missing"]).file_name


def _word(column: str, value: Any, names: Names) -> str:
    if column in _QUEUES:
        return _address(value, names)
    if column in _CONSUMERS:
        return names.consumer(value)
    if column == "producer":
        return f"producer {names.producer(value)}" if names.knows("producer", value) else f"producer {value}"
    if column == "expires_us" and value is None:
        return "the end of time"
    if column.endswith("_us"):
        return "an unknown time" if value is None else at(value)
    if value is None:
        return "an unknown number"
    return f"{value:,}" if isinstance(value, int) and column in _COUNTS else str(value)


_COUNTS = ("stored", "consumed", "stored_found", "consumed_found", "messages", "facts", "facts_said", "waiting")


def _address(number: int | None, names: Names) -> str:
    if number is None:
        return "an unknown queue"
    name = names.queue(number)
    if not names.knows("queue", number):
        return name
    return f"{_KINDS[names.kind(number)]} '{name.rpartition('://')[2]}'"


def at(time_us: int) -> str:
    """A time to the second, as people say it."""
    return f"{datetime.fromtimestamp(time_us / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"
