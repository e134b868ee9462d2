"""The source of trouble in a run with replicas: clients and their connections, brokers and their disks, the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from simulator.history import History
from simulator.kernel import Process
from simulator.link_trouble import LinkTrouble, Revocable
from simulator.nemesis import JUMP_US, STOPPED_US
from simulator.network import Network, Pipe
from simulator.plan import Plan
from simulator.replicas.hosts import Machine
from simulator.replicas.log_servers import LogServers
from simulator.replicas.log_trouble import LogTrouble
from simulator.replicas.plan import ReplicaPlan
from simulator.replicas.threads import ThreadedKernel

FULL_US = (10_000, 2_000_000)
SLOW_US = (200_000, 5_000_000)


class World(Protocol):
    """What trouble sees of a run."""

    plan: Plan
    replicas: ReplicaPlan
    kernel: ThreadedKernel
    history: History
    network: Network
    machines: list[Machine]
    servers: LogServers
    rights: Revocable

    def kill_a_client(self, *, quietly: bool) -> None:
        """One of them dies, at once."""

    def a_client(self) -> Process:
        """One of them."""


class ReplicaTrouble:
    """Makes trouble in a run, when it is asked to."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._kernel = world.kernel
        self._random = world.kernel.random
        self._network = world.network
        self._history = world.history
        self._machines = world.machines
        plan = world.plan
        self._log = LogTrouble(world.servers, [machine.name for machine in world.machines], self.happened)
        world.servers.letting_in = world.replicas.lets_in
        self._links = LinkTrouble(
            world.kernel, world.history, plan, world.rights, lambda: world.machines, self.happened
        )
        kinds: list[tuple[int, Callable[[], None]]] = [
            (20, self._cut),
            (4, self._silence),
            (16, self._kill_broker),
            (10, self._hand_over),
            (16, self._stop_broker),
            (10, self._kill_a_client),
            (3, self._stop_client),
            (4, self._wipe),
            (2, self._lose_all_power),
            (6, self._slow_disk),
            (4, self._stick_disk),
            (8 if plan.clocks_jump else 2, self._jump),
            (20 if plan.disk_fills else 2, self._fill),
            (40 if plan.links_end else 0, self._links.withdraw),
            (40 if plan.links_end else 0, self._links.cut),
        ]
        self._kinds = [kind for _, kind in kinds]
        self._weights = [weight for weight, _ in kinds]

    def make(self) -> None:
        """Something goes wrong."""
        if self._random.random() < self._world.replicas.log_trouble:
            self._log.make()
        else:
            self._random.choices(self._kinds, self._weights)[0]()

    def end(self) -> None:
        """All is well again."""
        self._log.end()
        self._links.end()
        self._network.calm = True
        for machine in self._machines:
            machine.clock.wrong_by_us = 0
            disk = machine.disk
            disk.full_until_us = disk.stuck_until_us = disk.slow_until_us = 0
            if machine.process.paused:
                self._kernel.resume(machine.process)

    def happened(self, what: str, *whom: object) -> None:
        """Note what went wrong."""
        self._history.stalled_us = self._kernel.now_us
        self._history.note("trouble:", what, *whom)
        self._history.counts[what] += 1

    def _machine(self) -> Machine:
        """One of them; who serves more often than others."""
        serving = [machine for machine in self._machines if machine.serving]
        if serving and self._random.random() < 0.5:
            return self._random.choice(serving)
        return self._random.choice(self._machines)

    def _pipe(self) -> Pipe | None:
        return self._random.choice(self._network.connections) if self._network.connections else None

    def _cut(self) -> None:
        if pipe := self._pipe():
            self.happened("connections cut", pipe.process)
            pipe.cut()

    def _silence(self) -> None:
        if pipe := self._pipe():
            self.happened("connections fallen silent", pipe.process)
            pipe.silent = pipe.other.silent = True

    def _kill_broker(self) -> None:
        machine, power, quietly = self._machine(), self._random.random() < 0.5, self._random.random() < 0.3
        self.happened("brokers killed" if not power else "brokers without power", machine.name)
        machine.kill(power=power, quietly=quietly)

    def _hand_over(self) -> None:
        machine = self._machine()
        if machine.serving:
            self.happened("switchovers", machine.name)
            machine.hand_over()

    def _stop_broker(self) -> None:
        machine = self._machine()
        self.happened("brokers stopped", machine.name)
        machine.stop_for(self._kernel.between_us(*STOPPED_US))

    def _kill_a_client(self) -> None:
        self.happened("clients killed")
        self._world.kill_a_client(quietly=self._random.random() < 0.3)

    def _stop_client(self) -> None:
        process = self._world.a_client()
        if process.alive and not process.paused:
            self.happened("clients stopped", process)
            process.paused = True
            self._kernel.after_for(None, self._kernel.between_us(*STOPPED_US), self._kernel.resume, process)

    def _wipe(self) -> None:
        """A broker loses its disk, while another has what the log has forgotten: an operator has to see to that."""
        machine = self._machine()
        others = [other for other in self._machines if other is not machine]
        if any(other.surely_kept >= self._world.servers.first - 1 for other in others):
            self.happened("brokers wiped", machine.name)
            machine.kill(wiped=True, power=True)

    def _lose_all_power(self) -> None:
        self.happened("power cuts of all brokers")
        for machine in self._machines:
            machine.kill(power=True)

    def _slow_disk(self) -> None:
        machine = self._machine()
        self.happened("disks slow", machine.name)
        machine.disk.slow_until_us = self._kernel.now_us + self._kernel.between_us(*SLOW_US)

    def _stick_disk(self) -> None:
        machine = self._machine()
        self.happened("disks full to the last byte", machine.name)
        machine.disk.stuck_until_us = self._kernel.now_us + self._kernel.between_us(*FULL_US)

    def _fill(self) -> None:
        machine = self._machine()
        self.happened("disks filled", machine.name)
        machine.disk.full_until_us = self._kernel.now_us + self._kernel.between_us(*FULL_US)

    def _jump(self) -> None:
        machine = self._machine()
        self.happened("clocks jumped", machine.name)
        machine.clock.wrong_by_us = self._kernel.between_us(*JUMP_US)
