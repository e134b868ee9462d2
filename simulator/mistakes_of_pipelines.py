"""Mistakes to plant in the broker: assignments, staged batches, answers before the commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from legato import limits
from legato.core.assignments import Assignment, Assignments, Extent
from legato.core.dispatch_modes import DispatchModes
from legato.core.lanes import Lane
from legato.core.numbered_producers import NumberedProducers
from legato.core.outcome import Outcome
from legato.core.producers import SINK_PREFIX
from legato.core.queues import Queue
from legato.core.records import Run
from legato.core.staged_batches import Stage
from legato.server.links.subscriptions import SubscriptionLinks
from legato.server.messages.commits import Commits

_extents_of = Assignments._extents_of
_pass_over = Lane.pass_over
_durable = Stage.durable
_begin_selecting = DispatchModes._begin_selecting


def bytes_for_good(self: Assignments, assignment: Assignment, through: int) -> list[Extent]:
    """What a pipeline is done with is counted among the bytes of its assignment for ever."""
    return [Extent(each.last, each.count, 0) for each in _extents_of(self, assignment, through)]


def floors_passed_over(self: Lane, run: Run, floor: int) -> list[int]:
    """What waits below the floor of an assignment cannot be had any more in this epoch."""
    return _pass_over(self, run, 0)


def batches_passed_over(self: Stage, outcome: Outcome) -> None:
    """The window reaches beyond a batch that was never loaded."""
    _durable(self, outcome)
    for _, lane, fact in self.runs:
        lane.loaded_seq = max(lane.loaded_seq, fact.seq + fact.count - 1)


def sinks_forgotten(self: NumberedProducers) -> None:
    """D3: a sink is forgotten when it has published nothing for a day by the clock on the wall."""
    end_us = self._kernel.now_us - limits.PRODUCER_RETENTION_S * 1_000_000
    for record in self._kernel.archive.producers(0, 1_000):
        old = record.name.startswith(SINK_PREFIX) and record.seen_us < end_us
        if old and record.name not in self.attached and record.name not in self.forgetting:
            self.forget(record.producer, record.name)


def claimed_for_good(self: DispatchModes, queue: Queue) -> None:
    """What left before consumers began to select stays claimed."""
    gone = [len(commit.changes) for commit in self._kernel.commits]
    _begin_selecting(self, queue)
    for commit, before in zip(self._kernel.commits, gone, strict=True):
        del commit.changes[before:]


def answer_at_once(self: Commits, peer: Any, then: Callable[[], None]) -> None:
    """D8 (a18) and its like: detaches, closes and administrators are answered before it is durable."""
    then()
    self._shell.touch(peer)


def end_or_not(self: SubscriptionLinks, subscription: Queue) -> bool:
    """Who ends a subscription hears that it is ended, also if somebody has begun to use it."""
    return self.end(subscription)
