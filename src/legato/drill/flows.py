"""What the clients of one process share: how far each subscription is, and when it has all that it will get."""

import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

from legato.drill.load import Client, Work
from legato.drill.records import STORED, Identity, Producing, SentLine, read_records
from legato.drill.reports import Totals

IDLE_S = 1.0
"""A subscription that has everything is listened to for so long, for what should not come."""
PATIENCE_S = 20.0
"""What has not come for so long does not come."""


class Counts:
    """What the clients of this process did, together."""

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


class Flows:
    """The subscriptions of this process's consumers; each is fed by producers that end before it does."""

    def __init__(self, clients: list[Client], records: Path) -> None:
        self._records = records
        self._lock = threading.Lock()
        self._arrived: defaultdict[str, set[Identity]] = defaultdict(set)
        self._arrived_at: dict[str, float] = {}
        self._feeding = Counter(client.to for client in clients if client.work is Work.FORWARD)

    def arrived(self, subscription: str, messages: list[Identity]) -> None:
        """These came, and need not come again."""
        if not messages:
            return
        with self._lock:
            self._arrived[subscription].update(messages)
            self._arrived_at[subscription] = time.monotonic()

    def fed(self, flow: str) -> None:
        """One that forwards to `flow` has ended."""
        with self._lock:
            self._feeding[flow] -= 1
            self._arrived_at.clear()

    def complete(self, subscription: str, flow: str) -> bool:
        """Whether no more will come; to be asked once all producers have ended."""
        with self._lock:
            if self._feeding[flow]:
                return False
            idle_s = time.monotonic() - self._arrived_at.setdefault(subscription, time.monotonic())
            if idle_s < IDLE_S:
                return False
            arrived = set(self._arrived[subscription])
        return idle_s > PATIENCE_S or self._stored(flow) <= arrived

    def _stored(self, flow: str) -> set[Identity]:
        stored: set[Identity] = set()
        for file in self._records.glob("*.records"):
            head, lines = read_records(file)
            if isinstance(head, Producing) and head.flow == flow:
                stored.update(
                    Identity(head.producer, line.number)
                    for line in lines
                    if isinstance(line, SentLine) and line.outcome == STORED
                )
        return stored
