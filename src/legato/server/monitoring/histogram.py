"""A histogram of durations, cheap enough for one observation per commit."""

from __future__ import annotations

from bisect import bisect_left

BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    """Counts durations by size. One thread observes; others may read."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def observe(self, duration_s: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(BOUNDS_S, duration_s)] += 1
        self.sum_s += duration_s

    def buckets(self) -> list[tuple[str, int]]:
        """Upper bounds, each with how many durations were not longer; the last bound is `+Inf`."""
        total, found = 0, []
        for bound, count in zip([*map(str, BOUNDS_S), "+Inf"], list(self._counts), strict=True):
            total += count
            found.append((bound, total))
        return found
