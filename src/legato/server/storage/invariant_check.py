"""Invariant check of a running broker: compares memory with the store, if configured."""

from __future__ import annotations

from collections.abc import Callable

from legato.clock import Clock
from legato.core.broker import Broker
from legato.core.invariants import violations, violations_of
from legato.errors import StoreError
from legato.store.base import Store

PERIOD_MS = 1_000
MESSAGES_MAX = 1_000
"""So many of each lane are read at a time."""


class InvariantCheck:
    """Checks one queue each period, when no commit is pending.

    Args:
        broken: is told what was found. The heap cannot be trusted any more; the store can.
    """

    def __init__(self, broker: Broker, store: Store, clock: Clock, broken: Callable[[StoreError], object]) -> None:
        self._broker = broker
        self._store = store
        self._clock = clock
        self._broken = broken
        self._next_ms = 0
        self._last = 0
        """The number of the queue that was looked at last."""

    def look(self) -> None:
        """Look, if it is time; the broker must be idle."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + PERIOD_MS
        queues = sorted(self._broker.directory.queues.values(), key=lambda queue: queue.id)
        queue = next((queue for queue in queues if queue.id > self._last), None)
        if queue is None:
            self._last = 0
            found = violations(self._broker, self._store, messages_max=MESSAGES_MAX, queues=())
        else:
            self._last = queue.id
            found = violations_of(self._broker, queue, self._store, messages_max=MESSAGES_MAX)
        if found:
            self._broken(
                StoreError(
                    "this broker's memory and its store disagree, so it stops and the next one begins from the store; "
                    f"please report: {'; '.join(map(str, found[:5]))}"
                )
            )
