"""The initiating half of a service: its connection, its database if any, and futures of replies."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from legato.client import Connection, ConnectionFactory
from legato.clock import Clock
from legato.errors import ConfigError, FlowError, JMSError
from legato.flows.model.calls import timed_id
from legato.flows.model.context import Context
from legato.flows.model.declarations import Declarations
from legato.flows.model.envelope import Outgoing
from legato.flows.model.initiation import Initiation
from legato.flows.model.levels import Transaction
from legato.flows.starting.cancellations import Cancelled
from legato.flows.starting.futures import FUTURE_TIMEOUT_S, FlowFuture, Futures
from legato.flows.starting.replies import Replies
from legato.flows.starting.sender_pool import Initiator, Send
from legato.quoting import sentence

if TYPE_CHECKING:
    from sqlalchemy import Connection as DatabaseConnection
    from sqlalchemy import Engine

    from legato.flows.starting.database_support import DatabaseSupport
    from legato.flows.tracing import Tracing


logger = logging.getLogger("legato.flows")


class ServiceInitiator(Declarations):
    """The half of a service that begins flows; see `Flows` for the arguments."""

    def __init__(
        self,
        url: str,
        database: str | Engine | None,
        name: str,
        prefix: str,
        clock: Clock,
        inbox_retention_s: float,
    ) -> None:
        super().__init__()
        self.url = url
        self.name = name
        self.prefix = prefix
        self.clock = clock
        self.tracing: Tracing | None = None
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        self._connecting = threading.Lock()
        self._disconnects = 0
        self._initiator = Initiator(self)
        self._database_support = (
            None if database is None else open_database(database, self._initiator, clock, inbox_retention_s)
        )
        self._futures = Futures(self)
        self._replies = Replies(self._initiator)
        self._cancelled = Cancelled(prefix)

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
        if self._database_support is None:
            raise ConfigError("The service has no database: give it one, `Flows(..., database=...)`.")
        if database is not None:
            with self._database_support.joining(database, initiation):
                yield initiation
        else:
            with self._database_support.beginning(initiation, transaction):
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

    def answer(self, replies: Sequence[Outgoing]) -> None:
        """Send replies to futures that are in another group of brokers, and wait for none."""
        self._replies.send(replies)

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

    def connection(self) -> Connection:
        """The connection of all its threads, made when first asked for, and anew if it is gone for good.

        Raises:
            JMSError: no broker can be reached; where a connection was lost for good, each host is tried once.
            FlowError: the service was stopped meanwhile.
        """
        with self._connecting:
            with self._lock:
                former = self._connection
                if former is not None and former.lost is None:
                    return former
                disconnects = self._disconnects
            # One that is gone for good was tried again for as long as the URL says: its successor is tried once.
            factory = ConnectionFactory(self.url) if former is None else ConnectionFactory(self.url, connect_attempts=1)
            # Who stops the service does not wait for a broker that is not there.
            connection = factory.create_connection()
            try:
                connection.start()
                if former is not None:
                    self._cancelled.follow_again(connection)
                with self._lock:
                    if disconnects != self._disconnects:
                        raise FlowError("The service was stopped while it waited for a broker.")
                    self._connection = connection
            except BaseException:
                connection.close()
                raise
            if former is not None:
                with suppress(JMSError):
                    former.close()
            return connection

    def resume(self) -> None:
        """Be used again after `disconnect`."""
        if self._futures.closed:
            self._futures = Futures(self)
            self._replies = Replies(self._initiator)

    @property
    def is_connected(self) -> bool:
        """Whether there is a broker at the moment."""
        connection = self._connection
        return connection is not None and connection.host is not None

    def redirect(self, send: Send) -> None:
        """Have what is sent from now on handed to `send` and not to a broker, for tests of services."""
        self._initiator.redirect(send)

    def disconnect(self, timeout_s: float) -> None:
        """Give up who waits for replies, end what works for the database, and close the connection.

        Each of these has `timeout_s`, and the connection its option `close_timeout_s`. What no broker has confirmed by
        then is told in the log.
        """
        with self._told():
            self._futures.close(timeout_s)
        self._replies.close(timeout_s)
        if self._database_support is not None:
            self._database_support.close(timeout_s)
        with self._told():
            self._initiator.close()
        with self._lock:
            connection, self._connection = self._connection, None
            self._disconnects += 1
        if connection is not None:
            with self._told():
                connection.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What was not confirmed until something was closed is told in the log; the rest is closed, too."""
        try:
            yield
        except JMSError as error:
            logger.warning("%s: %s", self.name, sentence(error))


def new_id() -> str:
    """An id that nobody else makes; it begins with the time, as all ids of flows do."""
    return timed_id(time.time_ns() // 1_000_000, uuid.uuid4().hex)


def open_database(
    database: str | Engine, initiator: Initiator, clock: Clock, inbox_retention_s: float
) -> DatabaseSupport:
    """Open the service's database.

    Raises:
        ConfigError: SQLAlchemy is not installed, or the database cannot be used.
    """
    try:
        from legato.flows.starting.database_support import DatabaseSupport
    except ModuleNotFoundError as error:
        raise ConfigError(f"A database needs the module {error.name}: pip install 'legato[flows]'.") from error
    return DatabaseSupport(database, initiator, clock, new_id, inbox_retention_s)
