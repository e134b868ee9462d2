"""Circuit breaker of a stage: pauses when all messages fail, then tries one. Pure."""

from __future__ import annotations

from enum import StrEnum

FAILURES_DEFAULT = 5
PAUSE_DEFAULT_S = 1.0
PAUSE_MAX_DEFAULT_S = 60.0
AVOIDED_MAX = 8
"""Messages that failed while the circuit was open, and that are passed over to try others."""
TRIED_MAX = 1_000
"""Messages that failed as trials since the circuit opened, and count when they fail again."""


class State(StrEnum):
    """The state of a circuit."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half open"


class Circuit:
    """Keeps a stage from making dead letters of a whole queue while, say, its database is down (CONTRACT D16).

    After some failures in a row, of different messages, or one that no message is to blame for, it opens: nothing is
    taken for a pause. Then one worker tries one message (half open); if that fails too the pause doubles, and if it
    succeeds all go on. What fails while the circuit is not closed is given back uncounted, once, and others are tried
    before it: a queue that begins with poison does not stop for ever. What no message is to blame for is never counted,
    unless the circuit never opens: without a pause it would be tried again at once, for as long as it is tried at all.

    Args:
        failures_max: so many in a row open it; 0 for never.
        pause_first_s, pause_max_s: the first pause and the longest, in seconds.
    """

    def __init__(
        self,
        failures_max: int = FAILURES_DEFAULT,
        pause_first_s: float = PAUSE_DEFAULT_S,
        pause_max_s: float = PAUSE_MAX_DEFAULT_S,
    ) -> None:
        self.state = State.CLOSED
        self.opened = 0
        """How often it opened."""
        self.until_s = 0.0
        """When the pause ends."""
        self._failures_max = failures_max
        self._pause_first_s = pause_first_s
        self._pause_max_s = pause_max_s
        self._pause_s = pause_first_s
        self._row = 0
        self._blamed: set[str] = set()
        self._avoided: list[str] = []
        self._tried: dict[str, None] = {}
        """Those that failed since it opened, the first to fail first."""
        self._prober = ""

    @property
    def avoided(self) -> frozenset[str]:
        """Messages that failed since it opened: others are tried first."""
        return frozenset(self._avoided)

    def wait_s(self, worker: str, now_s: float) -> float:
        """How long a worker is not to take messages; 0 if it may.

        Args:
            worker: its name; of those that come after the pause the first one tries.
            now_s: seconds, from wherever.
        """
        if self.state is State.CLOSED or (self.state is State.HALF_OPEN and self._prober == worker):
            return 0.0
        if self.state is State.HALF_OPEN:
            return self._pause_s
        if now_s < self.until_s:
            return self.until_s - now_s
        self.state = State.HALF_OPEN
        self._prober = worker
        return 0.0

    def may_take(self, worker: str) -> bool:
        """Whether a worker that was waiting for messages meanwhile may work on the one that came."""
        return self.state is State.CLOSED or (self.state is State.HALF_OPEN and self._prober == worker)

    def succeeded(self) -> bool:
        """A message was worked on; returns whether this closed the circuit."""
        self._row = 0
        self._blamed.clear()
        if self.state is State.CLOSED:
            return False
        self.state = State.CLOSED
        self._pause_s = self._pause_first_s
        self._avoided.clear()
        self._tried.clear()
        return True

    def failed(self, message: str, now_s: float, *, environmental: bool = False) -> bool:
        """An attempt failed; returns whether it is to be counted.

        Args:
            message: whose.
            environmental: whether no message is to blame.
        """
        if self.state is State.CLOSED:
            self._row += 1
            self._blamed.add(message)
            several = self._row >= self._failures_max and len(self._blamed) > 1
            if self._failures_max and (several or environmental):
                self._open(now_s)
                self._avoided.append(message)
                self._tried[message] = None
                return False
            return True
        if self.state is State.HALF_OPEN:
            self._pause_s = min(2 * self._pause_s, self._pause_max_s)
            self._open(now_s)
        # Who comes round again after others failed as well is to blame himself, unless nobody is.
        again = message in self._tried
        self._tried[message] = None
        if len(self._tried) > TRIED_MAX:
            del self._tried[next(iter(self._tried))]
        if message in self._avoided:
            self._avoided.clear()
        self._avoided = [*self._avoided, message][-AVOIDED_MAX:]
        return again and not environmental

    def _open(self, now_s: float) -> None:
        self.opened += self.state is State.CLOSED
        self.state = State.OPEN
        self.until_s = now_s + self._pause_s
        self._prober = ""
