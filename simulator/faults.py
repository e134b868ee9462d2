"""The test of the simulator itself: it must find each planted fault within a number of seeds."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from simulator.planted import FAULTS
from simulator.run import Outcome, simulate
from simulator.seed_runner import Garbage

SEEDS_MAX = 400


class Planted(Protocol):
    """A fault that can be planted; see `planted.Fault`."""

    owner: Any
    name: str
    reached: bool

    @property
    def title(self) -> str:
        """What it is called on the command line."""

    def planted(self) -> AbstractContextManager[None]:
        """The fault is there for a while."""


def find(
    fault: Planted,
    seeds: range,
    steps: int | None = None,
    garbage: Garbage | None = None,
    run: Callable[[int, int | None], Outcome] = simulate,
) -> Outcome | None:
    """The run of the first seed that finds a fault, and finds nothing without it; None if none of `seeds` does."""
    for seed in seeds:
        with fault.planted():
            outcome = run(seed, steps)
        if garbage is not None:
            garbage.ran(outcome)
        if outcome.violation and not run(seed, steps).violation:
            return outcome
    return None


def main(arguments: list[str] | None = None) -> int:
    """Look for all faults, or for some; 0 if all were found."""
    parser = argparse.ArgumentParser(prog="python -m simulator.faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which faults to plant; default: all, one by one")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, metavar="N", help="within so many seeds")
    parser.add_argument("--first", type=int, default=1, metavar="K", help="the first of them")
    parser.add_argument("--steps", type=int, metavar="M", help="events before the healing; default: the seed says it")
    parser.add_argument("--replicas", action="store_true", help="those of brokers with a replicated log")
    options = parser.parse_args(arguments)
    garbage = Garbage()
    planted: list[Planted] = [*FAULTS]
    run: Callable[[int, int | None], Outcome] = simulate
    if options.replicas:
        from simulator.replicas.planted import FAULTS as planted_in_replicas
        from simulator.replicas.run import simulate as run

        planted = [*planted_in_replicas]
    faults = [fault for fault in planted if not options.names or fault.title in options.names]
    missed = 0
    for fault in faults:
        seeds = range(options.first, options.first + options.seeds)
        outcome = find(fault, seeds, options.steps, garbage, run)
        if outcome is None:
            missed += 1
            why = "" if fault.reached else f": nothing calls {fault.owner.__name__}.{fault.name}"
            print(f"{fault.title:34} not found in {options.seeds} seeds{why}", flush=True)
        else:
            count = outcome.seed - options.first + 1
            print(f"{fault.title:34} {count:3} seeds, {outcome.seed:4}: {outcome.violation[:110]}", flush=True)
    print(f"{len(faults) - missed} of {len(faults)} planted faults found, each within {options.seeds} seeds")
    return int(bool(missed) or not faults)


if __name__ == "__main__":
    sys.exit(main())
