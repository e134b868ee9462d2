"""A primary's lease: whether it may still serve. It is checked before each answer. Pure; time is an argument."""

from collections.abc import Callable
from enum import Enum, auto

CHECK_MS = 200


class Standing(Enum):
    """Standing of a primary: serve, look at the lock, or step down."""

    GOOD = auto()
    LOST = auto()
    """The lock is no longer its own."""
    LAPSED = auto()
    """It did not look after its lock for so long that its clients and backups have given it up."""


class Lease:
    """Renewed by a look at the lock, which a running primary takes several times a second.

    One that was stopped, or starved of time, finds that it is overdue, and so looks before it answers anybody. The
    lock may be its own still: no other has served then. It may go on, or fence itself (`term_ms`) because its clients
    have long gone to look elsewhere.

    Args:
        is_ours: looks at the lock.
        term_ms: without renewal for so long, the lease has lapsed; None: it never does.
        now_ms: of a monotonic clock.
    """

    def __init__(self, is_ours: Callable[[], bool], term_ms: int | None, now_ms: int) -> None:
        self._is_ours = is_ours
        self._renewed_ms = now_ms
        self.set_term(term_ms)

    def set_term(self, term_ms: int | None) -> None:
        """Let it lapse after so long without renewal; None: never."""
        self._term_ms = term_ms
        self._check_ms = CHECK_MS if term_ms is None else min(CHECK_MS, term_ms // 2)

    def standing(self, now_ms: int) -> Standing:
        """Standing now; renews the lease if that is due and possible."""
        age_ms = now_ms - self._renewed_ms
        if age_ms < self._check_ms:
            return Standing.GOOD
        if not self._is_ours():
            return Standing.LOST
        if self._term_ms is not None and age_ms >= self._term_ms:
            return Standing.LAPSED
        self._renewed_ms = now_ms
        return Standing.GOOD
