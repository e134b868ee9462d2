"""Mark on what all connections hold in memory: who is not read from above it. Pure: time is an argument."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Generic, TypeVar

import msgspec

from legato.sizes import size, sizes_apart

T = TypeVar("T")

RELIEF = 0.9
"""Below this share of the mark everybody is read from again."""
GROWTH = 1.02
"""When so many times more is held, more are stopped."""
HOLDER_BYTES_MIN = 128 << 10
"""Who holds less is always read from: to stop it would gain nothing."""


class Measures(msgspec.Struct, Generic[T]):
    """What is to be done now."""

    stop: list[T] = []
    """Read no more from these."""
    go_on: list[T] = []
    """Read from these again."""
    cut_off: T | None = None
    """End this connection: as long as nobody reads from it, it cannot end what it has begun."""


class HeldMemory(msgspec.Struct):
    """What connections hold in memory together, for a status.

    Attributes:
        mark_bytes: above it those who hold most are not read from; 0: no mark.
        stopped: connections that are not read from because of it.
        refusals: how often a limit of users, addresses or all was reached.
    """

    used_bytes: int
    mark_bytes: int
    stopped: int
    refusals: int


class MemoryMark(Generic[T]):
    """Decides who is not read from, as long as connections hold more than the mark together.

    Those who hold most come first: as many as hold half of everything; with each review that finds still more held
    than before, half of the rest too.

    Args:
        mark_bytes: 0: none.
        relief_s: after so long without relief whoever holds most is cut off, and after as long again the next one.
        tell: is given a line for the log when the mark is passed, and when there is relief.
    """

    def __init__(self, mark_bytes: int, relief_s: float, tell: Callable[[str], None]) -> None:
        self.mark_bytes = mark_bytes
        self.relief_s = relief_s
        self.stopped: dict[T, None] = {}
        self.is_above = False
        self._tell = tell
        self._before_bytes = 0
        self._hopeless_s = 0.0
        """When patience ends."""

    def review(self, used_bytes: int, holders: Callable[[], Collection[tuple[T, int]]], now_s: float) -> Measures[T]:
        """What is to be done if connections hold `used_bytes` together.

        Args:
            holders: connections, with what each of them holds; is called above the mark only.
        """
        if not self.is_above:
            if not self.mark_bytes or used_bytes <= self.mark_bytes:
                return Measures()
            self.is_above = True
            self._before_bytes = 0
            self._hopeless_s = now_s + self.relief_s
            held, mark = sizes_apart(used_bytes, self.mark_bytes)
            self._tell(
                f"connections hold {held}, more than limits.memory ({mark}): those who hold most are not read from"
            )
        elif used_bytes < RELIEF * self.mark_bytes or not self.mark_bytes:
            return self._relieve(used_bytes)
        measures = Measures[T]()
        found = sorted(holders(), key=lambda holder: holder[1], reverse=True)
        self.stopped = {holder: None for holder, _ in found if holder in self.stopped}
        grew = used_bytes > max(self._before_bytes * GROWTH, self.mark_bytes)
        if grew:
            measures.stop = self._next_to_stop(found)
            self.stopped.update(dict.fromkeys(measures.stop))
        if grew:
            self._before_bytes = used_bytes
        if now_s >= self._hopeless_s and used_bytes > self.mark_bytes and self.stopped:
            measures.cut_off = next(holder for holder, _ in found if holder in self.stopped)
            self._hopeless_s = now_s + self.relief_s
            self._before_bytes = 0
        return measures

    def _next_to_stop(self, found: list[tuple[T, int]]) -> list[T]:
        """The largest of those that are read from that hold half of what these hold."""
        reading = [(holder, held) for holder, held in found if holder not in self.stopped and held >= HOLDER_BYTES_MIN]
        left = sum(held for _, held in reading) / 2
        stop = []
        for holder, held in reading:
            if left <= 0:
                break
            stop.append(holder)
            left -= held
        return stop

    def _relieve(self, used_bytes: int) -> Measures[T]:
        self.is_above = False
        measures = Measures[T](go_on=list(self.stopped))
        self.stopped = {}
        self._tell(f"connections hold {size(used_bytes)}: everybody is read from again")
        return measures
