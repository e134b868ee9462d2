"""Proof that the simulator sees: each planted fault is found within so many seeds."""

from __future__ import annotations

import argparse
import sys

from simulator.planted import FAULTS, Fault
from simulator.run import STEPS_DEFAULT, Outcome, simulate

SEEDS_MAX = 200


def find(fault: Fault, seeds_max: int = SEEDS_MAX, steps: int = STEPS_DEFAULT, first: int = 1) -> Outcome | None:
    """The run of the first seed that finds a fault, and finds nothing without it; None if none of so many does."""
    for seed in range(first, first + seeds_max):
        with fault.planted():
            outcome = simulate(seed, steps)
        if outcome.violation and not simulate(seed, steps).violation:
            return outcome
    return None


def main(arguments: list[str] | None = None) -> int:
    """Look for all faults, or for some; 0 if all were found."""
    parser = argparse.ArgumentParser(prog="python -m simulator.faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which faults to plant; default: all, one by one")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, metavar="N", help="within so many seeds")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="the first of them")
    parser.add_argument("--steps", type=int, default=STEPS_DEFAULT, metavar="M", help="events before the healing")
    options = parser.parse_args(arguments)
    faults = [fault for fault in FAULTS if not options.names or fault.title in options.names]
    missed = 0
    for fault in faults:
        outcome = find(fault, options.seeds, options.steps, options.seed)
        if outcome is None:
            missed += 1
            print(f"{fault.title:30} not found in {options.seeds} seeds", flush=True)
        else:
            print(f"{fault.title:30} seed {outcome.seed:3}: {outcome.violation[:110]}", flush=True)
    print(f"{len(faults) - missed} of {len(faults)} planted faults found")
    return int(bool(missed) or not faults)


if __name__ == "__main__":
    sys.exit(main())
