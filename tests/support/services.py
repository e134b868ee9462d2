"""The example services of Celery and FastStream as processes, under brokers that are killed, with an account."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from legato.client import ConnectionFactory, Queue
from legato.testing import BrokerPair

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
DONE_S = 240.0
LOOK_S = 0.02
END_S = 60.0


@dataclass(frozen=True)
class Account:
    """What became of the orders."""

    sent: int
    done: int
    """Orders that were billed."""
    again: int
    """Bills beyond the first of an order: its task ran again because its acknowledgement was lost."""
    left: dict[str, int]
    """What is left in the queues."""
    kills: int

    @property
    def complete(self) -> bool:
        """Whether every order is billed, and nothing is left."""
        return self.done == self.sent and not any(self.left.values())

    def __str__(self) -> str:
        return (
            f"{self.sent} orders sent, {self.done} billed, {self.again} billed again, {self.kills} brokers killed, "
            f"left in queues: {sum(self.left.values())}"
        )


class Service:
    """One of the examples.

    Args:
        name: `celery` or `faststream`.
        directory: for its database and its log.
        pair: the brokers.
    """

    def __init__(self, name: str, directory: Path, pair: BrokerPair) -> None:
        self.directory = directory
        self.database = directory / "bills.db"
        self.log = directory / "service.log"
        self._pair = pair
        self._example = EXAMPLES / f"{name}_orders"
        scheme = "legato://" if name == "celery" else "amqp://"
        url = pair.url.replace("amqp://", scheme)
        self.environment = {**os.environ, "BROKER_URL": url, "ORDERS_DATABASE": str(self.database)}
        if name == "celery":
            self.queues = ["celery", "DLQ.celery"]
            worker = ("-m", "celery", "--workdir", str(self._example), "-A", "orders", "worker", "--concurrency", "2")
            self._command = [sys.executable, *worker, "--loglevel", "INFO"]
            self._ready = "ready."
        else:
            self.queues = ["orders", "bills", "DLQ.orders", "DLQ.bills"]
            self._command = [sys.executable, str(self._example / "orders.py")]
            self._ready = "`File` waiting for messages"

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """The service as a process; ended as an operator ends it."""
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                self._command, env=self.environment, stdout=log, stderr=subprocess.STDOUT, cwd=self.directory
            )
        try:
            deadline = time.monotonic() + DONE_S
            while self._ready not in self.log.read_text():
                assert process.poll() is None, self.log.read_text()
                assert time.monotonic() < deadline, self.log.read_text()
                time.sleep(LOOK_S)
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(END_S) == 0, self.log.read_text()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def order(self, count: int) -> None:
        """Have its other half send orders 1 to `count`, and wait for its end."""
        subprocess.run(self.ordering(count), env=self.environment, cwd=self.directory, check=True)

    def ordering(self, count: int) -> list[str]:
        """The command that orders."""
        return [sys.executable, str(self._example / "orders.py"), str(count)]

    def bills(self) -> Counter[int]:
        """How often each order was billed."""
        if not self.database.exists():
            return Counter()
        with closing(sqlite3.connect(self.database, timeout=30)) as database:
            try:
                return Counter(number for (number,) in database.execute("SELECT number FROM bills"))
            except sqlite3.OperationalError:
                return Counter()

    def wait_for(self, count: int) -> None:
        """Wait until so many orders are billed."""
        deadline = time.monotonic() + DONE_S
        while len(self.bills()) < count:
            assert time.monotonic() < deadline, f"{len(self.bills())} of {count} billed\n{self.log.read_text()}"
            time.sleep(LOOK_S)

    def left(self) -> dict[str, int]:
        """What is in its queues when it has ended."""
        with (
            ConnectionFactory(self._pair.url).create_connection() as connection,
            connection.create_session() as session,
        ):
            connection.start()
            return {name: len(list(session.create_browser(Queue(name)))) for name in self.queues}


def under_kills(name: str, directory: Path, pair: BrokerPair, *, kills: int, orders: int) -> Account:
    """Run an example while the primary is killed again and again, with orders on their way each time."""
    service = Service(name, directory, pair)
    with service.running():
        ordering = subprocess.Popen(service.ordering(orders), env=service.environment, cwd=directory)
        try:
            for kill in range(1, kills + 1):
                # Work is under way at each kill: some is done, and most is not.
                service.wait_for(kill * orders // (kills + 2))
                pair.fail_over()
            assert ordering.wait(DONE_S) == 0
        finally:
            if ordering.poll() is None:
                ordering.kill()
                ordering.wait()
        service.wait_for(orders)
    bills = service.bills()
    return Account(orders, len(bills), sum(bills.values()) - len(bills), service.left(), kills)
