"""The plan of a drill: its faults and their times, drawn from a seed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from legato.drill.faults import Fault
from legato.failpoints import AnyPoint, SinkPoint

CLOCK_JUMP_MAX_S = 90.0
"""More than any interval of the broker's that a wrong clock could upset."""
SLOW_DISK_MAX_MS = 200.0
LASTS_MIN_S, LASTS_MAX_S = 0.3, 2.5
LATE_MIN_S, LATE_MAX_S = 20.0, 60.0
"""A driver that was killed is started again so much later: most of a drill's brokers are other ones by then."""


@dataclass(frozen=True)
class Strike:
    """One fault of a drill.

    Args:
        calm_s: seconds that pass before it, all being well.
        fault: what happens.
        point: where a process is held meanwhile; None at any instant.
        lasts_s: seconds until it is over, where a fault has an end.
        amount: milliseconds of a slow disk, seconds of a clock's jump, seconds until a driver is started again, else 0.
        chance: from 0 to 1: chooses whom it strikes, where there is a choice.
    """

    calm_s: float
    fault: Fault
    point: AnyPoint | None
    lasts_s: float
    amount: float = 0.0
    chance: float = 0.0

    def __str__(self) -> str:
        amount = {
            Fault.SLOW_DISK: f" by {self.amount:.0f} ms",
            Fault.CLOCK_JUMP: f" by {self.amount:+.0f} s",
            Fault.KILL_DRIVER: f" for {self.amount:.0f} s",
        }
        return f"{self.fault}{amount.get(self.fault, '')}{f' {self.point}' if self.point else ''}"


def plan(
    faults: Sequence[Fault], points: Sequence[AnyPoint | None], every_s: float, random: Random
) -> Iterator[Strike]:
    """Faults without end; each of `faults` once in every round, in another order each time.

    Args:
        points: where they strike, each once in every round of its own, in another order each time; None stands for an
            instant at random. Drivers are killed at the points of their own that are among them, in rounds of these.
        every_s: seconds between two faults, on average.
    """
    places = _rounds(points or [None], random)
    own = list(dict.fromkeys(point for point in points if point is None or isinstance(point, SinkPoint)))
    places_of_drivers = _rounds(own, random) if own else places
    while True:
        for fault in random.sample(list(faults), len(faults)):
            calm_s = every_s * (0.5 + random.random())
            lasts_s = random.uniform(LASTS_MIN_S, LASTS_MAX_S)
            amount = 0.0
            if fault is Fault.SLOW_DISK:
                amount = random.uniform(SLOW_DISK_MAX_MS / 10, SLOW_DISK_MAX_MS)
            elif fault is Fault.CLOCK_JUMP:
                amount = random.uniform(-CLOCK_JUMP_MAX_S, CLOCK_JUMP_MAX_S)
            elif fault is Fault.KILL_DRIVER:
                amount = random.uniform(LATE_MIN_S, LATE_MAX_S)
            point = next(places_of_drivers if fault is Fault.KILL_DRIVER else places)
            yield Strike(calm_s, fault, point, lasts_s, amount, random.random())


def _rounds(points: Sequence[AnyPoint | None], random: Random) -> Iterator[AnyPoint | None]:
    while True:
        yield from random.sample(list(points), len(points))
