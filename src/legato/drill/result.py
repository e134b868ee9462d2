"""Observations of a running drill, as plain data."""

from dataclasses import dataclass, field

from legato.drill.letters import DeadLetter
from legato.drill.pair import EpochSpan


@dataclass(frozen=True)
class Struck:
    """A fault that happened: which, when in seconds since the load began, and for how long."""

    fault: str
    at_s: float
    took_s: float
    kind: str = ""
    point: str = ""
    reached: bool = False


@dataclass(frozen=True)
class Gap:
    """A client could do nothing for a while, which ended so many seconds after the load began."""

    client: str
    ended_s: float
    gap_ms: float
    epoch: int


@dataclass
class RunResult:
    """Result of a drill by its own observations; records and ledger have the last word."""

    strikes: list[Struck] = field(default_factory=list)
    points_reached: int = 0
    takeovers: int = 0
    stored: int = 0
    seen: int = 0
    rolled_back: int = 0
    clients: int = 0
    clients_killed: int = 0
    drivers_killed: int = 0
    batches: int = 0
    """What the Spark job has done, as its checkpoint says."""
    gaps: list[Gap] = field(default_factory=list)
    epochs: list[EpochSpan] = field(default_factory=list)
    """Of the drill's own brokers, in seconds since the load began."""
    full: int = 0
    """How often somebody was refused because the disk was full."""
    complaints: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What one should know, and is no fault."""
    seconds: float = 0.0
    samples: list[tuple[float, int, int]] = field(default_factory=list)
    """Seconds since the load began, and the totals of `stored` and `seen` by then."""
    dead: frozenset[DeadLetter] = frozenset()
    """With brokers that are not the drill's own, what waited in dead-letter queues at the end."""
    disk_bytes_max: int = 0
    memory_bytes_max: int = 0
    """Of all processes together, as seen every so often."""

    @property
    def gaps_ms(self) -> dict[int, float]:
        """By epoch, the longest time that a client could do nothing."""
        longest: dict[int, float] = {}
        for gap in self.gaps:
            if gap.epoch:
                longest[gap.epoch] = max(longest.get(gap.epoch, 0.0), gap.gap_ms)
        return longest
