"""One run from one seed: brokers, clients and trouble; then recovery, and the final checks."""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from legato.client.failover.contract import CONTRACTS
from legato.client.mapping.conditions import UNBLOCKED
from legato.client.steps import Steps
from legato.core.invariants import violations
from legato.errors import InvalidClientIDError, JMSError
from legato.server.config.configuration import Config
from simulator.actor import wants
from simulator.brokers import Host
from simulator.clients import Connection, ConnectionFactory, Task, sleep
from simulator.disk import Disk
from simulator.durable import number_of
from simulator.history import History
from simulator.kernel import START_US, Kernel, Process
from simulator.link_trouble import Revocable
from simulator.member_files import two_primaries
from simulator.nemesis import Nemesis
from simulator.network import Network
from simulator.patches import installed
from simulator.perishing import PerishedError
from simulator.plan import COMPANIONS, DURABLE, EDITION, draw
from simulator.pouring import Pouring
from simulator.record import ViolationError

HOSTS = ("alpha:5672", "beta:5672")
URI = (
    f"amqp://{','.join(HOSTS)}?client_failure_check_period_s=3&connect_attempts=-1"
    "&reconnect_delay_max_s=0.3&connect_timeout_s=2"
    "&failover_on_initial_connection=true&failover_on_server_shutdown=true"
)
IDLE_TIMEOUT_MS = 4_000
LOOKED_AT_EVERY_STEPS = 4
COMPANION_SENDERS = 1_000
"""Where the numbers of a companion's producers begin."""
HEALING_US = 120_000_000
"""Within so much virtual time after the trouble has ended everything must have come to its end."""


class Outcome(msgspec.Struct):
    """What became of a run; `violation` is empty if every promise was kept."""

    seed: int
    steps: int
    violation: str
    counts: dict[str, int]
    virtual_s: float
    digest: str
    """Of all that happened: the same seed gives the same."""


class Client:
    """A client's process, begun again when it ends."""

    def __init__(self, kind: str, number: int, *, has_id: bool, contract: str = "legato") -> None:
        self.kind = kind
        self.contract = contract
        self.has_id = has_id
        self.number = number
        self.process = Process("")
        self.connection: Connection | None = None
        self.running = False


class Companion:
    """The run as an application sees it that ends with another one."""

    def __init__(self, run: Simulation) -> None:
        self.running = False
        self._run = run
        self._left = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def leave(self) -> None:
        """Come to an end."""
        self._left = True

    @property
    def ending(self) -> bool:
        """See `actor.Run`."""
        return self._left or self._run.ending


class Simulation:
    """A run as it goes on; `Application`s see it as their `Run`."""

    def __init__(self, seed: int, steps: int | None = None, *, edition: int = EDITION) -> None:
        self.seed = seed
        self.plan = draw(seed, steps, edition=edition)
        self.kernel = Kernel(seed)
        self.random = self.kernel.random
        self.history = History(lambda: self.kernel.now_us, wants, self.plan)
        self.network = Network(self.kernel)
        self.disk = Disk(self.kernel, self.history)
        self.hosts: list[Host] = []
        self.rights = Revocable()
        self.clients: list[Client] = []
        self.recent_ids: dict[str, deque[str]] = {}
        self.ending = False
        self.batches: dict[str, list[Any]] = {}
        self.published: Counter[str] = Counter()
        self._limits: dict[str, int] = {}
        self._directory: Path | None = None
        self._number = 0
        self._looked_at = 0
        """At which position of the log heap and store were compared last."""
        self._failure: BaseException | None = None

    def next_number(self) -> int:
        """See `applications.Run`."""
        self._number += 1
        return self._number

    def read_range(self, name: str, after: int, through: int) -> list[tuple[int, int]]:
        """See `actor.Run`."""
        record = self.disk.queue(name)
        assert record is not None
        found = self.disk.messages(record.queue, after, through - after, 1 << 30)
        return [(message.seq, number_of(message.body)) for message in found if message.seq <= through]

    def change_limits(self) -> None:
        """See `actor.Run`."""
        for queue in self.plan.queues:
            if "max_messages" in queue.settings:
                self._limits[queue.name] = self.random.choice([1, 3, 10])

    def _read_stage(self, stage: str) -> Any:
        sink, _, number = stage.rpartition("/")
        return self.batches[sink][int(number)][1]

    # -- clients -------------------------------------------------------------------------------------------------

    def _begin(self, client: Client) -> None:
        client.process = Process(f"{client.kind}-{client.number}")
        client.running = True
        self.kernel.run_as(client.process, self._launch, client, self._application(client))

    def _launch(self, client: Client, steps: Steps[None]) -> None:
        def ended(error: BaseException | None) -> None:
            client.running = False
            if self._gave_up(client, error):
                self.kill(client, quietly=False)
            elif error is not None:
                self._failure = self._failure or error
            elif not self.ending:
                self.kernel.after_for(None, self.kernel.between_us(1_000, 500_000), self._begin_again, client)

        Task(steps, ended)

    def _gave_up(self, client: Client, error: BaseException | None) -> bool:
        """Whether it died, or a call was cut off by its contract or by a broker and it chose to end of that."""
        if isinstance(error, PerishedError):
            return True
        if isinstance(error, JMSError) and self.history.has_ended(error):
            self.history.counts["applications ended with a link"] += 1
            return True
        released = CONTRACTS[client.contract].releases_blocked_calls
        return released and isinstance(error, JMSError) and error.code == UNBLOCKED

    def _begin_again(self, client: Client) -> None:
        if not self.ending and not client.running:
            self._begin(client)

    def _application(self, client: Client) -> Steps[None]:
        connection = yield from self._connect(client)
        companion = self._accompany(client, connection)
        application = Pouring(self, connection)
        work: Callable[[], Steps[None]] = getattr(application, client.kind)
        yield from work()
        companion.leave()
        while companion.running:
            yield from sleep(0.01)
        yield from connection._close()

    def _accompany(self, client: Client, connection: Connection) -> Companion:
        """Somebody else uses the same connection, with a session of its own."""
        companion = Companion(self)
        if self.plan.accompanied and self.random.random() < 0.5:
            companion.running = True

            def ended(error: BaseException | None) -> None:
                companion.running = False
                if self._gave_up(client, error):
                    self.kill(client, quietly=False)
                elif error is not None:
                    self._failure = self._failure or error

            application: Any = Pouring(companion, connection)  # type: ignore[arg-type]
            # Both have producers, and order is promised of each.
            application._senders = COMPANION_SENDERS
            # The first session's consumer may have what keeps a queue full.
            application.patient = False
            Task(getattr(application, self.random.choice(COMPANIONS))(), ended)
        return companion

    def _connect(self, client: Client) -> Steps[Connection]:
        options: dict[str, Any] = {"client_id": "trader"} if client.has_id else {}
        options["failover_contract"] = client.contract
        while True:
            try:
                connection = client.connection = yield from ConnectionFactory(URI, **options)._create_connection()
            except InvalidClientIDError:
                # Its predecessor, which was killed, still looks alive to the broker.
                yield from sleep(0.5)
            else:
                connection.start()
                return connection

    def kill(self, client: Client, *, quietly: bool) -> None:
        """A client's process dies, at once."""
        self.history.note("killed:", client.process, "quietly" if quietly else "")
        client.process.alive = False
        client.running = False
        self.network.died(client.process, quietly=quietly)
        if client.connection is not None:
            client.connection._transport.died()  # type: ignore[attr-defined]
            client.connection = None
        # Who comes back under the same name may meet its own shadow.
        self.kernel.after_for(None, self.kernel.between_us(1_000, 2_000_000), self._begin_again, client)

    # -- trouble -------------------------------------------------------------------------------------------------

    def a_client(self) -> Process:
        """See `trouble.World`."""
        return self.random.choice(self.clients).process

    def kill_a_client(self, *, quietly: bool) -> None:
        """See `trouble.World`."""
        self.kill(self.random.choice(self.clients), quietly=quietly)

    @contextmanager
    def _papers(self) -> Iterator[None]:
        """There is a directory for what brokers write beside the store, if they do."""
        if not self.plan.papers:
            yield
            return
        with tempfile.TemporaryDirectory(prefix="legato-simulator-") as directory:
            self._directory = Path(directory)
            yield
            for host in self.hosts:
                if host.member_files is not None:
                    host.member_files.died()

    def _check_papers(self) -> None:
        serving = [host.name for host in self.hosts if host.serving]
        if self._directory is not None and len(serving) == 1:
            for host in self.hosts:
                if host.member_files is not None:
                    host.member_files.refresh()
            if wrong := two_primaries(self._directory, serving[0]):
                raise ViolationError(wrong)

    # -- the run -------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Run it; what is violated is in the outcome."""
        violation = ""
        self.history.note("seed", self.seed, self.plan)
        with (
            installed(
                self.kernel, self.network, self.history, self._read_stage, lambda: self.disk.is_full, self.rights
            ),
            self._papers(),
        ):
            try:
                self._live()
                self._heal()
            except ViolationError as error:
                violation = str(error)
            except Exception as error:
                violation = f"it broke: {type(error).__name__}: {error}"
                self._failure = self._failure or error
            finally:
                state = repr((self.kernel.steps, self.kernel.now_us, self.history.counts, self.random.random()))
                self._release()
        digest = hashlib.sha256(state.encode())
        return Outcome(
            self.seed,
            self.kernel.steps,
            violation,
            dict(self.history.counts),
            (self.kernel.now_us - START_US) / 1_000_000,
            digest.hexdigest()[:16],
        )

    @property
    def plans(self) -> list[Any]:
        """What was drawn for it."""
        return [self.plan]

    @property
    def failure(self) -> BaseException | None:
        """The exception that no application expected, if there was one."""
        return self._failure

    def _step(self) -> None:
        self.kernel.step()
        if self.history.violation is not None:
            # Listeners' errors are the client's to deal with.
            raise self.history.violation
        self.history.check_step()
        if self._failure is not None:
            raise self._failure
        if self.kernel.steps % LOOKED_AT_EVERY_STEPS == 0 and self.disk.committed_upto != self._looked_at:
            self._look()

    def _look(self) -> None:
        """Heap and store agree, if the primary is at rest (`core.invariants`)."""
        for host in self.hosts:
            service = host.service
            if service is None or not host.process.alive or service.stopped:
                continue
            broker = service.broker
            if broker.epoch == self.history.epoch and broker.idle:
                self._looked_at = self.disk.committed_upto
                if found := violations(broker, self.disk):
                    raise self.history.broken("; ".join(map(str, found)))

    def _configure(self) -> Config:
        config = Config(address=self.plan.limited(self._limits))
        config.server.idle_timeout_ms = IDLE_TIMEOUT_MS
        config.server.reconnect_timeout_s = self.plan.reconnect_timeout_s
        return config

    def _live(self) -> None:
        trouble = Nemesis(self)
        self.hosts = [
            Host(self.kernel, self.network, self.disk, name, self._configure, self._directory) for name in HOSTS
        ]
        self.clients = [
            Client(kind, number, has_id=kind == "subscribe_alone", contract=contract)
            for number, (kind, contract) in enumerate(zip(self.plan.kinds, self.plan.contracts, strict=True))
        ]
        for client in self.clients:
            self._begin(client)
        chance, probability, steps, kernel = self.random.random, self.plan.trouble, self.plan.steps, self.kernel
        while kernel.steps < steps:
            if chance() < probability:
                trouble.make()
            self._step()
        trouble.end()

    def _heal(self) -> None:
        """The trouble is over: everybody comes to an end, what is left is consumed."""
        deadline_us = self.kernel.now_us + HEALING_US
        for process in [host.process for host in self.hosts] + [client.process for client in self.clients]:
            if process.paused:
                self.kernel.resume(process)
        self.ending = True
        done = False

        def drained() -> bool:
            return done

        alone, drain = Client("drain", 100, has_id=True), Client("drain", 101, has_id=False)
        applications = list(self.clients)
        self.clients += [alone, drain]
        drains: list[tuple[Client, list[str]]] = []

        def keep_draining() -> None:
            # A drain, too, may end with a link that a broker has ended.
            for client, names in drains:
                if not client.running:
                    self._drain(client, names, drained)

        if any(queue.when_full == "block" for queue in self.plan.queues):
            # Who waits for room in a full queue ends when there is some.
            drains.append((drain, self.plan.drained))

        def ended() -> bool:
            keep_draining()
            return not any(client.running for client in applications)

        def empty() -> bool:
            keep_draining()
            return not self.history.places

        self._until(ended, deadline_us, "applications end")
        drains[:] = [(alone, [DURABLE]), (drain, self.plan.drained)]
        while True:
            self._until(empty, deadline_us + HEALING_US, "queues drain")
            done = True
            self._until(lambda: not (alone.running or drain.running), deadline_us + HEALING_US, "drains end")
            if not self.history.places:
                break
            # The last bytes of a client that was killed came after all was drained: see SLOW_LATENCY_US.
            done = False
        self.history.check_end()
        self._check_papers()
        for record in self.disk.queues():
            if record.kind != 1 and (record.stored != record.consumed or record.bytes):
                raise ViolationError(f"{record.name} counts {record.stored - record.consumed} messages and has none")

    def _drain(self, client: Client, names: list[str], done: Callable[[], bool]) -> None:
        def steps() -> Steps[None]:
            connection = yield from self._connect(client)
            application = Pouring(self, connection)
            yield from application.put_right()
            yield from application.drain(names, done)
            yield from connection._close()

        client.process = Process(f"drain-{client.number}")
        client.running = True
        self.kernel.run_as(client.process, self._launch, client, steps())

    def _until(self, reached: Callable[[], bool], deadline_us: int, what: str) -> None:
        while not reached():
            if self.kernel.now_us > deadline_us:
                running = [client.process for client in self.clients if client.running]
                waiting = sorted({self.history.names[queue] for queue, _ in self.history.places})
                raise ViolationError(f"hung: {what} (running: {running}, waiting: {waiting})")
            self._step()

    def _release(self) -> None:
        """Give the engines' memory back."""
        Task.end_all()
        for client in self.clients:
            if client.connection is not None:
                client.connection._transport.died()  # type: ignore[attr-defined]
        for host in self.hosts:
            for peer in host.service.peers if host.service is not None else ():
                peer.amqp.free()


def simulate(seed: int, steps: int | None = None, *, edition: int = EDITION) -> Outcome:
    """The run of a seed, as long as the seed says if `steps` do not; `edition`: see `plan.draw`."""
    return Simulation(seed, steps, edition=edition).run()
