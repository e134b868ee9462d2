"""Run seeds: `python -m simulator [SEED] [--replicas] [--seeds N] [--first K] [--jobs J] [--json FILE]`."""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from legato.amqp.engine import batch
from simulator.kernel import START_US
from simulator.plan import EDITION
from simulator.run import Outcome, Simulation
from simulator.seed_runner import Runner

REPORT_S = 10.0


def main(arguments: list[str] | None = None) -> int:
    """Run seeds and say which broke a promise; 0 if none did."""
    parser = argparse.ArgumentParser(allow_abbrev=False, prog="python -m simulator", description=__doc__)
    parser.add_argument("seed", nargs="?", type=int, help="run this seed alone, and say all about it")
    parser.add_argument("--seeds", type=int, default=100, metavar="N", help="how many seeds to run")
    parser.add_argument("--first", type=int, default=1, metavar="K", help="the first of them")
    parser.add_argument("--steps", type=int, metavar="M", help="events before the healing; default: the seed says it")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="processes to run seeds in")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the summary there, as it grows")
    parser.add_argument("--former", action="store_true", help="with SEED: its plan as the first simulator drew it")
    parser.add_argument("--trace", action="store_true", help="with SEED: print everything that happens")
    parser.add_argument("--replicas", action="store_true", help="brokers with disks of their own and a replicated log")
    options = parser.parse_args(arguments)
    if options.replicas and options.former:
        parser.error("--former: the first simulator had no replicas")
    if not batch.tells_runs:
        print("No message is handled in a run: legato.amqp._batch is not compiled, or was before its source changed.")
    if options.seed is not None:
        return _one(_simulation(options), trace=options.trace)
    seeds = range(options.first, options.first + options.seeds)
    return Report(seeds, options.steps, options.json).run(options.jobs, replicas=options.replicas)


def _simulation(options: argparse.Namespace) -> Simulation:
    if options.replicas:
        from simulator.replicas.run import ReplicatedSimulation

        return ReplicatedSimulation(options.seed, options.steps)
    return Simulation(options.seed, options.steps, edition=1 if options.former else EDITION)


def _one(simulation: Simulation, *, trace: bool) -> int:
    if trace:
        simulation.history.trace = lambda what: print(
            f"{(simulation.kernel.now_us - START_US) / 1_000_000:10.6f} {simulation.kernel.process or '-'}: {what}"
        )
    else:
        print(*simulation.plans, sep="\n")
    outcome = simulation.run()
    for name, count in sorted(outcome.counts.items()):
        print(f"  {count:6} {name}")
    if outcome.violation and simulation.failure is not None:
        traceback.print_exception(simulation.failure)
    print(_line(outcome))
    return int(bool(outcome.violation))


class Report:
    """What is said about many runs while they go on, and in the end."""

    def __init__(self, seeds: range, steps: int | None, file: Path | None) -> None:
        self._seeds = seeds
        self._steps = steps
        self._file = file
        self._counts: Counter[str] = Counter()
        self._failed: list[Outcome] = []
        self._done = 0
        self._events = 0
        self._virtual_s = 0.0
        self._began = self._reported = time.monotonic()

    def run(self, jobs: int, *, replicas: bool = False) -> int:
        """Run the seeds; 0 if no promise was broken.

        Args:
            jobs: processes to run them in.
            replicas: the runs are those with a replicated log.
        """
        runner = Runner(self._seeds, self._steps, jobs, lambda outcome: self._heard(runner, outcome), replicas=replicas)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        try:
            runner.run()
        finally:
            self._keep(runner)
            for name, count in sorted(self._counts.items()):
                print(f"  {count:9} {name}")
            print(f"{self._state()}; next: --first {runner.next_seed}")
        return int(bool(self._failed))

    def _heard(self, runner: Runner, outcome: Outcome) -> None:
        self._done += 1
        self._events += outcome.steps
        self._virtual_s += outcome.virtual_s
        self._counts.update(outcome.counts)
        if outcome.violation:
            self._failed.append(outcome)
            print(_line(outcome), flush=True)
        if time.monotonic() - self._reported > REPORT_S:
            self._reported = time.monotonic()
            print(self._state(), flush=True)
            self._keep(runner)

    def _rate(self) -> float:
        return self._done / max(time.monotonic() - self._began, 0.001) * 60

    def _state(self) -> str:
        counts = self._counts
        said = ", ".join(f"{counts[name]} {name}" for name in ("takeovers", "transactions", "failovers"))
        kills = sum(counts[name] for name in ("brokers killed", "brokers without power", "clients killed"))
        return (
            f"{self._done} of {len(self._seeds)} seeds from {self._seeds.start}, {self._rate():.0f} a minute, "
            f"{len(self._failed)} failed; {kills} kills, {said}, {counts['presented']} deliveries checked"
        )

    def _keep(self, runner: Runner) -> None:
        if self._file is None:
            return
        summary: dict[str, Any] = {
            "first": self._seeds.start,
            "seeds": len(self._seeds),
            "done": self._done,
            "next": runner.next_seed,
            "seconds": round(time.monotonic() - self._began, 1),
            "seeds_per_minute": round(self._rate()),
            "events": self._events,
            "virtual_s": round(self._virtual_s),
            "failed": self._failed,
            "counts": dict(sorted(self._counts.items())),
        }
        beside = self._file.with_name(self._file.name + ".new")
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(summary)) + b"\n")
        beside.replace(self._file)


def _line(outcome: Outcome) -> str:
    what = outcome.violation or "every promise was kept"
    return (
        f"seed {outcome.seed}: {what} ({outcome.steps} steps, {outcome.virtual_s:.1f} s of virtual time, "
        f"digest {outcome.digest})"
    )


if __name__ == "__main__":
    sys.exit(main())
