"""The source of trouble: failures of connections, processes, machines, clocks and the disk, drawn at random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from simulator.brokers import Host
from simulator.disk import Disk
from simulator.history import History
from simulator.kernel import Kernel, Process
from simulator.link_trouble import LinkTrouble, Revocable
from simulator.network import Network, Pipe
from simulator.plan import Plan

BETWEEN_US = (300_000, 1_500_000)
"""From one takeover to the next: enough for clients to come back and to go on."""
STOPPED_US = (10_000, 10_000_000)
FULL_US = (10_000, 2_000_000)
JUMP_US = (-90_000_000, 90_000_000)
"""Less than a run takes to heal, for what was put off by a wrong clock comes by the true one."""

LEAPS_US = tuple(sign * hours * 3_600_000_000 for sign in (1, -1) for hours in (25, 8 * 24))
"""More than outcomes and producers are remembered for, and than flows remember messages."""
AFTER_LEAP_US = (100_000, 4_000_000)
STALLS = {
    "brokers killed",
    "brokers without power",
    "brokers stopped",
    "brokers stopped and fenced",
    "connections fallen silent",
    "connections held back",
    "connections half closed",
    "disks filled",
}
"""After these something may not go on for a while, though nobody is told."""
HELD_US = (50_000, 12_000_000)


class Victim(Protocol):
    """A client's process as trouble sees it."""

    process: Process


class World(Protocol):
    """What trouble sees of a run."""

    plan: Plan
    kernel: Kernel
    history: History
    network: Network
    disk: Disk
    hosts: list[Host]
    rights: Revocable

    def kill_a_client(self, *, quietly: bool) -> None:
        """One of them dies, at once."""

    def a_client(self) -> Process:
        """One of them."""


class Nemesis:
    """Makes trouble in a run, when it is asked to."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.kernel.random
        self._furthest_us = 0
        """How far ahead a clock has ever been."""
        plan = world.plan
        self._links = LinkTrouble(world.kernel, world.history, plan, world.rights, lambda: world.hosts, self._happened)
        kinds: list[tuple[int, Callable[[], None]]] = [
            (33, self._cut),
            (6, self._silence),
            (20, self._kill_broker),
            (10, self._hand_over),
            (10, self._stop_broker),
            (18, self._kill_client),
            (3, self._stop_client),
            (8, self._sleep_through),
            (8 if plan.clocks_jump else 0, self._jump),
            (25 if plan.disk_fills else 0, self._fill),
            (12 if plan.bytes_late else 0, self._hold),
            (4 if plan.bytes_late else 0, self._close_half),
            (25 if plan.clocks_leap else 0, self._leap),
            (40 if plan.links_end else 0, self._links.withdraw),
            (40 if plan.links_end else 0, self._links.cut),
        ]
        self._kinds = [kind for _, kind in kinds]
        self._weights = [weight for weight, _ in kinds]

    def make(self) -> None:
        """Something goes wrong."""
        self._random.choices(self._kinds, self._weights)[0]()

    def end(self) -> None:
        """All is well again."""
        world = self._world
        world.network.calm = world.disk.calm = True
        self._links.end()
        for host in world.hosts:
            # What was put off by a clock that was days ahead comes by none but that.
            host.clock.wrong_by_us = self._furthest_us

    def _happened(self, what: str, *whom: object) -> None:
        if what in STALLS:
            self._world.history.stalled_us = self._world.kernel.now_us
        self._world.history.note("trouble:", what, *whom)
        self._world.history.counts[what] += 1

    def _host(self) -> Host:
        return self._random.choice(self._world.hosts)

    def _pipe(self) -> Pipe | None:
        return self._random.choice(self._world.network.connections) if self._world.network.connections else None

    def _cut(self) -> None:
        if pipe := self._pipe():
            self._happened("connections cut", pipe.process)
            pipe.cut()

    def _silence(self) -> None:
        if pipe := self._pipe():
            self._happened("connections fallen silent", pipe.process)
            pipe.silent = pipe.other.silent = True

    def _kill_broker(self) -> None:
        host, power, quietly = self._host(), self._random.random() < 0.5, self._random.random() < 0.3
        self._happened("brokers killed" if not power else "brokers without power", host.name)
        host.kill(power=power, quietly=quietly)

    def _hand_over(self) -> None:
        host = self._host()
        if host.serving:
            self._happened("switchovers", host.name)
            host.hand_over()

    def _stop_broker(self) -> None:
        host, fenced = self._host(), self._random.random() < 0.5
        self._happened("brokers stopped and fenced" if fenced else "brokers stopped", host.name)
        host.stop_for(self._world.kernel.between_us(*STOPPED_US), lose_lock=fenced)

    def _kill_client(self) -> None:
        self._happened("clients killed")
        self._world.kill_a_client(quietly=self._random.random() < 0.3)

    def _stop_client(self) -> None:
        kernel, process = self._world.kernel, self._world.a_client()
        if process.alive and not process.paused:
            self._happened("clients stopped", process)
            process.paused = True
            kernel.after_for(None, kernel.between_us(*STOPPED_US), kernel.resume, process)

    def _sleep_through(self) -> None:
        """A client is stopped while two brokers die: what others did in between, nobody remembers but the store."""
        kernel, process = self._world.kernel, self._world.a_client()
        if not process.alive or process.paused:
            return
        self._happened("clients that slept through two takeovers", process)
        process.paused = True
        self._kill_primary()
        asleep_us = kernel.between_us(*BETWEEN_US)
        kernel.after_for(None, asleep_us, self._kill_primary)
        kernel.after_for(None, asleep_us + kernel.between_us(*BETWEEN_US), kernel.resume, process)

    def _kill_primary(self) -> None:
        for host in self._world.hosts:
            if host.serving and not self._world.disk.calm:
                self._happened("brokers without power", host.name)
                host.kill(power=True)

    def _jump(self) -> None:
        host = self._host()
        self._happened("clocks jumped", host.name)
        host.clock.wrong_by_us = self._world.kernel.between_us(*JUMP_US)

    def _fill(self) -> None:
        self._happened("disks filled")
        kernel = self._world.kernel
        self._world.disk.full_until_us = kernel.now_us + kernel.between_us(*FULL_US)

    def _hold(self) -> None:
        """The network brings late what it has; its client may have come back elsewhere by then."""
        if pipe := self._pipe():
            ends = self._random.choice([(pipe,), (pipe.other,), (pipe, pipe.other)])
            self._happened("connections held back", pipe.process)
            for end in ends:
                end.hold(self._world.kernel.between_us(*HELD_US))

    def _close_half(self) -> None:
        """One side hears that the other will send no more, and may send on itself."""
        if pipe := self._pipe():
            self._happened("connections half closed", pipe.process)
            self._random.choice([pipe, pipe.other]).close()

    def _leap(self) -> None:
        """The primary's clock is set by more than things are remembered for; soon after the primary dies."""
        kernel = self._world.kernel
        for host in self._world.hosts:
            if host.serving:
                host.clock.wrong_by_us = self._random.choice(LEAPS_US)
                self._furthest_us = max(self._furthest_us, host.clock.wrong_by_us)
                self._happened("clocks leapt", host.name, host.clock.wrong_by_us)
        if self._random.random() < 0.7:
            kernel.after_for(None, kernel.between_us(*AFTER_LEAP_US), self._kill_primary)
