"""The kill schedule of a run: instants spread over the run, drawn from a seed."""

from dataclasses import dataclass
from random import Random

FIRST_AT = 0.12
LAST_AT = 0.88
DELAY_MAX_S = 0.1


@dataclass(frozen=True)
class Kill:
    """One SIGKILL: `delay_s` seconds after the fraction `at` of the work is done (`RunState.progress`)."""

    at: float
    delay_s: float


def plan_kills(count: int, random: Random) -> list[Kill]:
    """`count` kills in order, one at a random place in each of `count` equal parts of the run.

    Progress is known to a report or so; the delay is what makes the instant fall anywhere between and inside
    transactions.
    """
    part = (LAST_AT - FIRST_AT) / max(count, 1)
    return [
        Kill(FIRST_AT + part * (number + random.random() * 0.8), random.random() * DELAY_MAX_S)
        for number in range(count)
    ]
