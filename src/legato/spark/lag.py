"""Lag of streams of `format("legato")`: how many messages wait at each queue or topic."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from legato.quoting import quoted

log = logging.getLogger("legato.spark")

Report = Callable[[str, dict[str, int]], None]
"""Is told the name of a query, or its id if it has none, and how many messages wait for it at each address."""


def lag(progress: StreamingQueryProgress) -> dict[str, int]:
    """How many messages wait at each queue or topic that a query reads, when a batch of it is done.

    Sources of other formats are left out.
    """
    waiting: dict[str, int] = {}
    for source in progress.sources:
        done, there = _numbers(source.endOffset), _numbers(source.latestOffset)
        waiting |= {address: max(there[address] - done.get(address, 0), 0) for address in there}
    return waiting


def _numbers(offset: str | None) -> dict[str, int]:
    try:
        numbers = json.loads(offset or "{}")
    except ValueError:
        return {}
    is_ours = isinstance(numbers, dict) and all(type(number) is int for number in numbers.values())
    return numbers if is_ours else {}


def log_lag(name: str, waiting: dict[str, int]) -> None:
    """Write a line to the log `legato.spark` (INFO)."""
    log.info("%s: %s messages wait: %s", quoted(name), sum(waiting.values()), waiting)


class LagListener(StreamingQueryListener):
    """Reports the lag of each query after each batch: `spark.streams.addListener(LagListener())`.

    Args:
        report: what it is told to; a line of the log by default. It is called by a thread of Spark's.
    """

    def __init__(self, report: Report = log_lag) -> None:
        self._report = report

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing waits to be told."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        if waiting := lag(progress):
            self._report(progress.name or str(progress.id), waiting)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Nothing is left to be told."""
