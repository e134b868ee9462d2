"""Mistakes to plant in the broker: what it forgets too early, or never."""

from __future__ import annotations

from legato import limits
from legato.core.facts import ProducerForgotten
from legato.core.steady import SteadyClock
from legato.store.memory import MemoryStore

_prune = MemoryStore.prune


def prune_the_attached(self: MemoryStore, now_us: int) -> int:
    """D4: the store forgets producers by the wall clock, also those that are attached."""
    end_us = now_us - limits.PRODUCER_RETENTION_S * 1_000_000
    old = [record for record in self._state.producers.values() if record.seen_us < end_us]
    for record in old:
        del self._state.producers[record.producer]
    if old:
        self._append(now_us, [ProducerForgotten(record.producer, record.name) for record in old])
    return _prune(self, now_us)


def clock_that_jumps(self: SteadyClock, wall_us: int) -> None:
    """Retention goes by the clock on the wall."""
    self.now_us = wall_us
