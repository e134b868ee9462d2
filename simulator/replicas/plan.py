"""The plan of a run with replicas: how many brokers, their lease, the log's bound, how much goes wrong."""

from __future__ import annotations

from random import Random

import msgspec

from simulator.plan import EDITION, Plan, draw

GROUP = "orders"


class ReplicaPlan(msgspec.Struct, frozen=True):
    """What replicas add to a `Plan`."""

    brokers: int
    lease_s: float
    term_ms: int
    """A primary that cannot answer for so long steps down."""
    log_bytes_max: int
    places_leader: bool
    """Whether the log's leader is kept off the primary's machine."""
    message_bytes_max: int
    """Records beyond it travel in parts."""
    upkeep_us: int
    log_trouble: float
    """The share of trouble that is the log's and the cables'."""
    lets_in: float
    """The share of appends behind an old position that the log's servers store, which they should not."""


def draw_replicas(seed: int) -> ReplicaPlan:
    """The plan of a seed."""
    random = Random(f"replicas {seed}")
    return ReplicaPlan(
        brokers=random.choice([2, 3, 3]),
        lease_s=random.choice([0.3, 0.5, 0.5, 1.0]),
        term_ms=random.choice([2_000, 10_000]),
        log_bytes_max=random.choice([1 << 30, 1 << 30, 6_000, 20_000]),
        places_leader=random.random() < 0.7,
        message_bytes_max=random.choice([1 << 20, 1 << 20, 1_200]),
        upkeep_us=random.choice([500_000, 5_000_000, 30_000_000]),
        log_trouble=random.choice([0.3, 0.5, 0.8]),
        lets_in=0.3 if random.random() < 0.15 else 0.0,
    )


def draw_run(seed: int, steps: int | None, *, edition: int = EDITION) -> Plan:
    """The plan of what the brokers and their clients do: that of the seed, with a log in the place of a lock's file."""
    return msgspec.structs.replace(draw(seed, steps, edition=edition), papers=False)
