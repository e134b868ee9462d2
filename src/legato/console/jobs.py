"""Jobs: moves of many dead letters, at a rate, in the background; a page shows how far they are and can stop them."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence

from legato.administration.dead_letters import MOVED_AT_ONCE_MAX, still_there
from legato.administration.letter_names import batches, selector_of
from legato.console.broker_link import BrokerLink, Unanswered
from legato.console.dead_letter_index import Entry, Index
from legato.errors import JMSError

KEPT_MAX = 8
"""Jobs that are over and still shown."""
RUNNING_MAX = 16
"""Jobs of one user that are not over."""
ATTEMPTS_MAX = 10
"""Of a batch that the broker does not answer, as in a takeover."""
AGAIN_AFTER_S = 3.0


class MoveJob:
    """Moves dead letters of one queue, some with each request: none is in two places, or in none.

    Args:
        verb: what is done to them, as `reissued`.
        to: where they go; empty: each to where it came from.
        per_second: at most so many; 0: as many as the broker moves.
        properties: that they get, as JSON text; empty: none.

    Attributes:
        link: by which it moves them.
        moved, asked, total: how many were moved, of how many the broker was asked, and how many there are.
        there: that were not moved and are in their queue still.
        error: why it ended early; empty if it did not.
    """

    def __init__(
        self,
        link: BrokerLink,
        index: Index,
        entries: Sequence[Entry],
        verb: str,
        *,
        to: str = "",
        per_second: float = 0.0,
        properties: str = "",
    ) -> None:
        self.link, self._index, self._entries = link, index, entries
        self.verb, self.per_second, self.queue = verb, per_second, index.queue
        self._to, self._properties = to, properties
        self.id = 0
        self.total, self.asked, self.moved, self.there = len(entries), 0, 0, 0
        self.error = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="move dead letters", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Wait until it is over, at most so long."""
        self._thread.join(timeout_s)

    def stop(self) -> None:
        """Move no more."""
        self._stop.set()

    @property
    def is_running(self) -> bool:
        """Whether it is not over."""
        return self._thread.is_alive()

    @property
    def sentence(self) -> str:
        """What it did so far."""
        done = f"{self.moved:,} of {self.total:,} dead letters of {self.queue} {self.verb}"
        if self.is_running:
            return done
        gone = max(self.asked - self.moved - self.there, 0)
        if self.error:
            return f"{done}; then: {self.error}"
        if self.asked < self.total:
            return f"{done}; then it was stopped"
        told = f"; {gone:,} were gone already" if gone else ""
        if self.there:
            told += f"; {self.there:,} are there still: somebody holds them, or there is no room where they should go"
        return done + told

    def _run(self) -> None:
        at_once = MOVED_AT_ONCE_MAX if not self.per_second else max(1, min(MOVED_AT_ONCE_MAX, int(self.per_second)))
        began_s = time.monotonic()
        targets: dict[str, list[Entry]] = {}
        for entry in self._entries:
            targets.setdefault(self._to or entry.origin, []).append(entry)
        try:
            for to, group in targets.items():
                for batch in batches(group, at_once):
                    if self.per_second:
                        self._stop.wait(max(began_s + self.asked / self.per_second - time.monotonic(), 0.0))
                    if self._stop.is_set():
                        return
                    self._move(to, batch)
        except JMSError as error:
            self.error = str(error)

    def _move(self, to: str, batch: list[Entry]) -> None:
        """Move a batch; ask again if nobody knows what became of it: what was moved is not selected any more."""
        unsure, moved = False, 0
        there: set[str] = set()
        for attempt in itertools.count(1):
            try:
                moved, there = self._ask(to, batch)
                break
            except Unanswered:
                unsure = True
                if attempt == ATTEMPTS_MAX or self._stop.wait(AGAIN_AFTER_S):
                    raise
        self.asked += len(batch)
        # What an attempt that was not answered moved is here no longer.
        self.moved += len(batch) - len(there) if unsure else moved
        self.there += len(there)
        self._index.remove([entry.name for entry in batch if entry.name not in there])

    def _ask(self, to: str, batch: list[Entry]) -> tuple[int, set[str]]:
        """How many the broker moves, and the names of those that are there still."""
        arguments: dict[str, str | float] = {"properties": self._properties} if self._properties else {}
        # With a limit the broker looks no further than the last of them.
        done = self.link.request(
            "move", "queue", self.queue, to=to, selector=selector_of(batch), limit=len(batch), **arguments
        )
        moved = int(done["moved"])
        if moved == len(batch):
            return moved, set()
        try:
            return moved, still_there(self.link.connection(), self.queue, batch)
        except JMSError as error:
            raise Unanswered(str(error)) from error


class Jobs:
    """The jobs of one user, those that are over too, for a while."""

    def __init__(self) -> None:
        self._jobs: list[MoveJob] = []
        self._ids = itertools.count(1)

    def begin(self, job: MoveJob) -> None:
        """Start a job, and show it from now on.

        Raises:
            JMSError: too many are not over.
        """
        if sum(each.is_running for each in self._jobs) >= RUNNING_MAX:
            raise JMSError(
                f"Nothing was begun: {RUNNING_MAX} moves are not over yet. Wait for one of them, or stop it."
            )
        job.id = next(self._ids)
        over = [each for each in self._jobs if not each.is_running]
        for each in over[: max(0, len(over) - KEPT_MAX + 1)]:
            self._jobs.remove(each)
        self._jobs.append(job)
        job.start()

    def all(self) -> list[MoveJob]:
        """The youngest first."""
        return self._jobs[::-1]

    def find(self, id: int) -> MoveJob | None:
        """A job by its number."""
        return next((job for job in self._jobs if job.id == id), None)

    @property
    def running(self) -> bool:
        """Whether one is not over."""
        return any(job.is_running for job in self._jobs)

    def running_by(self, link: BrokerLink) -> bool:
        """Whether one is not over that goes by a link."""
        return any(job.is_running and job.link is link for job in self._jobs)

    def stop(self) -> None:
        """Stop all."""
        for job in self._jobs:
            job.stop()
