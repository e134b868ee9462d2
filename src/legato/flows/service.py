"""A service: endpoints with threads that work for them, and a place to begin flows from."""

from __future__ import annotations

import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from legato.client import Connection, ConnectionFactory
from legato.clock import Clock, SystemClock
from legato.errors import ConfigError
from legato.flows.definitions import Endpoint, Function, Policy, Registry, Stage
from legato.flows.failures import Whereabouts
from legato.flows.initiating import Initiator
from legato.flows.initiation import Initiation
from legato.flows.levels import Transaction
from legato.flows.payloads import Upcaster
from legato.flows.transactions import Level, MessagingOnly
from legato.flows.wire import PREFIX
from legato.flows.worker import StageWorker

if TYPE_CHECKING:
    from sqlalchemy import Engine

F = TypeVar("F", bound=Function)

CONCURRENCY_MAX_DEFAULT = 10
DELIVERIES_MAX_DEFAULT = 6
STOP_TIMEOUT_S = 30.0


class Flows:
    """What a program declares its endpoints with, runs them with, and begins flows with.

    Args:
        url: of the brokers, as for `ConnectionFactory`.
        database: an SQLAlchemy engine or URL, such as `sqlite:///orders.db`; None for none.
        name, version: of the service, for traces and dead letters.
        prefix: before stage ids in the names of queues.
        policy: for endpoints that do not say otherwise. By default a stage of a service with a database has inbox and
            outbox, and one without commits its messages alone.
        clock: where the time comes from.
    """

    def __init__(
        self,
        url: str,
        *,
        database: str | Engine | None = None,
        name: str = "service",
        version: str = "",
        prefix: str = PREFIX,
        policy: Policy = Policy(),  # noqa: B008 - frozen
        clock: Clock | None = None,
    ) -> None:
        self.url = url
        self.name = name
        self.prefix = prefix
        self.registry = Registry()
        self.clock = clock or SystemClock()
        self.whereabouts = Whereabouts.here(f"{name} {version}".strip())
        self._engine = make_engine(database) if database is not None else None
        self._policy = policy.over(
            Policy(
                transaction=Transaction.MESSAGING if self._engine is None else Transaction.INBOX_OUTBOX,
                idempotent=False,
                concurrency=min(CONCURRENCY_MAX_DEFAULT, 2 * (os.cpu_count() or 1)),
                interactive_concurrency=0,
                deliveries_max=DELIVERIES_MAX_DEFAULT,
                batch_max=1,
            )
        )
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        self._workers: list[StageWorker] = []
        self._initiator = Initiator(self)

    # -- declaring

    def endpoint(
        self,
        id: str,
        *,
        state: Any = None,
        state_version: int = 1,
        upcasters: Mapping[int, Upcaster] | None = None,
        **policy: Any,
    ) -> Endpoint:
        """Declare an endpoint; its stages are added by `@endpoint.stage` and `@endpoint.last_stage` (CONTRACT D23).

        Args:
            state: the class of its memory, with a default for every field.
            state_version, upcasters: see `Endpoint`.
            policy: fields of `Policy`.
        """
        return self.registry.add(
            Endpoint(id, state=state, state_version=state_version, upcasters=upcasters, policy=Policy(**policy))
        )

    def single(self, id: str, **policy: Any) -> Callable[[F], F]:
        """Declare an endpoint of one stage, which returns the reply; a decorator."""
        endpoint = self.endpoint(id, **policy)
        return lambda function: endpoint.last_stage(function)

    def terminator(self, id: str, *, state: Any = None, state_version: int = 1, **policy: Any) -> Callable[[F], F]:
        """Declare where flows end: one stage that does not reply; a decorator."""
        endpoint = Endpoint(id, state=state, state_version=state_version, terminator=True, policy=Policy(**policy))
        return self.registry.add(endpoint).stage

    def subscription_terminator(self, id: str, *, state: Any = None, **policy: Any) -> Callable[[F], F]:
        """Declare what each process does with what is published under a name; a decorator."""
        policy = {"transaction": Transaction.MESSAGING, **policy, "concurrency": 1}
        endpoint = Endpoint(id, state=state, terminator=True, topic=True, policy=Policy(**policy))
        return self.registry.add(endpoint).stage

    def policy_of(self, stage: Stage) -> Policy:
        """How a stage is run: what was said for it, for its endpoint, for the service."""
        return stage.policy.over(stage.endpoint.policy).over(self._policy)

    # -- running

    def start(self) -> None:
        """Begin to work.

        Raises:
            ValueError: an endpoint has no last stage.
            ConfigError: a stage wants a database and the service has none.
            JMSError: no broker can be reached.
        """
        stages = self.registry.stages()
        levels = {stage.id: self._level(stage) for stage in stages}
        self.connection()
        for stage in stages:
            policy = self.policy_of(stage)
            for number in range(policy.concurrency or 1):
                self._add_worker(stage, levels[stage.id], number + 1)
            for number in range(policy.interactive_concurrency or 0):
                self._add_worker(stage, levels[stage.id], number + 1, interactive=True)
        for worker in self._workers:
            worker.start()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Finish what is being worked on, take nothing new, and disconnect.

        Args:
            timeout_s: after which what still runs is rolled back; it will come again, elsewhere.

        Returns:
            Whether everything that ran came to its end.
        """
        for worker in self._workers:
            worker.ask_to_end()
        ended = [worker.end(timeout_s) for worker in self._workers]
        self._workers.clear()
        self._initiator.close()
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if self._engine is not None:
            self._engine.dispose()
        return all(ended)

    def run(self) -> None:
        """Work until SIGTERM or SIGINT asks to stop."""
        asked = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: asked.set())
        with self:
            asked.wait()

    def __enter__(self) -> Flows:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- beginning flows

    @contextmanager
    def initiate(self, trace_id: str, *, sender: str = "", **options: Any) -> Iterator[Initiation]:
        """Begin flows; what is sent in the `with` block is sent at its end, all of it or nothing (CONTRACT D24).

        Args:
            trace_id: mandatory: what people will call the flows.
            sender: who initiates; the service by default.
            options: `interactive`, `persistent`, `deadline_us`, `time_to_live_ms` of `Initiation`.

        Raises:
            FlowBackendError: nothing was committed; try again.
            FlowMessageSendError: the database is committed, and the messages could not be sent (CONTRACT D7).
        """
        initiation = Initiation(
            trace_id, sender=sender or self.name, now_us=self.clock.now_us(), new_id=new_id, **options
        )
        yield initiation
        self._initiator.send(initiation.outgoing)

    def send(self, to: str, data: Any, *, trace_id: str, **options: Any) -> str:
        """Begin one flow; returns its id. As `initiate` with one `send`."""
        with self.initiate(trace_id, **options) as initiation:
            return initiation.send(to, data)

    # -- for its parts

    def connection(self) -> Connection:
        """The connection of all its threads, made when first asked for."""
        with self._lock:
            if self._connection is None:
                self._connection = ConnectionFactory(self.url).create_connection()
                self._connection.start()
            return self._connection

    def _add_worker(self, stage: Stage, level: Level, number: int, *, interactive: bool = False) -> None:
        self._workers.append(StageWorker(self, stage, level, number, interactive=interactive))

    def _level(self, stage: Stage) -> Level:
        policy = self.policy_of(stage)
        if policy.transaction is Transaction.MESSAGING:
            return MessagingOnly()
        if self._engine is None:
            raise ConfigError(
                f"{stage.id} wants a transaction of {policy.transaction} and the service has no database."
            )
        raise NotImplementedError


def new_id() -> str:
    """An id that nobody else makes."""
    return uuid.uuid4().hex


def make_engine(database: str | Engine) -> Engine:
    """An engine from an URL, or the one that is given."""
    from sqlalchemy import create_engine

    return create_engine(database) if isinstance(database, str) else database
