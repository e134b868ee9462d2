"""A primary's lease: whether it may still serve. It is checked before each answer. Pure; time is an argument."""

from collections.abc import Callable
from enum import Enum, auto

CHECK_MS = 200


class Standing(Enum):
    """Standing of a primary: serve, look at the lock, or step down."""

    GOOD = auto()
    LOST = auto()
    """The lock is no longer its own."""
    UNSURE = auto()
    """Another may have become the primary: nobody is to be answered until it is known that none has."""
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
        sure_for_s: for how long it is certain that no other has become the primary; None: a look at the lock tells.
    """

    def __init__(
        self,
        is_ours: Callable[[], bool],
        term_ms: int | None,
        now_ms: int,
        sure_for_s: Callable[[], float] | None = None,
    ) -> None:
        self._is_ours = is_ours
        self._sure_for_s = sure_for_s
        self._renewed_ms = now_ms
        self.set_term(term_ms)

    def set_term(self, term_ms: int | None) -> None:
        """Let it lapse after so long without renewal; None: never."""
        self._term_ms = term_ms
        self._check_ms = CHECK_MS if term_ms is None else min(CHECK_MS, term_ms // 2)

    @property
    def is_sure(self) -> bool:
        """Whether it is certain that no other is the primary, as far as the lease goes by time."""
        return self._sure_for_s is None or self._sure_for_s() > 0

    def standing(self, now_ms: int, *, look: bool = False) -> Standing:
        """Standing now; renews the lease if that is due and possible.

        Args:
            look: look at the lock, due or not: something happened that the store of a primary rules out.
        """
        age_ms = now_ms - self._renewed_ms
        if self._sure_for_s is not None and self._sure_for_s() <= 0:
            if not self._is_ours():
                return Standing.LOST
            return Standing.LAPSED if self._term_ms is not None and age_ms >= self._term_ms else Standing.UNSURE
        if age_ms < self._check_ms and not look:
            return Standing.GOOD
        if not self._is_ours():
            return Standing.LOST
        if self._sure_for_s is None and self._term_ms is not None and age_ms >= self._term_ms:
            return Standing.LAPSED
        self._renewed_ms = now_ms
        return Standing.GOOD
