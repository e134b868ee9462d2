"""A service: endpoints with threads that work for them, and a place to begin flows from."""

from __future__ import annotations

import os
import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from legato.client import Connection, ConnectionFactory, Message, Session
from legato.clock import Clock, SystemClock
from legato.errors import ConfigError, FlowEndedError, MessageFormatError
from legato.flows.cancelling import Cancelled
from legato.flows.circuit import FAILURES_DEFAULT, PAUSE_DEFAULT_S, PAUSE_MAX_DEFAULT_S
from legato.flows.context import Context
from legato.flows.declaring import Declarations
from legato.flows.definitions import Policy, Stage
from legato.flows.envelope import Call, Envelope, Outgoing
from legato.flows.failing import consequences
from legato.flows.failures import Failure, Whereabouts, bury
from legato.flows.futures import FUTURE_TIMEOUT_S, FlowFuture, Futures
from legato.flows.inbox import RETENTION_S_DEFAULT
from legato.flows.initiating import Initiator, Send
from legato.flows.initiation import Initiation
from legato.flows.introspection import HOST_DEFAULT, IntrospectionServer, snapshot
from legato.flows.introspection_page import page
from legato.flows.joining import JoinWorker
from legato.flows.joins import Answers
from legato.flows.levels import Transaction
from legato.flows.looping import SessionLoop
from legato.flows.records import DatabaseTime
from legato.flows.tracing import Tracing, make_tracing
from legato.flows.transactions import Level, MessagingOnly
from legato.flows.vitals import Vitals
from legato.flows.wire import PREFIX, Sender, envelope_of
from legato.flows.worker import StageWorker

if TYPE_CHECKING:
    from sqlalchemy import Connection as DatabaseConnection
    from sqlalchemy import Engine

    from legato.flows.backing import Backing

CONCURRENCY_MAX_DEFAULT = 10
DELIVERIES_MAX_DEFAULT = 6
STOP_TIMEOUT_S = 30.0


class Flows(Declarations):
    """What a program declares its endpoints with, runs them with, and begins flows with.

    Args:
        url: of the brokers, as for `ConnectionFactory`.
        database: an SQLAlchemy engine or URL, such as `sqlite:///orders.db`; None for none.
        name, version: of the service, for traces and dead letters.
        prefix: before stage ids in the names of queues.
        policy: for endpoints that do not say otherwise. By default a stage of a service with a database has inbox and
            outbox, and one without commits its messages alone.
        trace_retention_s: how long each run of a stage is kept for `legato flows trace`, in seconds; 0 for not at all.
        inbox_retention_s: how long an inbox remembers a message, in seconds; no message may be on its way for longer.
        clock: where the time comes from.

    Raises:
        ConfigError: the database cannot be used.
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
        trace_retention_s: float = 0.0,
        inbox_retention_s: float = RETENTION_S_DEFAULT,
        clock: Clock | None = None,
    ) -> None:
        super().__init__()
        self.url = url
        self.name = name
        self.prefix = prefix
        self.clock = clock or SystemClock()
        self.whereabouts = Whereabouts.here(f"{name} {version}".strip())
        self._policy = policy.over(
            Policy(
                transaction=Transaction.MESSAGING if database is None else Transaction.INBOX_OUTBOX,
                idempotent=False,
                concurrency=min(CONCURRENCY_MAX_DEFAULT, 2 * (os.cpu_count() or 1)),
                interactive_concurrency=0,
                deliveries_max=DELIVERIES_MAX_DEFAULT,
                batch_max=1,
                circuit_failures=FAILURES_DEFAULT,
                circuit_pause_s=PAUSE_DEFAULT_S,
                circuit_pause_max_s=PAUSE_MAX_DEFAULT_S,
            )
        )
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        self._workers: list[SessionLoop] = []
        self.vitals: dict[str, Vitals] = {}
        self._introspections: list[IntrospectionServer] = []
        self.trace_retention_s = trace_retention_s
        self.database_time: DatabaseTime | None = None
        self.tracing: Tracing | None = None
        self._initiator = Initiator(self)
        self._backing = (
            None if database is None else make_backing(database, self._initiator, self.clock, inbox_retention_s)
        )
        self._futures = Futures(self)
        self._cancelled = Cancelled(prefix)

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
        self._begin_tracing()
        stages = self.registry.stages()
        levels = {stage.id: self.level_of(stage) for stage in stages}
        self.connection()
        for stage in stages:
            policy = self.policy_of(stage)
            for number in range(policy.concurrency or 1):
                self._add_worker(stage, levels[stage.id], number + 1)
            for number in range(policy.interactive_concurrency or 0):
                self._add_worker(stage, levels[stage.id], number + 1, interactive=True)
            if stage.message is Answers:
                self._workers.append(JoinWorker(self, stage.id))
        self._cancelled.follow(self.connection())
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
        while self._introspections:
            self._introspections.pop().close()
        self._futures.close()
        if self._backing is not None:
            self._backing.close(timeout_s)
        self._initiator.close()
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
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
    def initiate(
        self,
        trace_id: str,
        *,
        sender: str = "",
        transaction: Transaction = Transaction.MESSAGING,
        database: DatabaseConnection | None = None,
        **options: Any,
    ) -> Iterator[Initiation]:
        """Begin flows; what is sent in the `with` block is sent at its end, all of it or nothing (CONTRACT D24).

        Args:
            trace_id: mandatory: what people will call the flows.
            sender: who initiates; the service by default.
            transaction: with another one than `MESSAGING` there is `Initiation.database`, which is committed at the
                end of the block, too.
            database: an open transaction of the application's: the flows begin if, and as soon as, that commits.
            options: `interactive`, `persistent`, `deadline_us`, `time_to_live_ms` of `Initiation`.

        Raises:
            FlowBackendError: nothing was committed; try again.
            FlowMessageSendError: the database is committed, and the messages could not be sent: undo what it says
                (CONTRACT D7). Never with `INBOX_OUTBOX`, or with `database`.
            ConfigError: the service has no database.
        """
        initiation = Initiation(
            trace_id, sender=sender or self.name, now_us=self.clock.now_us(), new_id=new_id, **options
        )
        if self.tracing is not None:
            initiation.trace_context = self.tracing.current()
        if database is None and transaction is Transaction.MESSAGING:
            yield initiation
            self._initiator.send(initiation.outgoing)
            return
        if self._backing is None:
            raise ConfigError("The service has no database: give it one, `Flows(..., database=...)`.")
        if database is not None:
            with self._backing.joining(database, initiation):
                yield initiation
        else:
            with self._backing.beginning(initiation, transaction):
                yield initiation

    def send(self, to: str, data: Any, *, trace_id: str, **options: Any) -> str:
        """Begin one flow; returns its id. As `initiate` with one `send`."""
        with self.initiate(trace_id, **options) as initiation:
            return initiation.send(to, data)

    def request(
        self,
        to: str,
        data: Any,
        *,
        trace_id: str,
        reply: Any = Any,
        timeout_s: float = FUTURE_TIMEOUT_S,
        **options: Any,
    ) -> FlowFuture:
        """Begin a flow and have its reply here: `await flows.request(...)`, or `.result()` where nothing awaits.

        Args:
            to: the endpoint.
            data: its request.
            reply: the class of its reply.
            timeout_s: seconds to wait for it.
            options: as for `initiate`.

        Raises:
            FlowError: more futures wait than `FUTURES_MAX`.
        """
        return self._futures.request(to, data, reply, timeout_s, trace_id, options)

    def unstash(self, stash: bytes) -> AbstractContextManager[Context[Any]]:
        """Continue a flow that was stashed: the `with` block acts for the stage that did (CONTRACT D23).

        The endpoint must be declared here if its state has upcasters or is to be looked at.

        Raises:
            MessageFormatError: these bytes are no stash.
            StateVersionError: its state cannot be read.
            FlowBackendError: nothing was committed; try again.
        """
        return self._initiator.unstash(stash)

    def cancel(self, flow_id: str) -> None:
        """Have no stage of any service work on a flow again; its compensations run, and who waits for it hears.

        Takes effect at the flow's next message; it is remembered for `cancelling.RETENTION_S`.

        Raises:
            FlowBackendError: nothing was committed; try again.
        """
        self._cancelled.cancel(self.connection(), flow_id)

    # -- being looked at

    def introspection(self) -> dict[str, Any]:
        """Endpoints, and of this process: who calls whom, counts, times, circuits, last failures; as JSON has it."""
        return snapshot(self)

    def introspection_page(self) -> str:
        """The same as a page of HTML that needs nothing else."""
        return page(snapshot(self))

    def serve_introspection(self, port: int, host: str = HOST_DEFAULT) -> IntrospectionServer:
        """Serve that page at `/`, and the JSON at `/json`, until the service stops or the server is closed.

        Args:
            port: 0 for any that is free; see `IntrospectionServer.port`.
            host: whose address to listen at; whoever reaches it may look.

        Raises:
            OSError: the port is not free.
        """
        server = IntrospectionServer(self.introspection, port, host)
        self._introspections.append(server)
        return server

    # -- for its parts

    def connection(self) -> Connection:
        """The connection of all its threads, made when first asked for."""
        with self._lock:
            if self._connection is None:
                self._connection = ConnectionFactory(self.url).create_connection()
                self._connection.start()
            return self._connection

    def redirect(self, send: Send) -> None:
        """Have what is sent from now on handed to `send` and not to a broker, for tests of services."""
        self._initiator.redirect(send)

    def check_going_on(self, envelope: Envelope) -> None:
        """Be sure that somebody may still work on a flow; what undoes a failed one always may be worked on.

        Raises:
            FlowEndedError: its deadline has passed, or it was cancelled.
        """
        if envelope.deadline_us and self.clock.now_us() > envelope.deadline_us:
            raise FlowEndedError(f"The deadline of flow {envelope.trace_id} has passed.")
        if self._cancelled.has(envelope.flow_id) and envelope.call is not Call.COMPENSATE:
            raise FlowEndedError(f"Flow {envelope.trace_id} was cancelled.")

    def bury(self, session: Session, message: Message, failure: Failure) -> None:
        """Have a message that `session` has received become a dead letter, and send what follows of the flow's failure.

        All of it happens when the caller commits.
        """
        follows: list[Outgoing] = []
        with suppress(MessageFormatError):
            follows = consequences(envelope_of(message), failure.text, self.clock.now_us())
        undone = any(one.envelope.call is Call.COMPENSATE for one in follows)
        bury(session, message, failure, self.whereabouts, undone=undone)
        sender = Sender(session, self.prefix)
        for one in follows:
            sender.send(one)

    def _begin_tracing(self) -> None:
        """What the program has set up by now is used."""
        self.tracing = make_tracing(self.name)
        if self.trace_retention_s and self._backing is not None and self.database_time is None:
            self.database_time = DatabaseTime(self._backing.source.engine)

    def _add_worker(self, stage: Stage, level: Level, number: int, *, interactive: bool = False) -> None:
        vitals = self.vitals.setdefault(stage.id, Vitals(self.policy_of(stage), pauses=not stage.endpoint.topic))
        self._workers.append(StageWorker(self, stage, level, vitals, number, interactive=interactive))

    def level_of(self, stage: Stage) -> Level:
        """The transaction that a stage runs in.

        Raises:
            ConfigError: it wants a database and the service has none.
        """
        policy = self.policy_of(stage)
        if policy.transaction is Transaction.MESSAGING:
            return MessagingOnly()
        if self._backing is None:
            raise ConfigError(
                f"{stage.id} wants a transaction of {policy.transaction} and the service has no database."
            )
        return self._backing.level(stage, policy)


def new_id() -> str:
    """An id that nobody else makes."""
    return uuid.uuid4().hex


def make_backing(database: str | Engine, initiator: Initiator, clock: Clock, inbox_retention_s: float) -> Backing:
    """What the service has its database for.

    Raises:
        ConfigError: SQLAlchemy is not installed, or the database cannot be used.
    """
    try:
        from legato.flows.backing import Backing
    except ModuleNotFoundError as error:
        raise ConfigError(f"A database needs the module {error.name}: pip install 'legato[flows]'.") from error
    return Backing(database, initiator, clock, new_id, inbox_retention_s)
