"""The client's pause when a machine of three is lost: the primary's, and the one whose server leads the log.

Each machine is a broker with a store of its own and a server of the replicated log, killed together; it comes back with
its disks. All are processes of this machine, and share its cores.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.failover import SETTLED_S, Probe
from bench.figures import Goal, interleave, percentile
from bench.harness import finish, finish_pairs, note, options, table, temporary_store
from bench.processes import LEGATO, RUN, Broker, free_port, load
from legato.processes.log_servers import LogServer, LogServers
from legato.replication.nats import NatsSettings, open_log
from legato.testing.log_servers import log_servers

PRIMARY_GOAL_MS = 1_000.0
LEADER_GOAL_MS = 10_000.0
WAIT_S = 60.0
_groups = itertools.count(1)


class Machine:
    """A broker, and the log's server beside it.

    Attributes:
        role: what the broker said last that it is: `active epoch=N`, `backup`, or nothing.
    """

    def __init__(
        self, servers: LogServers, log_server: LogServer, store: Path, group: str, changed: threading.Condition
    ) -> None:
        self.port = free_port()
        self.log_server = log_server
        self.role = ""
        self._store = store
        self._changed = changed
        self._environment = {
            "LEGATO_REPLICATION_SERVERS": servers.url,
            "LEGATO_REPLICATION_GROUP": group,
            "LEGATO_REPLICATION_BESIDE": log_server.name,
            "LEGATO_LEDGER_ENABLED": "false",
        }
        self._broker = self._start()

    def _start(self) -> Broker:
        self.role = ""
        started = Broker(LEGATO, self._store, self.port, self._environment)
        threading.Thread(target=self._follow, args=(started,), daemon=True).start()
        return started

    def _follow(self, started: Broker) -> None:
        assert started.process.stdout is not None
        for line in started.process.stdout:
            with self._changed:
                self.role = line.strip()
                self._changed.notify_all()

    @property
    def epoch(self) -> int:
        """Of which it is the primary; 0 if it is not."""
        return int(self.role.removeprefix("active epoch=")) if self.role.startswith("active") else 0

    def await_role(self, beginning: str) -> None:
        """Block until the broker is in a role that begins so."""
        await_that(self._changed, lambda: self.role.startswith(beginning), f"no broker became {beginning}")

    def lose(self) -> None:
        """It has no power any more."""
        self._broker.process.kill()
        self.log_server.kill()
        self._broker.kill()

    def come_back(self) -> None:
        """It starts again, as a backup."""
        self.log_server.start()
        self.log_server.wait_until_healthy()
        self._broker = self._start()
        self.await_role("backup")

    def stop(self) -> None:
        """End the broker."""
        self._broker.stop()


def await_that(changed: threading.Condition, holds: Callable[[], bool], otherwise: str) -> None:
    """Block until it holds.

    Raises:
        RuntimeError: it does not within a minute.
    """
    with changed:
        if not changed.wait_for(holds, WAIT_S):
            raise RuntimeError(otherwise)


class Group:
    """Three machines, one of which has the primary, and a client at work."""

    def __init__(self, servers: LogServers, base: Path, size: int, waiting: int, seed: int) -> None:
        name = f"bench-machines-{next(_groups)}"
        self._changed = threading.Condition()
        self._random = random.Random(seed)
        self.machines: list[Machine] = []
        self._probe: Probe | None = None
        for log_server in servers.servers:
            store = base / f"{name}-{log_server.name}"
            self.machines.append(Machine(servers, log_server, store, name, self._changed))
            self.machines[-1].await_role("backup" if len(self.machines) > 1 else "active")
        self._log = open_log(NatsSettings(servers.url, name))
        if waiting:
            load("send", self.primary.port, waiting, size, "--address", "waiting", module=RUN)
        hosts = ",".join(f"127.0.0.1:{machine.port}" for machine in self.machines)
        self._probe = Probe(f"amqp://{hosts}", "bench", size)

    @property
    def primary(self) -> Machine:
        """The machine whose broker began the latest epoch."""
        return max(self.machines, key=lambda machine: machine.epoch)

    def stop(self) -> None:
        """End the client, then the brokers, the primary last."""
        if self._probe is not None:
            self._probe.stop()
        for machine in sorted(self.machines, key=lambda machine: machine.epoch):
            machine.stop()
        self._log.close()

    def lose_primary(self) -> float:
        """The primary's machine is lost; returns the client's pause, in milliseconds."""
        self._settle()
        lost, epoch = self.primary, self.primary.epoch
        lost_at = time.monotonic()
        lost.lose()
        await_that(self._changed, lambda: self.primary.epoch > epoch, "no backup took over")
        pause_ms = self._pause_ms(lost_at)
        lost.come_back()
        return pause_ms

    def lose_leader(self) -> float:
        """A backup's machine is lost, whose server leads the log; returns the client's pause, in milliseconds.

        Raises:
            RuntimeError: another broker took over, though the primary was not lost.
        """
        leader, epoch = self._settle(), self.primary.epoch
        lost = next(machine for machine in self.machines if machine.log_server.name == leader)
        lost_at = time.monotonic()
        lost.lose()
        pause_ms = self._pause_ms(lost_at)
        if self.primary.epoch != epoch:
            raise RuntimeError(f"epoch {self.primary.epoch} began, though the primary was not lost")
        lost.come_back()
        return pause_ms

    def _settle(self) -> str | None:
        """Wait until the client works and the log is not led beside the primary; returns who leads it.

        Raises:
            RuntimeError: it still is after a minute.
        """
        deadline = time.monotonic() + WAIT_S
        while (leader := self._log.health().leader) in (None, self.primary.log_server.name):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the log is led by {leader or 'nobody'}: it should be led away from the primary")
            time.sleep(0.05)
        self._await_work()
        time.sleep(self._random.uniform(*SETTLED_S))
        return leader

    def _await_work(self) -> None:
        assert self._probe is not None
        self._probe.await_work_after(time.monotonic())

    def _pause_ms(self, lost_at: float) -> float:
        self._await_work()
        assert self._probe is not None
        return self._probe.gap_s(lost_at) * 1000


@contextmanager
def group(servers: LogServers, base: Path, size: int, waiting: int, seed: int) -> Iterator[Group]:
    """A group with a client, ended afterwards."""
    running = Group(servers, base, size, waiting, seed)
    try:
        yield running
    finally:
        running.stop()


def losses(kind: str, lose: Callable[[], float], count: int) -> list[float]:
    """So many losses, one after the other."""
    found = []
    for number in range(count):
        found.append(lose())
        note(f"{kind} {number + 1}: {found[-1]:.0f} ms")
    return found


def tell(name: str, question: str, pauses: Sequence[float], goal_ms: float) -> None:
    """Report pauses beside their bound, which the longest has to keep."""
    found = {"min": min(pauses), "median": percentile(pauses, 50), "max": max(pauses)}
    result = {
        "figure": round(found["median"], 1),
        "peer": goal_ms,
        "ratio": round(found["max"] / goal_ms, 3),
        **{kind: round(value, 1) for kind, value in found.items()},
        "goal": f"each at most {goal_ms:g} ms",
        "met": found["max"] <= goal_ms,
        "unit": "ms",
        "sides": ["median of the pauses", "bound of the longest"],
    }
    text = table(["ms", *found], [[f"{len(pauses)} losses", *found.values()]])
    finish(name, question, text, result, runs=[round(pause, 1) for pause in pauses])


def main() -> None:
    """Command line."""
    parser = options(__doc__, count=0)
    parser.description = f"{__doc__} --count is ignored; --pairs is of the two groups of --backlog."
    parser.add_argument("--losses", type=int, default=10, help="of the primary's machine, and of the log leader's")
    parser.add_argument("--backlog", type=int, default=0, help="messages that wait in another group, in pairs with one")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with (
        temporary_store() as base,
        log_servers() as servers,
        group(servers, base, given.size, 0, given.seed) as running,
    ):
        tell(
            "machine-lost",
            "the pause a client sees when the machine of the primary is lost, with its server of the log",
            losses("primary's machine", running.lose_primary, given.losses),
            PRIMARY_GOAL_MS,
        )
        tell(
            "leader-lost",
            "the pause a client sees when the machine is lost whose server leads the log, and no broker takes over",
            losses("log leader's machine", running.lose_leader, given.losses),
            LEADER_GOAL_MS,
        )
        if given.backlog:
            note(f"{given.backlog:,} messages are sent to another group")
            with group(servers, base, given.size, given.backlog, given.seed) as full:
                pairs = interleave(full.lose_primary, running.lose_primary, given.pairs)
            finish_pairs(
                "machine-lost-backlog",
                f"the pause when the machine of the primary is lost, with {given.backlog:,} messages waiting",
                (f"{given.backlog:,} waiting", "none waiting"),
                pairs,
                Goal(1.2, at_least=False),
                unit="ms",
                backlog=given.backlog,
            )


if __name__ == "__main__":
    main()
