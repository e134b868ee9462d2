"""The time that a call may take, over several attempts."""

import time
from collections.abc import Callable
from threading import Event
from typing import TypeVar

from legato.errors import LogUnavailableError

ATTEMPT_S = 2.0
"""An attempt waits this long for an answer."""
PAUSE_S = 0.05
"""Between two attempts; servers that have no leader refuse at once."""

_T = TypeVar("_T")


class Patience:
    """A number of seconds, spent by attempts and pauses.

    Args:
        timeout_s: how long; None for as long as nobody gives up.
        given_up: one of them is set when whoever waits gives up.
    """

    def __init__(self, timeout_s: float | None, *given_up: Event) -> None:
        self._until_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._given_up = given_up or (Event(),)
        self._reason: LogUnavailableError | None = None

    def attempt_s(self) -> float:
        """How long one attempt may take.

        Raises:
            LogUnavailableError: there is no time left, or whoever waits has given up.
        """
        if any(event.is_set() for event in self._given_up):
            raise LogUnavailableError("the log was left before it answered: whether a record was stored is not known")
        left_s = ATTEMPT_S if self._until_s is None else self._until_s - time.monotonic()
        if left_s <= 0:
            raise self._reason or LogUnavailableError("the servers of the log did not answer in time")
        return min(left_s, ATTEMPT_S)

    def spent_by(self, reason: LogUnavailableError) -> None:
        """Note why an attempt failed: that is what is said when the time is over."""
        self._reason = reason

    def pause(self, pause_s: float = PAUSE_S) -> None:
        """Wait before another attempt."""
        self._given_up[0].wait(min(pause_s, self.attempt_s()))

    def insist(self, ask: Callable[[float], _T]) -> _T:
        """The answer of servers that may not answer at once.

        Args:
            ask: told how long its attempt may take; asked again after a `LogUnavailableError`.
        """
        while True:
            attempt_s = self.attempt_s()
            try:
                return ask(attempt_s)
            except LogUnavailableError as reason:
                self.spent_by(reason)
                self.pause()
