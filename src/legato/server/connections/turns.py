"""Turns of the loop, shared among connections that have much to do; the others never wait for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

TURN_MS = 10
"""Of one turn of the loop, what connections with much to do may take together."""
HEAVY_MS = 10.0
"""A connection has much to do if it took more than this lately: it grows to this in 100 ms if it takes a tenth of all
time."""
HALF_LIFE_MS = 70.0
LIGHT_TURN_MS = 40
"""Of one turn of the loop, what all others may take: there may be thousands of them."""


class Usage:
    """Time of the loop that one connection took lately. Pure: time is an argument.

    A new connection counts as one that has much to do, until it is known better.
    """

    __slots__ = ("_at_ms", "_spent_ms")

    def __init__(self, now_ms: int) -> None:
        self._spent_ms = 2 * HEAVY_MS
        self._at_ms = now_ms

    def add(self, spent_ms: int, now_ms: int) -> None:
        """It took so much until now."""
        self._spent_ms = self._spent_ms * 0.5 ** ((now_ms - self._at_ms) / HALF_LIFE_MS) + spent_ms
        self._at_ms = now_ms

    def is_heavy(self, now_ms: int) -> bool:
        """Whether it has much to do."""
        if self._spent_ms < HEAVY_MS:
            return False
        left: float = 0.5 ** ((now_ms - self._at_ms) / HALF_LIFE_MS)
        return self._spent_ms * left >= HEAVY_MS


class Waiting(Protocol):
    """Who waits for a turn."""

    def go_on(self) -> None:
        """Do a slice of the work; asks for another turn if there is more."""


class Turns:
    """Gives turns: to those with little to do first, then to the others, in the order in which they were asked for.

    Args:
        call_soon: has something called in the next turn of the loop.
        monotonic_ms: a clock that never goes back.
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], monotonic_ms: Callable[[], int]) -> None:
        self._call_soon = call_soon
        self._monotonic_ms = monotonic_ms
        self._light: deque[Waiting] = deque()
        self._heavy: deque[Waiting] = deque()
        self._spent_ms = 0
        """In this turn of the loop."""
        self._planned = False

    def may_serve(self, *, is_heavy: bool) -> bool:
        """Whether a connection may be served at once, or is to wait for the next turn of the loop."""
        if is_heavy:
            return self._spent_ms < TURN_MS and not (self._heavy or self._light)
        return self._spent_ms < LIGHT_TURN_MS and not self._light

    def took(self, spent_ms: int) -> None:
        """A connection was served at once."""
        self._spent_ms += spent_ms
        self._plan()

    def add(self, waiting: Waiting, *, is_heavy: bool) -> None:
        """Somebody waits for a turn."""
        (self._heavy if is_heavy else self._light).append(waiting)
        self._plan()

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self._call_soon(self._run)

    def _run(self) -> None:
        self._planned = False
        self._spent_ms = 0
        self._serve(self._light, LIGHT_TURN_MS)
        # Whoever has much to do goes on too, if only a little.
        self._serve(self._heavy, TURN_MS)
        if self._light or self._heavy or self._spent_ms:
            self._plan()

    def _serve(self, waiting: deque[Waiting], turn_ms: int) -> None:
        began_ms = self._monotonic_ms()
        for _ in range(len(waiting)):
            waiting.popleft().go_on()
            spent_ms = self._monotonic_ms() - began_ms
            if spent_ms >= turn_ms:
                self._spent_ms += spent_ms
                return
        self._spent_ms += self._monotonic_ms() - began_ms
