"""A service: its endpoints, their threads, and initiators of flows."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from legato.client import Message, Session
from legato.clock import Clock, SystemClock
from legato.errors import ConfigError, FlowEndedError, FlowError, MessageFormatError
from legato.flows.database.inbox import RETENTION_S_DEFAULT
from legato.flows.database.transactions import Level, MessagingOnly
from legato.flows.model.circuit import FAILURES_DEFAULT, PAUSE_DEFAULT_S, PAUSE_MAX_DEFAULT_S
from legato.flows.model.definitions import Policy, Stage
from legato.flows.model.envelope import Call, Envelope, Outgoing
from legato.flows.model.failure_propagation import consequences
from legato.flows.model.joins import Answers
from legato.flows.model.levels import Transaction
from legato.flows.model.wire import PREFIX, Sender, envelope_of
from legato.flows.stages.failure_report import Failure, Whereabouts, bury
from legato.flows.stages.introspection import HOST_DEFAULT, IntrospectionServer, snapshot
from legato.flows.stages.introspection_page import page
from legato.flows.stages.join_worker import JoinWorker, joins_of
from legato.flows.stages.records import DatabaseTime
from legato.flows.stages.session_worker import SessionWorker
from legato.flows.stages.stage_health import StageHealth
from legato.flows.stages.worker import StageWorker
from legato.flows.starting.service_initiator import ServiceInitiator
from legato.flows.tracing import make_tracing
from legato.quoting import escaped, quoted

if TYPE_CHECKING:
    from sqlalchemy import Engine


CONCURRENCY_MAX_DEFAULT = 10
DELIVERIES_MAX_DEFAULT = 6
ENVIRONMENT_RETRY_DEFAULT_S = 86_400.0
"""A database that is down for a night makes no dead letters."""
STOP_TIMEOUT_S = 30.0
GIVEN_UP_AFTER_S = 1.0
"""What was told to give up has at least so long to do it."""

logger = logging.getLogger("legato.flows")


class Flows(ServiceInitiator):
    """A service: declares endpoints, runs them, and begins flows.

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
        super().__init__(url, database, name, prefix, clock or SystemClock(), inbox_retention_s)
        self.whereabouts = Whereabouts.here(f"{name} {version}".strip())
        self._policy = policy.over(
            Policy(
                transaction=Transaction.MESSAGING if database is None else Transaction.INBOX_OUTBOX,
                idempotent=False,
                concurrency=min(CONCURRENCY_MAX_DEFAULT, 2 * (os.cpu_count() or 1)),
                interactive_concurrency=0,
                deliveries_max=DELIVERIES_MAX_DEFAULT,
                batch_max=1,
                bundle_max=1,
                circuit_failures=FAILURES_DEFAULT,
                circuit_pause_s=PAUSE_DEFAULT_S,
                circuit_pause_max_s=PAUSE_MAX_DEFAULT_S,
                environment_retry_s=ENVIRONMENT_RETRY_DEFAULT_S,
            )
        )
        self._workers: list[SessionWorker] = []
        self.health: dict[str, StageHealth] = {}
        self._introspections: list[IntrospectionServer] = []
        self.trace_retention_s = trace_retention_s
        self.database_time: DatabaseTime | None = None

    def __repr__(self) -> str:
        connection = "not connected" if self._connection is None else repr(self._connection)
        work = f"endpoints: {len(self.registry.endpoints)}, workers: {len(self._workers)}"
        return f"<Flows {quoted(self.name)}, {work}, {connection}>"

    def policy_of(self, stage: Stage) -> Policy:
        """How a stage is run: what was said for it, for its endpoint, for the service."""
        return stage.policy.over(stage.endpoint.policy).over(self._policy)

    # -- running

    def start(self) -> None:
        """Begin to work; returns when each stage has its consumer, so that it hears what is published from now on.

        Raises:
            ValueError: an endpoint has no last stage.
            ConfigError: a stage wants a database and the service has none.
            FlowError: it has been started, and was not stopped since.
            JMSError: no broker can be reached.
        """
        self._begin()
        for worker in list(self._workers):
            worker.await_consumer()

    def _begin(self) -> None:
        try:
            self._begin_work()
        except BaseException:
            # Who tries again has as many of them as he said.
            self._workers = [worker for worker in self._workers if worker.was_started]
            raise

    def _begin_work(self) -> None:
        if any(worker.was_started for worker in self._workers):
            raise FlowError("The service has been started: call stop() before it is started again.")
        self.resume()
        self._begin_tracing()
        levels = self._check_stages()
        host = self.connection().host
        stages = self.registry.stages()
        for stage in stages:
            policy = self.policy_of(stage)
            for number in range(policy.concurrency or 1):
                self._add_worker(stage, levels[stage.id], number + 1)
            for number in range(policy.interactive_concurrency or 0):
                self._add_worker(stage, levels[stage.id], number + 1, interactive=True)
            if stage.message is Answers:
                health = self.health.setdefault(joins_of(stage.id), StageHealth(policy))
                self._workers.append(JoinWorker(self, stage, health))
        self._cancelled.follow(self.connection())
        if self._database_support is not None:
            self._database_support.resume()
        for worker in self._workers:
            worker.start()
        if stages:
            names = ", ".join(sorted({stage.endpoint.id for stage in stages}))
            logger.info("%s works on %s; its broker is %s.", quoted(self.whereabouts.service), escaped(names), host)

    def _check_stages(self) -> dict[str, Level]:
        """How each stage commits, by its id.

        Raises:
            ValueError: an endpoint has no last stage.
            ConfigError: a stage wants a database and the service has none.
        """
        return {stage.id: self.level_of(stage) for stage in self.registry.stages()}

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Finish what is being worked on, take nothing new, and disconnect.

        Args:
            timeout_s: seconds for all of it. What still runs then, or waits for a broker that does not answer, is
                rolled back; it will come again, elsewhere. The log says which stages that were.

        Returns:
            Whether everything that ran came to its end.

        Raises:
            FlowError: a stage of the service calls it: it would wait for itself.
        """
        if any(worker.is_current for worker in self._workers):
            raise FlowError("A stage cannot stop the service that it is part of: have another thread call stop().")
        deadline_s = time.monotonic() + timeout_s

        def left_s() -> float:
            return max(deadline_s - time.monotonic(), 0.0)

        for worker in self._workers:
            worker.ask_to_end()
        late = [worker for worker in self._workers if not worker.finish(left_s())]
        for worker in self._workers:
            worker.end(max(left_s(), GIVEN_UP_AFTER_S))
        self._workers.clear()
        if late:
            away = "" if self.is_connected else " No broker answered."
            logger.warning(
                "%s stops after %g s without having finished in %s.%s What they were given comes again.",
                quoted(self.whereabouts.service),
                timeout_s,
                escaped(", ".join(sorted({worker.name for worker in late}))),
                away,
            )
        while self._introspections:
            self._introspections.pop().close()
        self.disconnect(max(left_s(), GIVEN_UP_AFTER_S))
        return not late

    def run(self, *, stop_timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Work until SIGTERM or SIGINT asks to stop; stages that have begun are finished.

        Args:
            stop_timeout_s: seconds that they have for it, as `stop` says.

        Raises:
            ValueError, ConfigError, JMSError: as `start` does.
        """
        asked = threading.Event()
        connecting = False

        def ask(*_: object) -> None:
            asked.set()
            if connecting:
                raise KeyboardInterrupt

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, ask)
        self._check_stages()
        # It may be a minute until a broker is there; nothing has begun that would have to be finished.
        with suppress(KeyboardInterrupt):
            connecting = True
            self.connection()
            connecting = False
        connecting = False
        if not asked.is_set():
            # Not `start`: if the broker is lost now, nobody waits for its return who is asked to stop.
            self._begin()
            asked.wait()
        self.stop(stop_timeout_s)

    def __enter__(self) -> Flows:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

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

    def check_going_on(self, envelope: Envelope) -> None:
        """Be sure that somebody may still work on a flow; what undoes a failed one always may be worked on.

        Raises:
            FlowEndedError: its deadline has passed, or it was cancelled.
        """
        if envelope.deadline_us and self.clock.now_us() > envelope.deadline_us:
            raise FlowEndedError(f"The deadline of flow {envelope.trace_id} has passed.")
        if self._cancelled.has(envelope.flow_id) and not envelope.undoes:
            raise FlowEndedError(f"Flow {envelope.trace_id} was cancelled.")

    def bury(self, session: Session, message: Message, failure: Failure, attempts: int) -> list[Outgoing]:
        """Have a message that `session` has received become a dead letter, and send what follows of the flow's failure.

        All of it happens when the caller commits.

        Args:
            attempts: how often it was tried.

        Returns:
            What is to be answered then.
        """
        follows: list[Outgoing] = []
        with suppress(MessageFormatError):
            follows = consequences(envelope_of(message), failure.text, self.clock.now_us())
        undone = any(one.envelope.call is Call.COMPENSATE for one in follows)
        bury(session, message, failure, self.whereabouts, attempts, undone=undone)
        apart: list[Outgoing] = []
        sender = Sender(session, self.prefix, apart)
        for one in follows:
            sender.send(one)
        return apart

    def _begin_tracing(self) -> None:
        """Begin tracing as the program has configured it."""
        self.tracing = make_tracing(self.name)
        if self.trace_retention_s and self._database_support is not None and self.database_time is None:
            self.database_time = DatabaseTime(self._database_support.source.engine)

    def _add_worker(self, stage: Stage, level: Level, number: int, *, interactive: bool = False) -> None:
        health = self.health.setdefault(stage.id, StageHealth(self.policy_of(stage), pauses=not stage.endpoint.topic))
        self._workers.append(StageWorker(self, stage, level, health, number, interactive=interactive))

    def level_of(self, stage: Stage) -> Level:
        """The transaction that a stage runs in.

        Raises:
            ConfigError: it wants a database and the service has none.
        """
        policy = self.policy_of(stage)
        if policy.transaction is Transaction.MESSAGING:
            return MessagingOnly(policy.bundle_max or 1)
        if self._database_support is None:
            raise ConfigError(
                f"{stage.id} wants a transaction of {policy.transaction} and the service has no database."
            )
        return self._database_support.level(stage, policy)
