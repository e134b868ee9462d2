"""Database support of a service: transaction levels, inbox, outbox, and flows begun in a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from legato.clock import Clock
from legato.errors import ConfigError, FlowBackendError, FlowError, FlowMessageSendError, JMSError
from legato.failpoints import DrillOrders, FlowPoint
from legato.flows.database.database import POSTGRESQL, DataSource, call_at_commit, is_in_doubt
from legato.flows.database.inbox import RETENTION_S_DEFAULT, Inbox
from legato.flows.database.outbox import Outbox
from legato.flows.database.sweeper import Sweeper
from legato.flows.database.transactions import BestEffort, InboxOutbox, Level, hit
from legato.flows.model.definitions import Policy, Stage
from legato.flows.model.initiation import Initiation
from legato.flows.model.levels import Transaction
from legato.flows.starting.sender_pool import Initiator

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

OUTBOX_GRACE_S = 5.0
"""What is in the outbox for so long was not sent by those who put it there."""


class DatabaseSupport:
    """The database of a service.

    Args:
        new_id: makes an id that nobody else makes.
        retention_s: how long the inbox remembers, in seconds.

    Raises:
        ConfigError: see `DataSource`.
    """

    def __init__(
        self,
        database: str | Engine,
        initiator: Initiator,
        clock: Clock,
        new_id: Callable[[], str],
        retention_s: float = RETENTION_S_DEFAULT,
    ) -> None:
        self.source = DataSource(database)
        self.inbox = Inbox(self.source.sql, retention_s)
        self.outbox = Outbox(
            self.source.sql,
            skips_locked=self.source.kind == POSTGRESQL,
            grace_us=round(OUTBOX_GRACE_S * 1_000_000),
        )
        self.sweeper = Sweeper(
            self.source,
            self.inbox,
            self.outbox,
            lambda outgoing: initiator.send(outgoing, once=True),
            clock,
            retention_s,
            lambda: initiator.is_away,
        )
        self._initiator = initiator
        self._clock = clock
        self._new_id = new_id
        self._drill_orders = DrillOrders.of_environment()

    def level(self, stage: Stage, policy: Policy) -> Level:
        """Transaction level of a stage; not for `Transaction.MESSAGING`.

        Raises:
            ConfigError: the stage cannot have an inbox.
        """
        if policy.transaction is Transaction.BEST_EFFORT or policy.idempotent:
            return BestEffort(self.source, policy.bundle_max or 1)
        if stage.endpoint.topic:
            raise ConfigError(
                f"{stage.id} hears in each process every published message, but processes share an inbox, so only "
                "one of them would process it. Give the stage the transaction `best-effort` or `messaging`."
            )
        self._prepare()
        return InboxOutbox(self.source, self.inbox, self.outbox, self._clock, policy.bundle_max or 1)

    def resume(self) -> None:
        """Have the outbox swept of what a process that was killed has left in it, also where no stage needs it.

        Without its tables there is nothing in it. A database that does not answer is asked later.
        """
        if self.source.may_have_outbox():
            self.sweeper.start()

    def close(self, timeout_s: float) -> None:
        """End the sweeper, and close connections."""
        self.sweeper.end(timeout_s)
        self.source.close()

    # -- beginning flows

    @contextmanager
    def joining(self, connection: Connection, initiation: Initiation) -> Iterator[None]:
        """The flows of the `with` block begin if the application commits `connection`'s transaction.

        Raises:
            FlowError: that is another database than the service's.
        """
        if not self.source.same_as(connection):
            raise FlowError(
                f"The service's database is {self.source.engine.url!r}: only there would its outbox be looked after. "
                f"This connection leads to {connection.engine.url!r}."
            )
        yield
        if not initiation.outgoing:
            return
        self.source.create_tables_in(connection)
        cause_id = self._new_id()
        self.outbox.put(connection, [(cause_id, one) for one in initiation.outgoing], self._clock.now_us())
        call_at_commit(connection, lambda: self.sweeper.expect(cause_id))

    @contextmanager
    def beginning(self, initiation: Initiation, transaction: Transaction) -> Iterator[None]:
        """The flows of the `with` block begin with a database transaction of their own (CONTRACT D7).

        Raises:
            FlowBackendError: nothing was committed.
            FlowMessageSendError: the database was, and the messages were not (`Transaction.BEST_EFFORT` only).
        """
        is_kept = transaction is Transaction.INBOX_OUTBOX
        if is_kept:
            self._prepare()
        with self.source.transaction() as work:
            initiation.with_database(work.connection)
            yield
            if is_kept:
                rows = [(self._new_id(), one) for one in initiation.outgoing]
                self.outbox.put(work.connection(), rows, self._clock.now_us())
                self._commit(work.commit)
                self._send_kept(initiation)
            else:
                self._initiator.send(initiation.outgoing, before_commit=lambda: self._commit(work.commit))

    def _commit(self, commit: Callable[[], None]) -> None:
        hit(self._drill_orders, FlowPoint.BEFORE_DATABASE_COMMIT)
        try:
            commit()
        except Exception as error:
            if is_in_doubt(error):
                raise FlowMessageSendError(
                    f"The connection to the database was lost in its commit, whose outcome is not known: {error}"
                ) from error
            raise FlowBackendError(f"The database could not commit, so nothing was: {error}") from error
        hit(self._drill_orders, FlowPoint.BETWEEN_DATABASE_COMMIT_AND_MESSAGING_COMMIT)

    def _send_kept(self, initiation: Initiation) -> None:
        try:
            self._initiator.send(initiation.outgoing, once=True)
        except (FlowError, JMSError):
            self.sweeper.start()  # it will
        else:
            self.outbox.sent(initiation.outgoing)

    def _prepare(self) -> None:
        self.source.create_tables()
        self.sweeper.start()
