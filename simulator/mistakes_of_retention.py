"""Mistakes to plant in the broker: state that is forgotten too early, too late or never."""

from __future__ import annotations

import os

from legato import limits
from legato.core.facts import ProducerForgotten
from legato.core.steady import SteadyClock
from legato.errors import StoreError
from legato.ha import flock
from legato.ha.flock import LockFile
from legato.ha.members import Membership
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


def members_must_be_written(self: Membership) -> bool:
    """D2: a broker whose record among the members cannot be written ends."""
    if not self.is_recorded and not self._closed:
        try:
            if self._alive is None:
                self._alive = self._lock()
            self._write()
        except OSError as error:
            raise StoreError(f"this broker cannot be recorded among the store's members: {error}") from error
        self.is_recorded = True
    return True


def notes_must_be_written(self: LockFile, note: bytes) -> bool:
    """D2, once more: the note in the lock's file needs room each time."""
    os.ftruncate(self._descriptor, 0)
    vars(flock)["os"].pwrite(self._descriptor, note, 0)
    return True
