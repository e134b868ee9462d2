"""State shared by the clients of one process: totals, and whether a subscription is complete."""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from legato.drill.load import FORWARDS, Client, Work
from legato.drill.messages import is_poisoned
from legato.drill.plan import CLOCK_JUMP_MAX_S
from legato.drill.records import (
    DONE,
    MAYBE,
    STORED,
    TRYING,
    AgainLine,
    Consuming,
    Identity,
    Producing,
    SeenLine,
    SentLine,
    SettledLine,
    read_head,
    read_lines,
)
from legato.drill.reports import Totals

IDLE_S = 1.5
"""A subscription that has everything is listened to for so long, for what should not come."""
DYING_S = 5.0
"""What becomes a dead letter is listened to for so long: there are delays between its deliveries, and on a slow machine
a rollback takes its time."""
PATIENCE_S = CLOCK_JUMP_MAX_S + 20.0
"""What has not come for so long does not come: a delivery that was put off by a wrong clock is late by that much."""


class Counts:
    """Totals of the clients of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, what: str, number: int = 1) -> None:
        """Count `stored`, `seen` or `rolled_back`."""
        with self._lock:
            self._counts[what] += number

    def report(self) -> Totals:
        """The totals so far."""
        counts = self._counts
        return Totals(stored=counts["stored"], seen=counts["seen"], rolled_back=counts["rolled_back"])


class FlowProgress:
    """The subscriptions of this process's consumers: each is fed by producers that end before it does.

    What has arrived is read from the records, so that it counts who else consumes a subscription, in all lives.
    """

    def __init__(self, clients: Sequence[Client], records: Path) -> None:
        self._lock = threading.Lock()
        self._heard_at: dict[str, float] = {}
        self._feeding = Counter(client.to for client in clients if client.work in FORWARDS)
        self._picky = {client.flow for client in clients if client.work is Work.PICKY}
        self._books = _Books(records)

    def heard(self, subscription: str) -> None:
        """Something came."""
        self._heard_at[subscription] = time.monotonic()

    def fed(self, flow: str) -> None:
        """One that forwards to `flow` has ended."""
        with self._lock:
            self._feeding[flow] -= 1
            self._heard_at.clear()

    def complete(self, subscription: str, flow: str) -> bool:
        """Whether no more will come; to be asked once all producers have ended."""
        with self._lock:
            if self._feeding[flow]:
                return False
            idle_s = time.monotonic() - self._heard_at.setdefault(subscription, time.monotonic())
            if idle_s < IDLE_S:
                return False
            if idle_s > PATIENCE_S:
                return True
            missing = self._books.missing(subscription, flow)
        if missing and idle_s < DYING_S:
            return False
        return all(flow in self._picky and is_poisoned(message) for message in missing)

    def stored(self, flow: str) -> set[Identity]:
        """Messages stored in a flow so far, as its producers were told."""
        with self._lock:
            return self._books.missing("", flow)


class _Books:
    """The records of all clients, read incrementally."""

    def __init__(self, records: Path) -> None:
        self._directory = records
        self._heads: dict[Path, Producing | Consuming] = {}
        self._read: defaultdict[Path, int] = defaultdict(int)
        self._stored: defaultdict[str, set[Identity]] = defaultdict(set)
        self._arrived: defaultdict[str, set[Identity]] = defaultdict(set)
        self._tried: defaultdict[Path, set[Identity]] = defaultdict(set)
        """What a client has tried, and was not told of yet."""

    def missing(self, subscription: str, flow: str) -> set[Identity]:
        """Messages that were stored and did not arrive."""
        for file in self._directory.glob("*.records"):
            head = self._heads.get(file) or self._heads.setdefault(file, read_head(file))
            match head:
                case Producing(flow=its) if its == flow:
                    self._add_stored(file, head)
                case Consuming(subscription=its) if its == subscription:
                    self._add_arrived(file, head)
        return self._stored[flow] - self._arrived[subscription]

    def _add_stored(self, file: Path, head: Producing) -> None:
        for line, end in read_lines(file, self._read[file]):
            self._read[file] = end
            if isinstance(line, SentLine) and line.outcome == STORED:
                self._stored[head.flow].add(Identity(head.producer, line.number))

    def _add_arrived(self, file: Path, head: Consuming) -> None:
        arrived = self._arrived[head.subscription]
        for line, end in read_lines(file, self._read[file]):
            self._read[file] = end
            match line:
                case SeenLine(message=message) if not head.told:
                    arrived.add(message)
                case SettledLine(word=word, message=message) if word == TRYING:
                    self._tried[file].add(message)
                case SettledLine(word=word, message=message):
                    self._tried[file].discard(message)
                    if word in (DONE, MAYBE):
                        arrived.add(message)
                case AgainLine():
                    # What it tried when it was killed may not come again; what does is tried again.
                    arrived |= self._tried.pop(file, set())
