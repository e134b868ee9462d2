"""Activity of one epoch: what its durable commits did, counted, and how long they took."""

from __future__ import annotations

from collections import Counter

from legato.core.facts import (
    AnyFact,
    AssignmentAcknowledged,
    DuplicateDropped,
    DuplicateIdDropped,
    MessageConsumed,
    MessageDeadLettered,
    MessageMoved,
    MessagePublished,
    MessageReturned,
    MessagesConsumed,
    MessagesStored,
    MessageStored,
    RunStored,
    TransactionCommitted,
    TransactionRolledBack,
)
from legato.core.records import NO_ATTEMPT, Batch
from legato.server.monitoring.histogram import Histogram

FAILURES = ("rollback", "modified", "disconnect")
"""Causes of failed deliveries that are always reported, so that a rate exists before the first failure."""


class Activity:
    """Counters that begin at 0 with each epoch.

    A batch costs one look at the types of its facts, in C; only facts that stand for several messages, or are rare, are
    looked at one by one.
    """

    def __init__(self) -> None:
        self.commits = 0
        self.durations = Histogram()
        self.stored = 0
        self.acknowledged = 0
        self.dead_lettered = 0
        self.expired = 0
        self.dropped = 0
        self.duplicates = 0
        self.transactions_committed = 0
        self.transactions_rolled_back = 0
        self.failed: Counter[str] = Counter(dict.fromkeys(FAILURES, 0))

    def observe(self, batch: Batch, duration_s: float) -> None:
        """A batch is durable, so long after it was handed to the store."""
        self.commits += 1
        self.durations.observe(duration_s)
        kinds = Counter(map(type, batch.facts))
        self.stored += kinds[MessageStored]
        self.acknowledged += kinds[MessageConsumed]
        self.dead_lettered += kinds[MessageDeadLettered]
        self.duplicates += kinds[DuplicateDropped] + kinds[DuplicateIdDropped]
        self.transactions_committed += kinds[TransactionCommitted]
        self.transactions_rolled_back += kinds[TransactionRolledBack]
        if not _LOOKED_AT.isdisjoint(kinds):
            for fact in batch.facts:
                self._look(fact)

    def _look(self, fact: AnyFact) -> None:
        match fact:
            case MessagePublished():
                self.stored += len(fact.subscriptions)
            case RunStored() | MessagesStored():
                self.stored += fact.count
            case AssignmentAcknowledged() | MessagesConsumed():
                self.acknowledged += fact.count
            case MessageMoved(cause="expired"):
                self.expired += 1
            case MessageMoved(cause="dropped"):
                self.dropped += 1
            case MessageReturned(cause=cause) if cause not in NO_ATTEMPT:
                self.failed[cause] += 1
            case MessageStored(origin=tuple()):
                # The broker moved it here: nobody sent it.
                self.stored -= 1


_LOOKED_AT = {
    MessagePublished,
    MessagesStored,
    MessagesConsumed,
    RunStored,
    AssignmentAcknowledged,
    MessageMoved,
    MessageReturned,
    MessageDeadLettered,
}
"""Where one of these is, messages may have been moved as well."""
