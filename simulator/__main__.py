"""Run seeds: `python -m simulator [SEED] [--seeds N] [--steps M] [--jobs J]`."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from multiprocessing import Pool

from simulator.kernel import START_US
from simulator.run import STEPS_DEFAULT, Outcome, Simulation, simulate

REPORT_S = 5.0


def main(arguments: list[str] | None = None) -> int:
    """Run seeds and say which broke a promise; 0 if none did."""
    parser = argparse.ArgumentParser(prog="python -m simulator", description=__doc__)
    parser.add_argument("seed", nargs="?", type=int, help="run this seed alone, and say all about it")
    parser.add_argument("--seeds", type=int, default=100, metavar="N", help="how many seeds to run")
    parser.add_argument("--seed", dest="first", type=int, default=1, metavar="S", help="the first of them")
    parser.add_argument("--steps", type=int, default=STEPS_DEFAULT, metavar="M", help="events before the healing")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="processes to run seeds in")
    parser.add_argument("--trace", action="store_true", help="with SEED: print everything that happens")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _one(options.seed, options.steps, trace=options.trace)
    return _many(range(options.first, options.first + options.seeds), options.steps, options.jobs)


def _one(seed: int, steps: int, *, trace: bool) -> int:
    simulation = Simulation(seed, steps)
    if trace:
        simulation.history.trace = lambda what: print(
            f"{(simulation.kernel.now_us - START_US) / 1_000_000:10.6f} {simulation.kernel.process or '-'}: {what}"
        )
    outcome = simulation.run()
    for name, count in sorted(outcome.counts.items()):
        print(f"  {count:6} {name}")
    if outcome.violation and simulation.failure is not None:
        traceback.print_exception(simulation.failure)
    print(_line(outcome))
    return int(bool(outcome.violation))


def _many(seeds: range, steps: int, jobs: int) -> int:
    began = reported = time.monotonic()
    failed: list[int] = []
    counts: Counter[str] = Counter()
    done = 0
    with Pool(jobs) as pool:
        work = [(seed, steps) for seed in seeds]
        outcomes: Iterable[Outcome] = pool.imap_unordered(_run, work, chunksize=4) if jobs > 1 else map(_run, work)
        for outcome in outcomes:
            done += 1
            counts.update(outcome.counts)
            if outcome.violation:
                failed.append(outcome.seed)
                print(_line(outcome), flush=True)
            if time.monotonic() - reported > REPORT_S:
                reported = time.monotonic()
                rate = done / (reported - began) * 60
                print(f"{done} of {len(seeds)} seeds, {rate:.0f} a minute, {len(failed)} failed", flush=True)
    rate = done / max(time.monotonic() - began, 0.001) * 60
    for name, count in sorted(counts.items()):
        print(f"  {count:9} {name}")
    again = f"; replay one: python -m simulator {min(failed)} --steps {steps}" if failed else ""
    print(f"seeds {seeds[0]} to {seeds[-1]}: {len(failed)} failed of {done}, {rate:.0f} a minute{again}")
    return int(bool(failed))


def _run(seed_and_steps: tuple[int, int]) -> Outcome:
    return simulate(*seed_and_steps)


def _line(outcome: Outcome) -> str:
    what = outcome.violation or "every promise was kept"
    return (
        f"seed {outcome.seed}: {what} ({outcome.steps} steps, {outcome.virtual_s:.1f} s of virtual time, "
        f"digest {outcome.digest})"
    )


if __name__ == "__main__":
    sys.exit(main())
