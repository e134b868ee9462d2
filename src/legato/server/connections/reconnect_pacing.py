"""Pacing of reconnections, so that the clients of a lost broker do not return all at once."""

from __future__ import annotations

from collections.abc import Callable

from legato.clock import Clock
from legato.limits import RECONNECT_TIMEOUT_S, RETURN_WINDOW_MS_MAX, RETURN_WINDOW_MS_MIN

_CHANGE_MIN = 0.25
"""A number that differs by less from the one told last need not be told."""
_TIMEOUT_PARTS = 4
"""In a quarter of the time that they have at most all clients are asked to come back."""


class ReconnectPacing:
    """The time window over which clients spread their reconnections (CONTRACT B23).

    A client hears of it as it opens, and again in a farewell. One that came when there were few does not know of the
    many that came later, unless it is told goodbye. So a new primary counts with as many as its predecessor had, until
    they have had the time to come.

    Args:
        returns_per_s: so many are welcome each second.
        reconnect_timeout_s: so long is kept for them what they had; they are to be back well before. 0: nothing is.
        expected: how many the last primary had.
        report: is told how many there are, for a successor, once they are many, and when that changes much.
    """

    def __init__(
        self,
        returns_per_s: int,
        reconnect_timeout_s: float,
        expected: int,
        clock: Clock,
        report: Callable[[int], None],
    ) -> None:
        self._returns_per_s = returns_per_s
        self._window_ms_max = RETURN_WINDOW_MS_MAX
        if reconnect_timeout_s:
            self._window_ms_max = min(RETURN_WINDOW_MS_MAX, int(reconnect_timeout_s * 1000 / _TIMEOUT_PARTS))
        self._expected = expected
        self._clock = clock
        self._expected_until_ms = clock.monotonic_ms() + RECONNECT_TIMEOUT_S * 1000
        self._report = report
        self._reported = 0

    def window_ms(self, connections: int) -> int:
        """The time for so many; 0 if they are few."""
        if self._expected and self._clock.monotonic_ms() < self._expected_until_ms:
            connections = max(connections, self._expected)
        window_ms = connections * 1000 // self._returns_per_s
        if window_ms < RETURN_WINDOW_MS_MIN:
            return 0
        if abs(connections - self._reported) > _CHANGE_MIN * self._reported:
            self._reported = connections
            self._report(connections)
        return min(window_ms, self._window_ms_max)
