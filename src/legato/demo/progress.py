"""Progress of a run, summed from its processes' reports. Pure, for display and tests."""

from collections import deque
from dataclasses import dataclass, field

from legato.demo.reports import AnyReport, Collected, FailedOver, Processed, Sent

RATE_WINDOW_S = 3.0


@dataclass
class TakeoverSeen:
    """A new primary: its epoch, and the longest time that one of the clients could do nothing."""

    epoch: int
    gap_ms: float
    clients: int


@dataclass
class RunState:
    """Totals of a run of `flights` flights."""

    flights: int
    sent_by: dict[str, int] = field(default_factory=dict)
    processed_by: dict[str, int] = field(default_factory=dict)
    collected: int = 0
    seen_again: int = 0
    takeovers: dict[int, TakeoverSeen] = field(default_factory=dict)
    kills: int = 0
    _samples: deque[tuple[float, int]] = field(default_factory=deque, repr=False)

    @property
    def sent(self) -> int:
        return sum(self.sent_by.values())

    @property
    def processed(self) -> int:
        return sum(self.processed_by.values())

    @property
    def progress(self) -> float:
        """The part of the work that is done, 0 to 1: half of it is sending, so that kills hit producers too."""
        return (self.sent + self.processed) / (2 * self.flights)

    def take(self, name: str, report: AnyReport) -> None:
        """Add what the process `name` reports."""
        match report:
            case Sent(confirmed=confirmed):
                self.sent_by[name] = confirmed
            case Processed(flights=flights):
                self.processed_by[name] = flights
            case Collected(records=records, seen_again=seen_again):
                self.collected, self.seen_again = records, seen_again
            case FailedOver(gap_ms=gap_ms, epoch=epoch):
                takeover = self.takeovers.setdefault(epoch, TakeoverSeen(epoch, 0.0, 0))
                takeover.gap_ms = max(takeover.gap_ms, gap_ms)
                takeover.clients += 1

    def sample(self, now_s: float) -> None:
        """Remember how many were processed by now, for `rate`."""
        self._samples.append((now_s, self.processed))
        while self._samples[0][0] < now_s - RATE_WINDOW_S:
            self._samples.popleft()

    @property
    def rate(self) -> float:
        """Flights processed a second, lately."""
        if len(self._samples) < 2:
            return 0.0
        (first_at, first), (last_at, last) = self._samples[0], self._samples[-1]
        return (last - first) / (last_at - first_at) if last_at > first_at else 0.0
