"""The drill's brokers over a scratch store: tracks the primary, restarts killed ones as backups."""

import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase

from legato.drill.disk import Disk
from legato.drill.namespaces import Namespaces
from legato.failpoints import VARIABLE, DrillOrders
from legato.processes.broker_process import BrokerProcess, Role
from legato.processes.child import Child, ProcessError
from legato.processes.scratch import free_ports

WAIT_S = 60.0
POLL_S = 0.02
WATCHDOG_S = 5.0
"""More than a drill holds a loop at a point, and less than it waits for a watchdog."""


@dataclass
class EpochSpan:
    """The begin of a primary's epoch, in seconds of the monotonic clock."""

    broker: str
    epoch: int
    began_s: float
    ended_s: float | None = None


class Pair:
    """A primary and its backups: as many `legato serve` over one store.

    Args:
        directory: for store and logs.
        options: of `legato serve`, besides where it listens and its store.
        environment: variables of all brokers.
        count: how many brokers.
    """

    def __init__(
        self,
        directory: Path,
        options: Sequence[str] = (),
        environment: dict[str, str] | None = None,
        count: int = 2,
    ) -> None:
        self._directory = directory
        self.store = directory / "store"
        self.logs = directory / "logs"
        self.drill_orders = DrillOrders(directory / "drill_orders")
        self.drill_variable = {VARIABLE: str(directory / "drill_orders")}
        self.environment = {**(environment or {}), **self.drill_variable}
        self.environment.setdefault("LEGATO_HA_WATCHDOG_S", str(WATCHDOG_S))
        self.takeovers = 0
        self.ends: set[str] = set()
        """Brokers that are to end by themselves."""
        self.surprises: list[str] = []
        """Ends of brokers that nobody asked for, a sentence each."""
        self.notes: list[str] = []
        """What was odd, and no fault."""
        self.epochs: list[EpochSpan] = []
        self.island: Namespaces | None = None
        """Where the brokers are, if that is a network of their own."""
        self.disk: Disk | None = None
        """Where the store is, if that is a file system of the drill's own."""
        self._lines: queue.SimpleQueue[tuple[Child, bytes | None]] = queue.SimpleQueue()
        self.logs.mkdir(parents=True, exist_ok=True)
        self.brokers = [
            BrokerProcess(
                name,
                port,
                self.store,
                self.logs / f"{name}.log",
                options=options,
                environment=self.environment,
            )
            for name, port in zip(_names(count), free_ports(count), strict=True)
        ]

    @property
    def primary(self) -> BrokerProcess | None:
        """The one that serves, as far as is known: the one of the highest epoch."""
        serving = [broker for broker in self.brokers if broker.role is Role.PRIMARY]
        return max(serving, key=lambda broker: broker.epoch, default=None)

    def move_to_island(self) -> None:
        """Before they start: let the brokers have a network of their own, if that is permitted here."""
        self.island = Namespaces.create(self._directory, len(self.brokers))
        if self.island is None:
            self.notes.append("There are no network namespaces here: a partition cuts off clients, not the backup.")
            return
        # That network ends on this machine: nobody else is in it.
        self.environment["LEGATO_SERVER_INSECURE"] = "true"
        for place, broker in enumerate(self.brokers):
            broker.host = self.island.host(place)
            broker.program = self.island.program(place)

    def move_to_disk(self) -> None:
        """Before they start: let the store have a file system of its own, if that is permitted here."""
        self.disk = Disk.create(self.store)
        if self.disk is None:
            self.notes.append(
                "Mounting is not permitted here: a full disk is a limit on the size of each broker's files, and who is "
                "started meanwhile has none."
            )
            return
        # Nothing but the store's own reserve is left to it.
        self.environment["LEGATO_STORE_FREE_DISK_RESERVE_BYTES"] = "0"

    def announce(self, ports: Sequence[int]) -> None:
        """Brokers that start from now on tell clients that all are at these ports of this machine (CONTRACT E5)."""
        self.environment["LEGATO_HA_ADDRESSES"] = ",".join(f"127.0.0.1:{port}" for port in ports)

    def start(self) -> None:
        """Start the primary, then the backups."""
        for broker in self.brokers:
            self._start(broker)
            self.wait_until(lambda: self.primary is not None, "a primary")
        self.settle()

    def settle(self) -> None:
        """Start what has died, and wait until one is the primary and the others are its backups.

        Raises:
            ProcessError: that does not come to pass.
        """

        def settled() -> bool:
            for broker in self.brokers:
                if broker.role is Role.DEAD:
                    self._start(broker)
            backups = [Role.BACKUP] * (len(self.brokers) - 1)
            return sorted(broker.role for broker in self.brokers) == [*backups, Role.PRIMARY]

        self.wait_until(settled, "a primary and its backups")

    def wait_until(self, reached: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
        """Read what the brokers say until `reached()`.

        Raises:
            ProcessError: it is not, within `timeout_s` seconds.
        """
        deadline = time.monotonic() + timeout_s
        while not reached():
            self.poll()
            if time.monotonic() > deadline:
                raise ProcessError(f"Waited {timeout_s:.0f} s for {what}; the brokers' logs say why.")

    def poll(self) -> None:
        """Take what the brokers said, for a moment at most."""
        try:
            child, line = self._lines.get(timeout=POLL_S)
            while True:
                self._take(child, line)
                child, line = self._lines.get_nowait()
        except queue.Empty:
            pass

    def stop(self) -> None:
        """SIGTERM, the backups first: none must take over from a primary that leaves."""
        for broker in sorted(self.brokers, key=lambda broker: broker.role is Role.PRIMARY):
            if not broker.stop():
                self.surprises.append(f"{broker.name} did not end cleanly on SIGTERM.")

    def end(self) -> None:
        """Leave nothing behind."""
        self.drill_orders.disarm()
        for broker in self.brokers:
            broker.end()
        if self.island is not None:
            self.island.close()
        if self.disk is not None:
            self.disk.bring_home()
            self.disk = None

    def _start(self, broker: BrokerProcess) -> None:
        broker.start(lambda child, line: self._lines.put((child, line)), lambda child: self._lines.put((child, None)))

    def _take(self, child: Child, line: bytes | None) -> None:
        broker = next((broker for broker in self.brokers if broker.is_child(child)), None)
        if broker is None:
            return
        if line is None:
            self._end_epochs(broker.name)
            self._ended(broker)
            return
        served, epoch = broker.role is Role.PRIMARY, broker.epoch
        broker.read(line)
        serves = broker.role is Role.PRIMARY
        if serves and (not served or broker.epoch > epoch):
            # Some epochs are too short for their lines to be read.
            self.takeovers = broker.epoch - 1
            self._end_epochs()
            self.epochs.append(EpochSpan(broker.name, broker.epoch, time.monotonic()))
        elif served and not serves:
            self._end_epochs(broker.name)

    def _end_epochs(self, name: str | None = None) -> None:
        for epoch in self.epochs:
            if epoch.ended_s is None and (name is None or epoch.broker == name):
                epoch.ended_s = time.monotonic()

    def _ended(self, broker: BrokerProcess) -> None:
        """No broker ends by itself: one that another has replaced becomes its backup."""
        if broker.role in (Role.DEAD, Role.STOPPED):
            return
        if broker.name not in self.ends:
            self.surprises.append(f"{broker.name} ended by itself, code {broker.exit_code}: {broker.last_words()}")
        broker.role = Role.DEAD


def _names(count: int) -> list[str]:
    return [f"broker-{letter}" for letter in ascii_lowercase[:count]]
