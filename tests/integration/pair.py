"""A primary and a backup, as real processes over one store, for tests."""

import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from legato.demo.brokers import BrokerProcess, Role
from legato.demo.options import choose_ports
from legato.demo.processes import Child

WAIT_S = 30.0


class Pair:
    """Two brokers; lines of both arrive in one queue, so that tests wait for what the processes say."""

    def __init__(self, directory: Path) -> None:
        self.store = directory / "store"
        self.ports = choose_ports(0)
        self._lines: queue.SimpleQueue[tuple[Child, bytes]] = queue.SimpleQueue()
        self.first, self.second = (
            BrokerProcess(name, port, self.store, directory / f"{name}.log")
            for name, port in zip(("broker-a", "broker-b"), self.ports, strict=True)
        )
        self.url = "amqp://" + ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def start(self) -> None:
        """Start the first as the primary, then the second as the backup."""
        self.start_one(self.first)
        self.wait_until(lambda: self.first.role is Role.PRIMARY)
        self.start_one(self.second)
        self.wait_until(lambda: self.second.role is Role.BACKUP)

    def start_one(self, broker: BrokerProcess) -> None:
        """Start one, without waiting."""
        broker.start(lambda child, line: self._lines.put((child, line)), lambda child: None)

    @property
    def primary(self) -> BrokerProcess:
        return next(broker for broker in (self.first, self.second) if broker.role is Role.PRIMARY)

    @property
    def backup(self) -> BrokerProcess:
        return next(broker for broker in (self.first, self.second) if broker.role is Role.BACKUP)

    def kill_primary(self) -> None:
        """SIGKILL; returns when the other one serves."""
        primary, backup = self.primary, self.backup
        primary.kill()
        self.wait_until(lambda: backup.role is Role.PRIMARY)

    def wait_until(self, reached: Callable[[], bool]) -> None:
        """Read what the brokers say until `reached()`."""
        while not reached():
            child, line = self._lines.get(timeout=WAIT_S)
            for broker in (self.first, self.second):
                if broker.is_child(child):
                    broker.read(line)


@contextmanager
def broker_pair(directory: Path) -> Iterator[Pair]:
    """A running pair; both are gone after the block."""
    pair = Pair(directory)
    try:
        pair.start()
        yield pair
    finally:
        pair.second.end()
        pair.first.end()
