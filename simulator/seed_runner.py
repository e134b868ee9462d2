"""Runner of many seeds, in worker processes that are replaced at intervals: leaks and crashes stay in one worker."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable
from multiprocessing import Process, connection

import msgspec

from simulator.run import Outcome, simulate

CHUNK_SEEDS = 250
"""A process runs so many seeds at most."""
COLLECTED_EVERY_STEPS = 400_000
"""Each of some seventy runs leaves 2 MB; to collect after every seventh took a sixth of the time."""
CPU_MAX_S = 120
"""A run that takes longer than this of a processor's time never ends."""


class RunawayError(RuntimeError):
    """A run that does not end."""


class Garbage:
    """The collector is off while runs go on, for they are quicker so, and collects between them."""

    def __init__(self) -> None:
        gc.collect()
        gc.freeze()
        gc.disable()
        self._steps = 0

    def ran(self, outcome: Outcome) -> None:
        """A run is over."""
        self._steps += outcome.steps
        if self._steps > COLLECTED_EVERY_STEPS:
            self._steps = 0
            gc.collect()


class Worker:
    """A process that runs some seeds, one after the other.

    Attributes:
        at: the seed that it runs now, or the one after its last.
    """

    def __init__(self, seeds: range, steps: int | None, *, replicas: bool) -> None:
        self.seeds = seeds
        self.at = seeds.start
        self.outcomes, theirs = connection.Pipe(duplex=False)
        self._process = Process(target=_work, args=(seeds, steps, theirs, replicas), daemon=True)
        self._process.start()
        theirs.close()

    def next_outcome(self) -> Outcome | None:
        """Wait for the next; None if there are no more."""
        if self.at == self.seeds.stop:
            self.stop()
            return None
        try:
            outcome = msgspec.msgpack.decode(self.outcomes.recv_bytes(), type=Outcome)
        except EOFError:
            self._process.join()
            why = f"it broke: the process ended with {self._process.exitcode}"
            outcome = Outcome(self.at, 0, why, {}, 0.0, "")
            self.outcomes.close()
        self.at += 1
        return outcome

    @property
    def died(self) -> bool:
        """It ended before its time."""
        return self.outcomes.closed

    def stop(self) -> None:
        """End it, if it has not ended."""
        self._process.terminate()
        self._process.join()
        if not self.outcomes.closed:
            self.outcomes.close()


class Runner:
    """Runs seeds in `jobs` processes; `told` hears of each outcome as it comes.

    Args:
        replicas: the runs are those with a replicated log.
    """

    def __init__(
        self, seeds: range, steps: int | None, jobs: int, told: Callable[[Outcome], None], *, replicas: bool = False
    ) -> None:
        self._seeds = seeds
        self._steps = steps
        self._replicas = replicas
        self._jobs = jobs
        self._told = told
        self._chunk = min(CHUNK_SEEDS, max(len(seeds) // (4 * jobs), 1))
        self._workers: list[Worker] = []

    @property
    def next_seed(self) -> int:
        """All seeds before this one were run."""
        return min([worker.at for worker in self._workers], default=self._seeds.start)

    def run(self) -> None:
        """Run them all; what is under way is ended if this is."""
        try:
            while self._seeds or self._workers:
                while self._seeds and len(self._workers) < self._jobs:
                    self._begin(self._take())
                ready = connection.wait([worker.outcomes for worker in self._workers])
                for worker in [worker for worker in self._workers if worker.outcomes in ready]:
                    self._hear(worker)
        finally:
            for worker in self._workers:
                worker.stop()

    def _take(self) -> range:
        chunk, self._seeds = self._seeds[: self._chunk], self._seeds[self._chunk :]
        return chunk

    def _begin(self, seeds: range) -> None:
        self._workers.append(Worker(seeds, self._steps, replicas=self._replicas))

    def _hear(self, worker: Worker) -> None:
        outcome = worker.next_outcome()
        if outcome is None:
            self._workers.remove(worker)
            return
        if worker.died:
            self._workers.remove(worker)
            if rest := range(worker.at, worker.seeds.stop):
                self._begin(rest)
        self._told(outcome)


def _work(seeds: range, steps: int | None, outcomes: connection.Connection, replicas: bool) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, _runaway)
    run: Callable[[int, int | None], Outcome] = simulate
    if replicas:  # Only these need greenlet.
        from simulator.replicas.run import simulate as run
    garbage = Garbage()
    for seed in seeds:
        signal.setitimer(signal.ITIMER_PROF, CPU_MAX_S)
        outcome = run(seed, steps)
        signal.setitimer(signal.ITIMER_PROF, 0)
        garbage.ran(outcome)
        outcomes.send_bytes(msgspec.msgpack.encode(outcome))
    outcomes.close()
    os._exit(0)


def _runaway(_signal: int, _frame: object) -> None:
    raise RunawayError(f"it took more than {CPU_MAX_S} s of a processor's time")
