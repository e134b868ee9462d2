"""One run with replicas from one seed: brokers with disks of their own over one log, clients and trouble; checks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from legato.core.invariants import violations
from legato.replication import arbiter
from legato.server.messages import commits
from legato.store.writer import GroupWriter
from simulator import run
from simulator.actor import wants
from simulator.history import History
from simulator.network import Network
from simulator.plan import EDITION
from simulator.record import ViolationError
from simulator.replicas.cables import Cables
from simulator.replicas.disks import Kept, Truth, content
from simulator.replicas.hosts import Machine
from simulator.replicas.log_servers import SERVERS, LogServers
from simulator.replicas.patches import threads_installed
from simulator.replicas.plan import GROUP, draw_replicas, draw_run
from simulator.replicas.threads import ThreadedKernel
from simulator.replicas.trouble import ReplicaTrouble
from simulator.run import Client, Outcome, Simulation

BROKERS = ("alpha:5672", "beta:5672", "gamma:5672")
STEPS_FOR_EACH = 4
"""Threads, heartbeats and the log's servers take so many steps where a run without a log takes one."""
MORE_TROUBLE = 2
"""Than in such a run: there is more that may go wrong."""
TAKE_S = 0.1
"""A follower looks up so often when nothing comes: more often, as in the product, most of a run would be that."""
CAUGHT_UP_US = 60_000_000


class ReplicatedSimulation(Simulation):
    """A run as it goes on."""

    kernel: ThreadedKernel

    def __init__(self, seed: int, steps: int | None = None, *, edition: int = EDITION) -> None:
        super().__init__(seed, steps, edition=edition)
        self.plan = draw_run(seed, steps, edition=edition)
        self.replicas = draw_replicas(seed)
        self.kernel = ThreadedKernel(seed)
        self.random = self.kernel.random
        self.history = History(lambda: self.kernel.now_us, wants, self.plan)
        self.network = Network(self.kernel)
        self.truth = Truth(self.history, GROUP)
        self.disk = self.truth  # type: ignore[assignment]
        self.cables = Cables(self.kernel)
        self.machines: list[Machine] = []
        self.serving_epoch = 0
        """The newest in which a broker has begun to serve."""

    @property
    def plans(self) -> list[Any]:
        """See `Simulation.plans`."""
        return [self.plan, self.replicas]

    @contextmanager
    def _papers(self) -> Iterator[None]:
        """What waits in threads waits in virtual time; nothing is written beside the stores."""
        uri = run.URI.replace(",".join(run.HOSTS), ",".join(BROKERS[: self.replicas.brokers]))
        with (
            threads_installed(self.kernel),
            patch.object(commits, "GroupWriter", GroupWriter),
            patch.object(arbiter, "TAKE_S", TAKE_S),
            patch.object(run, "URI", uri),
        ):
            yield

    def _live(self) -> None:
        self.servers = LogServers(
            self.kernel, self.cables, self.truth.on_message, self.replicas.message_bytes_max, SERVERS
        )
        self.servers.on_slow_append = self._note_slow
        for name, beside in zip(BROKERS[: self.replicas.brokers], SERVERS, strict=False):
            self.machines.append(
                Machine(
                    self.kernel,
                    self.network,
                    self.servers,
                    name,
                    beside,
                    self.replicas,
                    self._configure,
                    self._happened,
                    self._copy_of_another,
                    self,
                )
            )
        for machine in self.machines:
            machine.machines = {other.name: other for other in self.machines}
        self.hosts = self.machines  # type: ignore[assignment]
        trouble = ReplicaTrouble(self)
        self._begin_clients()
        chance, steps, kernel = self.random.random, self.plan.steps * STEPS_FOR_EACH, self.kernel
        probability = self.plan.trouble * MORE_TROUBLE / STEPS_FOR_EACH
        while kernel.steps < steps:
            if chance() < probability:
                trouble.make()
            self._step()
        trouble.end()

    def _begin_clients(self) -> None:
        self.clients = [
            Client(kind, number, has_id=kind == "subscribe_alone", contract=contract)
            for number, (kind, contract) in enumerate(zip(self.plan.kinds, self.plan.contracts, strict=True))
        ]
        for client in self.clients:
            self._begin(client)

    def _note_slow(self) -> None:
        self.history.slow_us = self.kernel.now_us

    def _happened(self, what: str, *whom: object) -> None:
        self.history.note("replicas:", what, *whom)
        self.history.counts[what] += 1

    # -- the checks

    def began_to_serve(self, epoch: int) -> None:
        """See `hosts.World`."""
        self.serving_epoch = max(self.serving_epoch, epoch)

    def answered(self, name: str, epoch: int) -> None:
        """See `hosts.World`."""
        if epoch < self.serving_epoch:
            raise self.history.broken(
                f"R8: {name} answers in epoch {epoch}, and another serves in epoch {self.serving_epoch}"
            )

    def _look(self) -> None:
        """Heap and store of a primary at rest agree (`core.invariants`)."""
        for machine in self.machines:
            service = machine.service
            if service is None or not machine.process.alive or service.stopped:
                continue
            broker, disk = service.broker, machine.disk
            meta, upto = disk.meta(), self.truth.committed_upto
            if broker.idle and broker.epoch == meta.epoch and meta.log_position == upto:
                self._looked_at = upto
                if found := violations(broker, disk):
                    raise self.history.broken("; ".join(map(str, found)))

    def _heal(self) -> None:
        super()._heal()
        self._until(self._caught_up, self.kernel.now_us + CAUGHT_UP_US, "replicas catch up")
        contents = {machine.name: content(machine.disk) for machine in self.machines}
        contents["the log"] = content(self.truth)
        if len(set(contents.values())) > 1:
            raise ViolationError(f"R9: replicas at commit {self.truth.committed_upto} differ: {contents}")
        counts, servers = self.history.counts, self.servers
        counts["elections of the log"] += servers.elections
        counts["appends let in"] += servers.let_in
        counts["records voided"] += self.truth.voided_messages

    def _caught_up(self) -> bool:
        last = self.truth.committed_upto
        return all(machine.process.alive and machine.disk.meta().log_position == last for machine in self.machines)

    def _copy_of_another(self, machine: Machine) -> list[Kept]:
        """The store of the machine that has most, as an operator copies it."""
        others = [other for other in self.machines if other is not machine]
        return list(max(others, key=lambda other: other.last_kept).kept)


def simulate(seed: int, steps: int | None = None, *, edition: int = EDITION) -> Outcome:
    """The run of a seed, as long as the seed says if `steps` do not; `edition`: see `plan.draw`."""
    return ReplicatedSimulation(seed, steps, edition=edition).run()
