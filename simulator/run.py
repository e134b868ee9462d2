"""One run: brokers, clients and trouble, all from one seed; then healing, and what must hold in the end."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from legato.client.steps import Steps
from legato.errors import InvalidClientIDError
from simulator.applications import DURABLE, QUEUES, SHARED, Application, wants
from simulator.brokers import ADDRESSES, Host
from simulator.clients import Connection, ConnectionFactory, Task, sleep
from simulator.disk import Disk
from simulator.history import History, ViolationError
from simulator.kernel import START_US, Kernel, Process
from simulator.network import Network
from simulator.patches import installed

HOSTS = ("alpha:5672", "beta:5672")
URI = (
    f"amqp://{','.join(HOSTS)}?idle_timeout_ms=3000&connect_attempts=-1&reconnect_delay_max_ms=300&connect_timeout_s=2"
)
HEALING_US = 120_000_000
"""Within so much virtual time after the trouble has ended everything must have come to its end."""
KINDS = ("produce", "produce", "consume", "consume", "consume", "listen", "transact", "transact", "subscribe_alone")
STEPS_DEFAULT = 4_000
DEAD_LETTERS = [f"DLQ.{table['match']}" for table in ADDRESSES if table["maximum_deliveries"]]


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

    def __init__(self, kind: str, number: int, *, has_id: bool) -> None:
        self.kind = kind
        self.has_id = has_id
        self.number = number
        self.process = Process("")
        self.connection: Connection | None = None
        self.running = False


class Simulation:
    """A run as it goes on; `Application`s see it as their `Run`."""

    def __init__(self, seed: int, steps: int) -> None:
        self.seed = seed
        self.steps = steps
        self.kernel = Kernel(seed)
        self.random = self.kernel.random
        self.history = History(lambda: self.kernel.now_us, wants)
        self.network = Network(self.kernel)
        self.disk = Disk(self.kernel, self.history)
        self.hosts: list[Host] = []
        self.clients: list[Client] = []
        self.queues = self.random.sample(QUEUES, self.random.randint(1, 3))
        self.ending = False
        self._number = 0
        self._trouble = self.random.choice([0.0005, 0.002, 0.005])
        self._failure: BaseException | None = None

    def next_number(self) -> int:
        """See `applications.Run`."""
        self._number += 1
        return self._number

    # -- clients -------------------------------------------------------------------------------------------------

    def _begin(self, client: Client) -> None:
        client.process = Process(f"{client.kind}-{client.number}")
        client.running = True
        self.kernel.run_as(client.process, self._launch, client, self._application(client))

    def _launch(self, client: Client, steps: Steps[None]) -> None:
        def ended(error: BaseException | None) -> None:
            client.running = False
            if error is not None:
                self._failure = self._failure or error
            elif not self.ending:
                self.kernel.after_for(None, self.kernel.between_us(1_000, 500_000), self._begin_again, client)

        Task(steps, ended)

    def _begin_again(self, client: Client) -> None:
        if not self.ending and not client.running:
            self._begin(client)

    def _application(self, client: Client) -> Steps[None]:
        connection = yield from self._connect(client)
        application = Application(self, connection)
        work: Callable[[], Steps[None]] = getattr(application, client.kind)
        yield from work()
        yield from connection._close()

    def _connect(self, client: Client) -> Steps[Connection]:
        options: dict[str, Any] = {"client_id": "trader"} if client.has_id else {}
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

    def _make_trouble(self) -> None:
        chance = self.random.random()
        host = self.random.choice(self.hosts)
        self.history.note("trouble:", host.name, chance)
        if chance < 0.35:
            if self.network.connections:
                self.random.choice(self.network.connections).cut()
        elif chance < 0.40:
            if self.network.connections:
                pipe = self.random.choice(self.network.connections)
                pipe.silent = pipe.other.silent = True
        elif chance < 0.60:
            host.kill(power=self.random.random() < 0.5, quietly=self.random.random() < 0.3)
        elif chance < 0.70:
            host.hand_over()
        elif chance < 0.80:
            host.stop_for(self.kernel.between_us(10_000, 10_000_000), lose_lock=self.random.random() < 0.5)
        else:
            self.kill(self.random.choice(self.clients), quietly=self.random.random() < 0.3)

    # -- the run -------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Run it; what is violated is in the outcome."""
        violation = ""
        self.history.note("seed", self.seed)
        with installed(self.kernel, self.network, self.history):
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
    def failure(self) -> BaseException | None:
        """The exception that no application expected, if there was one."""
        return self._failure

    def _step(self) -> None:
        self.kernel.step()
        if self._failure is not None:
            raise self._failure

    def _live(self) -> None:
        self.hosts = [Host(self.kernel, self.network, self.disk, name) for name in HOSTS]
        kinds = [*KINDS, "subscribe_together", "subscribe_together"]
        chosen = [kind for kind in kinds if self.random.random() < 0.7] or ["produce"]
        self.clients = [Client(kind, number, has_id=kind == "subscribe_alone") for number, kind in enumerate(chosen)]
        for client in self.clients:
            self._begin(client)
        while self.kernel.steps < self.steps:
            if self.random.random() < self._trouble:
                self._make_trouble()
            self._step()

    def _heal(self) -> None:
        """The trouble ends: everybody comes to an end, then what is left is consumed."""
        self.network.calm = self.disk.calm = True
        deadline_us = self.kernel.now_us + HEALING_US
        for host in self.hosts:
            if host.process.paused:
                self.kernel.resume(host.process)
        self.ending = True
        self._until(lambda: not any(client.running for client in self.clients), deadline_us, "applications end")
        drained = [Client("drain", 100, has_id=True), Client("drain", 101, has_id=False)]
        done = False
        self.clients += drained
        self._drain(drained[0], [DURABLE], lambda: done)
        self._drain(drained[1], [*QUEUES, *DEAD_LETTERS, SHARED], lambda: done)
        self._until(lambda: not self.history.places, deadline_us + HEALING_US, "queues drain")
        done = True
        self._until(lambda: not any(client.running for client in drained), deadline_us + HEALING_US, "drains end")
        self.history.check_end(_deliveries_of)
        for record in self.disk.queues():
            if record.kind != 1 and (record.stored != record.consumed or record.bytes):
                raise ViolationError(f"{record.name} counts {record.stored - record.consumed} messages and has none")

    def _drain(self, client: Client, names: list[str], done: Callable[[], bool]) -> None:
        def steps() -> Steps[None]:
            connection = yield from self._connect(client)
            yield from Application(self, connection).drain(names, done)
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


def _deliveries_of(name: str) -> int:
    return next((table["maximum_deliveries"] for table in ADDRESSES if table["match"] == name), 0)


def simulate(seed: int, steps: int = STEPS_DEFAULT) -> Outcome:
    """The run of a seed."""
    return Simulation(seed, steps).run()
