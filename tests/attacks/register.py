"""The attacks by their numbers: those of the survey, and what each needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from tests.attacks.ground import RSS_GROWTH_MAX_BYTES, Ground

Run = Callable[[Ground], None]


class Attack(msgspec.Struct, frozen=True):
    """One attack.

    Attributes:
        number: of the finding that it repeats.
        run: makes it; raises `Fell` if it does what it was to do.
        quick: whether it is one for the usual tests.
        own_ground: whether `run` has processes of its own, and a good client would measure nothing.
        settings: further settings of the broker.
        rss_growth_max_bytes: what the attacker's own connections may cost.
    """

    number: int
    name: str
    run: Run
    quick: bool = False
    own_ground: bool = False
    settings: str = ""
    rss_growth_max_bytes: int = RSS_GROWTH_MAX_BYTES


ATTACKS: list[Attack] = []


def attack(
    number: int,
    name: str,
    *,
    quick: bool = False,
    own_ground: bool = False,
    settings: str = "",
    rss_growth_max_bytes: int = RSS_GROWTH_MAX_BYTES,
) -> Callable[[Run], Run]:
    """Register an attack."""

    def register(run: Run) -> Run:
        ATTACKS.append(Attack(number, name, run, quick, own_ground, settings, rss_growth_max_bytes))
        return run

    return register


def all_attacks() -> list[Attack]:
    """All of them, in the order of their numbers."""
    from tests.attacks import computing, permissions, resources, secrets, words  # noqa: F401

    return sorted(ATTACKS, key=lambda attack: attack.number)


def scratch(ground: Ground, name: str) -> Path:
    """A directory for processes of an attack's own."""
    directory = ground.directory / name
    directory.mkdir(mode=0o700)
    return directory
