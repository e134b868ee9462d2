"""Token bucket: a rate that may be exceeded for a short time. Pure: time is an argument."""

from __future__ import annotations


class TokenBucket:
    """Tokens that come at a rate, up to those of one period.

    Args:
        period_s: a full bucket has the tokens of so many seconds.
    """

    __slots__ = ("_at_s", "_missing", "_period_s")

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._missing = 0.0
        """Tokens that a full bucket has more than this one: it may have less than none."""
        self._at_s = 0.0

    def take(self, count: int, rate_per_s: float, now_s: float) -> float:
        """Take tokens, whether they are there or not; returns in how many seconds there are none missing any more."""
        self._refill(rate_per_s, now_s)
        self._missing += count
        return max(0.0, self._missing / rate_per_s - self._period_s)

    def try_take(self, rate_per_s: float, now_s: float) -> bool:
        """Take one token, if there is one."""
        self._refill(rate_per_s, now_s)
        if self._missing + 1 > rate_per_s * self._period_s:
            return False
        self._missing += 1
        return True

    def is_full(self, rate_per_s: float, now_s: float) -> bool:
        """Whether it is as one from which nothing was ever taken."""
        self._refill(rate_per_s, now_s)
        return self._missing <= 0

    def _refill(self, rate_per_s: float, now_s: float) -> None:
        self._missing = max(0.0, self._missing - max(0.0, now_s - self._at_s) * rate_per_s)
        self._at_s = now_s
