"""A pair of brokers over a scratch store, as real processes that a test or script can kill."""

from __future__ import annotations

import queue
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from legato.failpoints import VARIABLE, DrillOrders, Point
from legato.ha.members import list_members
from legato.processes.broker_process import BrokerProcess, Role
from legato.processes.child import Child, ProcessError
from legato.processes.scratch import choose_ports

LOOK_EVERY_S = 0.01
WAIT_S = 60.0
"""The longest that a broker may take to start or to take over, on a machine with much else to do."""


class BrokerPair:
    """Two brokers over one store; either may be killed and started again. `broker_pair()` makes one that runs.

    Args:
        directory: for the store and the logs.
        options: of `legato serve`, for both.
        environment: variables for both, such as `LEGATO_HA_HEARTBEAT_INTERVAL_S`.
        log_url: the servers of a replicated log, as those of `log_servers()`: each broker then has a store of its own,
            and both are a new group of that log. Empty for one store.
    """

    def __init__(
        self,
        directory: Path,
        *,
        options: Sequence[str] = ("--no-ledger",),
        environment: Mapping[str, str] | None = None,
        log_url: str = "",
    ) -> None:
        names = ("broker-a", "broker-b")
        self._stores = {name: directory / (f"store-{name}" if log_url else "store") for name in names}
        if log_url:
            options = (*options, "--replicate", log_url, "--group", f"pair-{uuid4()}")
        self.ports = choose_ports(0)
        self._lines: queue.SimpleQueue[tuple[Child, bytes | None]] = queue.SimpleQueue()
        # The kernel ends a child together with the thread that started it: this thread lives as long as the pair.
        self._starter = ThreadPoolExecutor(1, "start brokers")
        self._drill_orders = DrillOrders(directory / "drill_orders")
        environment = {**(environment or {}), VARIABLE: str(directory / "drill_orders")}
        self._lives = 0
        self._brokers = [
            BrokerProcess(name, port, store, directory / f"{name}.log", options=options, environment=environment)
            for (name, store), port in zip(self._stores.items(), self.ports, strict=True)
        ]

    @property
    def store(self) -> Path:
        """The store of both; with a replicated log, that of the present primary.

        Raises:
            ProcessError: each has its own, and neither serves.
        """
        stores = set(self._stores.values())
        return stores.pop() if len(stores) == 1 else self._stores[self.primary.name]

    @property
    def url(self) -> str:
        """Names both brokers, for clients; the present primary first."""
        primary_first = sorted(self._brokers, key=lambda broker: broker.role is not Role.PRIMARY)
        return "amqp://" + ",".join(f"127.0.0.1:{broker.port}" for broker in primary_first)

    @property
    def primary(self) -> BrokerProcess:
        """The one that serves.

        Raises:
            ProcessError: neither does.
        """
        return self._one_that_is(Role.PRIMARY)

    @property
    def backup(self) -> BrokerProcess:
        """The one that waits.

        Raises:
            ProcessError: neither does.
        """
        return self._one_that_is(Role.BACKUP)

    def start(self) -> None:
        """Start the first as the primary, then the second as its backup."""
        for broker, role in zip(self._brokers, (Role.PRIMARY, Role.BACKUP), strict=True):
            self._start(broker)
            self._wait_until(lambda broker=broker, role=role: broker.role is role)  # type: ignore[misc]

    def kill_primary(self) -> None:
        """SIGKILL; returns when the backup serves."""
        primary, backup = self.primary, self.backup
        primary.kill()
        self._wait_until(lambda: backup.role is Role.PRIMARY)

    def shut_down_primary(self) -> None:
        """SIGTERM, as an operator does; returns when the backup serves."""
        primary, backup = self.primary, self.backup
        primary.stop()
        self._wait_until(lambda: backup.role is Role.PRIMARY)

    def pause_primary(self) -> None:
        """SIGSTOP: it is there, holds its lock, and does nothing."""
        self.primary.send_signal(signal.SIGSTOP)

    def continue_primary(self) -> None:
        """SIGCONT, after `pause_primary()`."""
        self.primary.send_signal(signal.SIGCONT)

    def wait_for_backup(self, role: str) -> None:
        """Wait until the backup says of itself that it is `backup`, or `seeking`: it tries lock and primary in turn.

        Raises:
            ProcessError: it does not for a minute.
        """
        deadline = time.monotonic() + WAIT_S
        backup = self.backup
        store = self._stores[backup.name]
        while role not in {member.role for member in list_members(store) if member.pid == backup.pid}:
            if time.monotonic() > deadline:
                raise ProcessError(f"The backup is not {role}: {self._roles()}.")
            time.sleep(LOOK_EVERY_S)

    def restart(self) -> None:
        """Start the one that died; returns when it is the backup of the other (CONTRACT B3)."""
        dead = next(broker for broker in self._brokers if broker.role in (Role.DEAD, Role.STOPPED))
        self._start(dead)
        self._wait_until(lambda: dead.role in (Role.BACKUP, Role.PRIMARY))

    def fail_over(self) -> None:
        """Kill the primary and start it again: afterwards the roles are swapped."""
        self.kill_primary()
        self.restart()

    @contextmanager
    def failing_over_at(self, point: Point | str) -> Iterator[None]:
        """While the block runs, `fail_over()` happens exactly when the primary comes to a point for the first time.

        Args:
            point: such as `between-commit-and-confirm`; `legato drill --list` shows all.

        Raises:
            ProcessError: at the end of the block, if the primary has not come to it.
        """
        self._drill_orders.arm(Point(point))
        over = threading.Event()
        with ThreadPoolExecutor(1, "fail over") as executor:
            failing_over = executor.submit(self._fail_over_when_held, point, over)
            try:
                yield
            finally:
                over.set()
                failing_over.result()

    def _fail_over_when_held(self, point: str, over: threading.Event) -> None:
        while not self._drill_orders.reached:
            if over.wait(LOOK_EVERY_S) and not self._drill_orders.reached:
                self._drill_orders.disarm()
                raise ProcessError(f"The primary did not come to {point}.")
        primary, backup = self.primary, self.backup
        primary.kill()
        self._drill_orders.disarm()
        self._wait_until(lambda: backup.role is Role.PRIMARY)
        self.restart()

    def end(self) -> None:
        """Kill both."""
        for broker in sorted(self._brokers, key=lambda broker: broker.role is Role.PRIMARY):
            broker.end()
        while self._lives:
            self._read()
        self._starter.shutdown()

    def _one_that_is(self, role: Role) -> BrokerProcess:
        for broker in self._brokers:
            if broker.role is role:
                return broker
        raise ProcessError(f"No broker is the {role}: {self._roles()}.")

    def _roles(self) -> str:
        return ", ".join(f"{broker.name} is {broker.role}" for broker in self._brokers)

    def _start(self, broker: BrokerProcess) -> None:
        def say(child: Child, line: bytes | None = None) -> None:
            self._lines.put((child, line))

        self._starter.submit(broker.start, say, say).result()
        self._lives += 1

    def _wait_until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self._read()

    def _read(self) -> None:
        """Take note of one line, or of one end."""
        try:
            child, line = self._lines.get(timeout=WAIT_S)
        except queue.Empty:
            raise ProcessError(f"The brokers did not answer for {WAIT_S:.0f} s: {self._roles()}.") from None
        self._lives -= line is None
        for broker in self._brokers:
            if not broker.is_child(child):
                continue
            if line is None:
                broker.ended()
            else:
                broker.read(line)


@contextmanager
def broker_pair(
    directory: Path | None = None,
    *,
    options: Sequence[str] = ("--no-ledger",),
    environment: Mapping[str, str] | None = None,
    log_url: str = "",
) -> Iterator[BrokerPair]:
    """A primary and a backup for the time of a block; both are gone after it.

    Args:
        directory: for the store and the logs; None for one that is removed in the end.
        options: of `legato serve`, for both.
        environment: variables for both, such as `LEGATO_HA_HEARTBEAT_INTERVAL_S`.
        log_url: the servers of a replicated log; see `BrokerPair`.
    """
    with tempfile.TemporaryDirectory(prefix="legato-") as scratch:
        pair = BrokerPair(directory or Path(scratch), options=options, environment=environment, log_url=log_url)
        try:
            pair.start()
            yield pair
        finally:
            pair.end()
