"""Rates of queues: samples of the core's counters, a few queues at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from legato.core.queues import Queue

QUEUES_AT_ONCE = 500
"""Queues looked at in one tick, so that many queues cost the others nothing."""
PERIOD_US = 2_000_000
"""A rate is an average over at least so long."""


class Rates(msgspec.Struct):
    """Messages a second."""

    stored_per_s: float = 0.0
    delivered_per_s: float = 0.0
    acknowledged_per_s: float = 0.0


class _Sample:
    """A sample of a queue's counters, and the rates since the sample before."""

    __slots__ = ("counters", "rates", "time_us")

    def __init__(self, counters: tuple[int, int, int], time_us: int) -> None:
        self.counters = counters
        self.time_us = time_us
        self.rates = Rates()


class RateMeter:
    """The rates of the queues in use.

    Args:
        queues: by name; those that are not in use stand still.
    """

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        self._queues = queues
        self._samples: dict[str, _Sample] = {}
        self._round: Iterator[str] = iter(())
        self._began_us = 0

    def of(self, name: str) -> Rates:
        """The rates of a queue, zero if it is not in use."""
        sample = self._samples.get(name)
        return sample.rates if sample is not None else Rates()

    def tick(self, now_us: int) -> None:
        """Time passed: look at the next few queues."""
        for _ in range(QUEUES_AT_ONCE):
            name = next(self._round, None)
            if name is None:
                self._begin(now_us)
                return
            queue = self._queues.get(name)
            if queue is not None:
                self._look(queue, now_us)

    def _begin(self, now_us: int) -> None:
        if now_us - self._began_us < PERIOD_US:
            return
        self._began_us = now_us
        if len(self._samples) > len(self._queues):
            self._samples = {name: sample for name, sample in self._samples.items() if name in self._queues}
        self._round = iter(list(self._queues))

    def _look(self, queue: Queue, now_us: int) -> None:
        counters = (queue.stored, queue.delivered, queue.acknowledged)
        sample = self._samples.get(queue.name)
        if sample is None:
            self._samples[queue.name] = _Sample(counters, now_us)
            return
        elapsed_s = (now_us - sample.time_us) / 1e6
        if elapsed_s <= 0:
            return
        sample.rates = Rates(
            *(round((new - old) / elapsed_s, 1) for new, old in zip(counters, sample.counters, strict=True))
        )
        sample.counters, sample.time_us = counters, now_us
