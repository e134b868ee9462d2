"""Arithmetic of benchmarks, without I/O: spreads, percentiles, ratios, and whether a goal is met."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """Minimum, median and maximum of some runs."""

    minimum: float
    median: float
    maximum: float


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of `values` that at least `percent` % of them do not exceed (nearest rank, never interpolated).

    Raises:
        ValueError: there are no values, or `percent` is not in (0, 100].
    """
    if not values or not 0 < percent <= 100:
        raise ValueError(f"no {percent}th percentile of {len(values)} values")
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


def spread(values: Sequence[float]) -> Spread:
    """The spread of `values`; the median of an even number is the mean of the middle two.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no values to summarise")
    ordered = sorted(values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return Spread(ordered[0], median, ordered[-1])


@dataclass(frozen=True)
class Pair:
    """One run of the subject and the run of its peer right after it."""

    figure: float
    peer: float

    @property
    def ratio(self) -> float:
        """Figure over peer."""
        return self.figure / self.peer


def interleave(figure: Callable[[], float], peer: Callable[[], float], pairs: int) -> list[Pair]:
    """Run the two sides A B A B ..., so that a slow minute of the machine falls on both.

    Raises:
        ValueError: `pairs` is not positive.
    """
    if pairs < 1:
        raise ValueError("at least one pair is needed")
    return [Pair(figure(), peer()) for _ in range(pairs)]


@dataclass(frozen=True)
class Goal:
    """A bound on the ratio of figure to peer."""

    bound: float
    at_least: bool

    def met(self, ratio: float) -> bool:
        """Whether `ratio` is on the right side of the bound; the bound itself is."""
        return ratio >= self.bound if self.at_least else ratio <= self.bound

    def __str__(self) -> str:
        return f"{'at least' if self.at_least else 'at most'} {self.bound:g}"


def summary(pairs: Sequence[Pair], goal: Goal | None) -> dict[str, object]:
    """The machine-readable line: medians of both sides, the spread of the ratios, the goal and whether it is met.

    The ratio judged is the median of the pairs' ratios, not the ratio of the medians.
    """
    ratios = spread([pair.ratio for pair in pairs])
    return {
        "figure": round(spread([pair.figure for pair in pairs]).median, 3),
        "peer": round(spread([pair.peer for pair in pairs]).median, 3),
        "ratio": round(ratios.median, 3),
        "min": round(ratios.minimum, 3),
        "median": round(ratios.median, 3),
        "max": round(ratios.maximum, 3),
        "goal": str(goal) if goal else None,
        "met": goal.met(ratios.median) if goal else None,
    }
