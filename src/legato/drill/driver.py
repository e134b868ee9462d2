"""The driver of the Spark job in a drill's load: started, killed with all its processes, and restarted."""

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from legato.drill.spark_job import SparkOrders
from legato.processes.child import Child

NAME = "spark-driver"
KILLED_S = 0.01
AGAIN_S = 2.0
"""A driver that ended by itself is started again so much later, as whoever operates it would."""


class Driver:
    """One Spark job, through all the lives of its driver.

    Args:
        orders: what the job does; without `until_empty`.
        logs: where its log is written.
        environment: variables that are added to ours.
        program: what runs a Python module where the brokers can be reached.
    """

    def __init__(
        self,
        orders: SparkOrders,
        logs: Path,
        environment: Mapping[str, str],
        program: Sequence[str] = (sys.executable, "-m"),
    ) -> None:
        self._orders = orders
        self._log_file = logs / f"{NAME}.log"
        self._environment = environment
        self._program = program
        self._checkpoint = Path(orders.checkpoint)
        self._child: Child | None = None
        self._start_at: float | None = None
        """When the next life begins; None while the driver lives, or is to live no more."""
        self._is_last = False
        """Nobody starts it again when its present life ends."""
        self._batches_before = 0
        self.starts = 0
        self.kills = 0
        self.interrupted = 0
        """Kills in the midst of a batch, which the next life has to repeat."""
        self.failures: list[str] = []
        """Why it ended by itself, a sentence each."""

    # -- lives

    def start(self, *, until_empty: bool = False) -> None:
        """Begin a life."""
        orders = msgspec.structs.replace(self._orders, until_empty=until_empty)
        self._start_at = None
        self._batches_before = self.batches
        self.starts += 1
        self._child = Child(
            NAME,
            ["legato.drill.spark_job", msgspec.json.encode(orders).decode()],
            program=self._program,
            log_file=self._log_file,
            on_line=lambda child, line: None,
            on_end=lambda child: None,
            environment=self._environment,
        )

    def kill(self, late_s: float) -> None:
        """SIGKILL to the driver, its JVM and all of Spark's Python; the next life begins `late_s` seconds later."""
        self.interrupted += self.is_in_batch
        self.kills += 1
        self._end_life()
        self._start_at = time.monotonic() + late_s

    def poll(self) -> None:
        """Start the driver again if it is time, also if it ended by itself."""
        if self._is_last:
            return
        if self._start_at is not None:
            if time.monotonic() >= self._start_at:
                self.start()
        elif self._child is not None and self._child.exit_code is not None:
            self.failures.append(f"exit code {self._child.exit_code}: {self._child.last_words()}")
            self._end_life()
            self._start_at = time.monotonic() + AGAIN_S

    def drain(self) -> None:
        """Begin its last life, which ends once nothing is left to do."""
        self._is_last = True
        self._end_life()
        self.start(until_empty=True)

    def end(self) -> None:
        """Leave no process behind."""
        self._end_life()
        self._start_at = None

    def _end_life(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        # Who is not killed yet may start another one.
        while pids := members_of(child.pid):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(KILLED_S)
        child.kill()

    # -- how it stands

    @property
    def exit_code(self) -> int | None:
        """Of the present life; None while it goes on, or there is none."""
        return None if self._child is None else self._child.exit_code

    @property
    def pids(self) -> list[int]:
        """All processes of its present life."""
        return [] if self._child is None else members_of(self._child.pid)

    @property
    def batches(self) -> int:
        """Batches that the checkpoint says are done."""
        return _last(self._checkpoint / "commits") + 1

    @property
    def is_in_batch(self) -> bool:
        """Whether the checkpoint says what the next batch is, and not that it is done."""
        return _last(self._checkpoint / "offsets") > _last(self._checkpoint / "commits")

    def is_at_work(self) -> bool:
        """Whether its present life has done a batch."""
        return self._child is not None and self._child.exit_code is None and self.batches > self._batches_before

    def has_ended(self) -> bool:
        """Whether its present life is over."""
        return self.exit_code is not None

    def last_words(self) -> str:
        """The last line of its log."""
        return "" if self._child is None else self._child.last_words()


def members_of(session: int) -> list[int]:
    """The living processes of a session, also those in groups of their own."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                # The name in it may have blanks and brackets.
                state, _, _, its = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(its) == session and state not in "ZX":
                    found.append(int(entry.name))
    return found


def _last(directory: Path) -> int:
    """The highest batch that one of the checkpoint's logs has; -1 if it has none."""
    return max((int(path.name) for path in directory.glob("[0-9]*") if path.name.isdecimal()), default=-1)
