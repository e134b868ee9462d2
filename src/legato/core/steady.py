"""The steady clock: no jump of the machine's clock, and no pause, moves it.

What a store forgets after a while (outcomes, producers) and what an epoch keeps for clients that return goes by it
(docs/decisions/0058-steady-clock.md).
"""

STEP_MAX_US = 10_000_000
"""What lies between two ticks, a tenth of a second apart, counts as no more."""


class SteadyClock:
    """Counts the time in which a broker served, in microseconds.

    It begins with the wall clock's time when the store is new, and is stored with every commit. From then on it
    advances by what lies between two ticks, never by more than `STEP_MAX_US`, and stands still while no broker serves.

    Args:
        now_us: the time it was left at.
    """

    __slots__ = ("_ticked_us", "now_us")

    def __init__(self, now_us: int) -> None:
        self.now_us = now_us
        self._ticked_us: int | None = None

    def tick(self, wall_us: int) -> None:
        """Advance to a tick at the wall clock's time `wall_us`."""
        self.now_us = self.at(wall_us)
        self._ticked_us = wall_us

    def at(self, wall_us: int) -> int:
        """The time on this clock when the wall clock says `wall_us`, after the last tick."""
        if self._ticked_us is None:
            return self.now_us
        return self.now_us + min(max(wall_us - self._ticked_us, 0), STEP_MAX_US)
