"""Machines with a broker and a disk of its own: a replica follows the log, claims it, serves, dies and comes back."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from legato.errors import FencedError, LegatoError, LogTrimmedError, StoreError
from legato.ha.lease import Lease, Standing
from legato.ha.watch import Watch
from legato.replication.arbiter import LogArbiter
from legato.server.config.configuration import Config
from legato.server.connections.client_connection import Peer
from legato.server.process.primary_epoch import EpochEnding
from legato.server.process.service import Replicated, Service
from legato.server.storage.maintenance import Upkeep
from simulator.brokers import ServerSocket
from simulator.loop import VirtualClock, VirtualLoop
from simulator.network import Network, Pipe
from simulator.replicas.disks import Kept, ReplicaDisk
from simulator.replicas.log_servers import LogServers
from simulator.replicas.plan import GROUP, ReplicaPlan
from simulator.replicas.threads import BrokerProcess, Event, Thread, ThreadedKernel, wait_here

if TYPE_CHECKING:
    from asyncio import Transport

BACK_AFTER_US = (10_000, 3_000_000)
HEARTBEAT_S = 0.15
POLL_S = 0.02
TAKEN_WITHIN_S = 2.0
"""Who hands over leaves the log to others for so long."""


class ReplicatedEpoch:
    """What a service sees of its `PrimaryEpoch`: whom to tell that it cannot serve on.

    Attributes:
        ending: why it is over.
        failure: why the process cannot serve any more.
    """

    def __init__(self) -> None:
        self.over = Event()
        self.ending = EpochEnding.LOST
        self.failure: StoreError | None = None

    def switch_over(self) -> None:
        """See `PrimaryEpoch.switch_over`."""
        self._finish(EpochEnding.SWITCHOVER)

    def use_tls(self, context: ssl.SSLContext) -> None:
        """See `EpochOwner.use_tls`: nothing here speaks TLS."""

    def note_connections(self, connections: int) -> None:
        """See `PrimaryEpoch.note_connections`; there are never many."""

    def fail(self, error: StoreError) -> None:
        """See `PrimaryEpoch.fail`."""
        if not isinstance(error, FencedError):
            self.failure = error
        self._finish(EpochEnding.LOST)

    def lose(self, standing: Standing) -> None:
        """See `PrimaryEpoch.lose`."""
        self._finish(EpochEnding.LOST if standing is Standing.LOST else EpochEnding.LAPSED)

    def backups(self) -> list[str]:
        """See `PrimaryEpoch.backups`."""
        return []

    def _finish(self, ending: EpochEnding) -> None:
        if not self.over.is_set():
            self.ending = ending
            self.over.set()


class World(Protocol):
    """What a machine tells of itself."""

    def began_to_serve(self, epoch: int) -> None:
        """A broker serves in an epoch."""

    def answered(self, name: str, epoch: int) -> None:
        """A broker that serves in an epoch tells a client something."""


class WatchedSocket(ServerSocket):
    """A connection to a broker, whose answers are seen."""

    def __init__(self, machine: Machine, service: Service, network: Network, pipe: Pipe, peer: Peer) -> None:
        super().__init__(machine.kernel, network, pipe, peer)
        self._machine = machine
        self._service = service

    def write(self, data: bytes) -> None:
        """See `ServerSocket.write`."""
        # Who logs in is told nothing of messages, and who is sent away nothing but that.
        if self._peer.opened and not self._service.stopped:
            self._machine.world.answered(self._machine.name, self._service.broker.epoch)
        super().write(data)


class Machine:
    """A machine that runs a broker, again and again.

    Args:
        name: where the broker listens.
        beside: the log's server on the same machine.
        copy_of_another: what is on another's disk, for one that the log cannot bring up to date.

    Attributes:
        kept: what is on its disk.
        service: what it runs while it is the primary, or believes so.
        failures: what its replicas could not get over.
    """

    def __init__(
        self,
        kernel: ThreadedKernel,
        network: Network,
        servers: LogServers,
        name: str,
        beside: str,
        plan: ReplicaPlan,
        configure: Callable[[], Config],
        happened: Callable[..., None],
        copy_of_another: Callable[[Machine], list[Kept]],
        world: World,
    ) -> None:
        self.name = name
        self.kernel = kernel
        self.kept: list[Kept] = []
        self.clock = VirtualClock(kernel)
        self.loop = VirtualLoop(kernel)
        self.service: Service | None = None
        self.arbiter: LogArbiter | None = None
        self.epoch: ReplicatedEpoch | None = None
        self.machines: dict[str, Machine] = {}
        self._network = network
        self._servers = servers
        self._beside = beside
        self._plan = plan
        self._configure = configure
        self._happened = happened
        self._copy_of_another = copy_of_another
        self.world = world
        self._watch = Watch(1, 0)
        self.process = BrokerProcess(name)
        self.disk = ReplicaDisk(kernel, self.kept)
        self.start()

    # -- its life

    def start(self) -> None:
        """Begin anew, as a backup."""
        if self.process.alive and self.process.threads:
            return
        self.process = BrokerProcess(self.name)
        self.service = self.epoch = None
        old = self.disk
        self.disk = ReplicaDisk(self.kernel, self.kept)
        self.disk.full_until_us, self.disk.stuck_until_us = old.full_until_us, old.stuck_until_us
        self.disk.slow_until_us = old.slow_until_us
        self.kernel.run_as(self.process, Thread(target=self._live, name="main").start)
        self.kernel.run_as(self.process, Thread(target=self._ask_for_heartbeats, name="watcher").start)

    def _live(self) -> None:
        plan = self._plan
        arbiter = self.arbiter = LogArbiter(
            lambda: self._servers.log(GROUP, self.name, self._beside),
            self.disk,  # type: ignore[arg-type]
            self.name,
            plan.lease_s,
            self.clock.now_us,
            beside=self._beside if plan.places_leader else "",
            log_bytes_max=plan.log_bytes_max,
        )
        self._loop(self._begin_upkeep)
        while True:
            self._watch = Watch(1, self.clock.monotonic_ms())
            arbiter.listen_to(lambda: self._watch.silence_ms(self.clock.monotonic_ms()))
            try:
                arbiter.acquire_blocking()
            except StoreError as error:
                self._ended_with(error.__cause__ if isinstance(error.__cause__, LegatoError) else error)
                return
            failure = self._reign(arbiter)
            if failure is not None:
                self._ended_with(failure)
                return

    def _reign(self, arbiter: LogArbiter) -> StoreError | None:
        """Serve until the epoch is over; returns why the process cannot go on, if it cannot."""
        epoch = self.epoch = ReplicatedEpoch()
        self._loop(self._begin_serving, arbiter, epoch)
        epoch.over.wait()
        service = self.service
        if service is not None:
            self._drive(service.finish, epoch.ending.value)
        if epoch.failure is not None:
            return epoch.failure
        self._loop(arbiter.release, epoch.ending.value)
        if service is not None:
            self._drive(service.dismiss, epoch.ending.value)
        self.service = self.epoch = None
        until_us = self.kernel.now_us + int(TAKEN_WITHIN_S * 1_000_000)
        while (holder := arbiter.holder()) is not None and holder.left and self.kernel.now_us < until_us:
            wait_here(POLL_S)
        return None

    def _begin_serving(self, arbiter: LogArbiter, epoch: ReplicatedEpoch) -> None:
        commits = arbiter.commits
        if commits is None:
            epoch.lose(Standing.LOST)
            return
        config = self._configure()
        meta = commits.begin_epoch(self.name, self.clock.now_us())
        lease = Lease(arbiter.still_mine, self._plan.term_ms, self.clock.monotonic_ms(), arbiter.sure_for_s)
        replicated = Replicated(commits, commits.give_up, arbiter.status, commits.record_bytes_max)
        service = self.service = Service(
            config, self.disk, meta, self.clock, lease, epoch, lambda: config, replicated=replicated
        )
        arbiter.describe(meta.epoch, self.name, service.handshake.backup_token)
        self._network.listen(self.name, self.process, self._accept)
        predecessor = arbiter.predecessor
        service.broker.begin_serving(self.clock.now_us(), predecessor.left if predecessor else "", 0)
        self.world.began_to_serve(meta.epoch)

    def _begin_upkeep(self) -> None:
        upkeep = Upkeep(self.disk, self._configure().store, self.clock)

        def run() -> None:
            self.kernel.after(self._plan.upkeep_us, run)
            if self.service is None:
                upkeep.forget(prune=True)

        run()

    def _accept(self, pipe: Pipe) -> None:
        service = self.service
        if service is None or (self.epoch is not None and self.epoch.over.is_set()):
            pipe.reset()
            return
        peer = Peer(service)
        socket: Transport = WatchedSocket(self, service, self._network, pipe, peer)  # type: ignore[assignment]
        peer.connection_made(socket)
        if pipe.inbox:
            pipe.reader.readable()  # type: ignore[union-attr]

    def _loop(self, call: Callable[..., object], *arguments: Any) -> None:
        """Have the event loop do something, and wait until it has."""
        done = Event()

        def do() -> None:
            call(*arguments)
            done.set()

        self.kernel.after_for(self.process, 0, do)
        done.wait()

    def _drive(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Have the event loop do something that takes time, and wait until it has."""
        done = Event()
        self.kernel.after_for(self.process, 0, lambda: self.loop.drive(work(*arguments), done.set))
        done.wait()

    def _ended_with(self, error: BaseException) -> None:
        """The process ends; whoever looks after it does what the error says."""
        self._happened("processes ended by an error", self.name, type(error).__name__, error)
        if isinstance(error, LogTrimmedError):
            self._happened("replicas copied from another", self.name)
            self.kernel.after_for(None, 0, self._replace_disk)
        self.kernel.after_for(None, 0, self.kill)

    def _replace_disk(self) -> None:
        self.kill()
        self.kept = self._copy_of_another(self)

    # -- heartbeats

    def _ask_for_heartbeats(self) -> None:
        cables = self._servers.cables
        while True:
            wait_here(HEARTBEAT_S)
            holder = self.arbiter.holder() if self.arbiter is not None else None
            other = self.machines.get(holder.listen) if holder is not None else None
            if other is not None and other is not self:
                cables.send(self.name, other.name, other.process, other.answer_heartbeat, self, self.process)

    def answer_heartbeat(self, asker: Machine, process: BrokerProcess) -> None:
        """A backup asks whether the primary lives."""
        if self.service is not None and not self.service.ending:
            self._servers.cables.send(self.name, asker.name, process, asker.heard)

    def heard(self) -> None:
        """The primary lives."""
        self._watch.heard(self.clock.monotonic_ms())

    # -- what happens to it

    @property
    def serving(self) -> bool:
        """Whether it runs a broker that was not told to stop."""
        return self.process.alive and self.service is not None and not self.service.ending

    @property
    def last_kept(self) -> int:
        """The last number of the log that its disk knows of."""
        return self.kept[-1].applied.number if self.kept else 0

    @property
    def surely_kept(self) -> int:
        """The same of what no power cut undoes."""
        return self.kept[-2].applied.number if len(self.kept) > 1 else 0

    def kill(self, *, power: bool = False, quietly: bool = False, wiped: bool = False) -> None:
        """It dies, at once.

        Args:
            power: what the disk was not told to keep is lost.
            quietly: clients hear nothing of it.
            wiped: all of the disk is lost.
        """
        process = self.process
        if not process.alive:
            return
        process.alive = False
        self.disk.power_fails = power or wiped
        process.end_threads()
        self.disk.died()
        if wiped:
            self.kept = []
        self._network.died(process, quietly=quietly)
        service, self.service = self.service, None
        if service is not None:
            for peer in service.peers:
                peer.ended = True
                peer.amqp.free()
        self.arbiter = self.epoch = None
        self.kernel.after_for(None, self.kernel.between_us(*BACK_AFTER_US), self.start)

    def hand_over(self) -> None:
        """It is told to let another serve."""
        epoch = self.epoch
        if epoch is not None:
            self.kernel.run_as(self.process, epoch.switch_over)

    def stop_for(self, duration_us: int) -> None:
        """It is stopped as by SIGSTOP."""
        process = self.process
        if not process.paused and process.alive:
            process.paused = True
            self.kernel.after_for(None, duration_us, self.kernel.resume, process)
