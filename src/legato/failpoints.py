"""Failpoints: named places in the code where a drill can strike. Inactive outside of a drill.

`legato drill` names a directory in `LEGATO_DRILL` and writes into its file `armed` the point that it wants reached.
Whoever comes there first takes that file away, writes the number of its process into `reached`, and waits until the
drill has removed that.
"""

import os
import re
import time
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

VARIABLE = "LEGATO_DRILL"
WAIT_MAX_S = 30.0
"""A process whose drill has died goes on after so long."""
STUCK_MAX_S = 180.0
"""A loop that nobody ends turns again after so long, if it comes to look at the time."""
POLL_S = 0.001


class Point(StrEnum):
    """A failpoint of brokers and clients."""

    BEFORE_COMMIT = "before-commit"
    BETWEEN_COMMIT_AND_CONFIRM = "between-commit-and-confirm"
    BETWEEN_ACKNOWLEDGE_AND_COMMIT = "between-acknowledge-and-commit"
    BETWEEN_ACKNOWLEDGED_AND_CONFIRM = "between-acknowledged-and-confirm"
    BETWEEN_DISCHARGE_AND_COMMIT = "between-discharge-and-commit"
    BETWEEN_COMMIT_AND_OUTCOME = "between-commit-and-outcome"
    DURING_LARGE_MESSAGE = "during-large-message"
    DURING_CLAIM = "during-claim"
    DURING_LEDGER_EXPORT = "during-ledger-export"
    DURING_TAKEOVER = "during-takeover"
    BETWEEN_SEND_AND_CONFIRM = "between-send-and-confirm"
    BETWEEN_RECEIVE_AND_ACKNOWLEDGE = "between-receive-and-acknowledge"
    BETWEEN_DECLARE_AND_DISCHARGE = "between-declare-and-discharge"
    BETWEEN_SEND_AND_COMMIT = "between-send-and-commit"


class FlowPoint(StrEnum):
    """A failpoint of flow workers (CONTRACT D6)."""

    BEFORE_DATABASE_COMMIT = "before-database-commit"
    BETWEEN_DATABASE_COMMIT_AND_MESSAGING_COMMIT = "between-database-commit-and-messaging-commit"
    BETWEEN_SEND_AND_MESSAGING_COMMIT = "between-send-and-messaging-commit"
    BETWEEN_MESSAGING_COMMIT_AND_CLEANING = "between-messaging-commit-and-cleaning"


class SinkPoint(StrEnum):
    """A failpoint of a Spark query that publishes its batches."""

    BETWEEN_STAGE_AND_PUBLISH = "between-stage-and-publish"
    BETWEEN_PUBLISH_AND_COMMIT = "between-publish-and-commit"


class ReplicaPoint(StrEnum):
    """A failpoint of brokers with a replicated log; only what clients asked for is held there."""

    BETWEEN_PREPARE_AND_APPEND = "between-prepare-and-append"
    """A primary has applied a commit in an open transaction; nobody else has heard of it."""
    BETWEEN_APPEND_AND_APPLY = "between-append-and-apply"
    """A commit is in the log; the primary's store does not have it yet."""
    BETWEEN_APPLY_AND_CONFIRM = "between-apply-and-confirm"
    """A commit is in the log and in the primary's store; who asked for it is not told yet."""
    DURING_REPLICA_APPLY = "during-replica-apply"
    """A backup has applied a commit of the log in an open transaction."""


AnyPoint = Point | FlowPoint | SinkPoint | ReplicaPoint


class Stuck(StrEnum):
    """The ways in which an event loop can hang."""

    WAITING = "waiting"
    BUSY = "busy"


class DrillOrders:
    """The drill's orders to its processes: files in one directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._armed = directory / "armed"
        self._reached = directory / "reached"
        self._stuck = directory / "stuck"
        self._numbers = {"delay_ms": directory / "delay_ms", "clock_s": directory / "clock_s"}

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] | None = None) -> "DrillOrders | None":
        """The orders for this process; None outside of a drill."""
        directory = (os.environ if environment is None else environment).get(VARIABLE)
        return cls(Path(directory)) if directory else None

    # -- for the drill

    def arm(self, point: AnyPoint) -> None:
        """The next process that comes to `point` is held there."""
        partial = self._armed.with_suffix(".partial")
        partial.write_text(point)
        partial.rename(self._armed)

    def disarm(self) -> None:
        """Hold nobody any more, and let go who is held."""
        self._armed.unlink(missing_ok=True)
        self._reached.unlink(missing_ok=True)

    @property
    def reached(self) -> bool:
        """Whether somebody is held."""
        return self.holder is not None

    @property
    def holder(self) -> int | None:
        """The number of the process that is held; None if none is."""
        try:
            return int(self._reached.read_text())
        except FileNotFoundError:
            return None

    def stick(self, how: "Stuck") -> None:
        """The loop of the next primary that looks does not turn any more."""
        partial = self._stuck.with_suffix(".partial")
        partial.write_text(how)
        partial.rename(self._stuck)

    def set_delay(self, milliseconds: float) -> None:
        """How long every commit takes in addition."""
        self._write("delay_ms", milliseconds)

    def set_clock(self, seconds: float) -> None:
        """By how much the broker's wall clock is wrong; monotonic clocks never are."""
        self._write("clock_s", seconds)

    # -- for those that are drilled

    def hit(self, point: AnyPoint) -> None:
        """The process is at `point`: it is held there if the drill wants so."""
        mine = self._armed.with_suffix(f".{os.getpid()}")
        try:
            if self._armed.read_text() != point:
                return
            # Only one process can take it away.
            self._armed.rename(mine)
        except FileNotFoundError:
            return
        mine.write_text(str(os.getpid()))
        mine.rename(self._reached)
        deadline = time.monotonic() + WAIT_MAX_S
        while self._reached.exists() and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def may_stick(self) -> None:
        """This is the loop of a primary: if the drill wants so, it does not turn any more."""
        mine = self._stuck.with_suffix(f".{os.getpid()}")
        try:
            self._stuck.rename(mine)
        except FileNotFoundError:
            return
        how = Stuck(mine.read_text())
        mine.unlink()
        deadline = time.monotonic() + STUCK_MAX_S
        while time.monotonic() < deadline:
            if how is Stuck.BUSY:
                # The interpreter does not let go in here: no other thread of Python's runs meanwhile.
                re.match("(a+)+$", "a" * 48 + "b")
            else:
                time.sleep(POLL_S)

    @property
    def delay_s(self) -> float:
        """Delay of every commit."""
        return self._read("delay_ms") / 1000

    @property
    def clock_offset_us(self) -> int:
        """Offset of the wall clock."""
        return round(self._read("clock_s") * 1_000_000)

    def _write(self, name: str, value: float) -> None:
        path = self._numbers[name]
        partial = path.with_suffix(".partial")
        partial.write_text(str(value))
        partial.rename(path)

    def _read(self, name: str) -> float:
        try:
            return float(self._numbers[name].read_text())
        except FileNotFoundError:
            return 0.0
