"""Transactions of a stage: the order of commits, for each level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from legato.clock import Clock
from legato.failpoints import DrillOrders, FlowPoint
from legato.flows.database.bundles import bundle
from legato.flows.database.sweeper import late
from legato.flows.model.envelope import Envelope, Outgoing
from legato.flows.model.stage_run import Ran

if TYPE_CHECKING:
    from sqlalchemy import Connection as DatabaseConnection

    from legato.flows.database.database import DataSource
    from legato.flows.database.inbox import Inbox
    from legato.flows.database.outbox import Outbox, Row

Database = Callable[[], "DatabaseConnection"]
"""Gives a stage its open database transaction."""


class Received(NamedTuple):
    """A message that a stage is to work on.

    Attributes:
        envelope: it.
        delivery_count: which attempt this is, from 1.
    """

    envelope: Envelope
    delivery_count: int


class Messaging(Protocol):
    """The messaging half of a stage's transaction: what was received in it waits for its commit."""

    def send(self, outgoing: Sequence[Outgoing], *, once: bool = False) -> None:
        """Send in the transaction; with `once` what was sent before is dropped by the broker.

        Raises:
            JMSError: it cannot be.
        """

    def check(self) -> None:
        """Be sure that the transaction can still commit, as far as one can know (CONTRACT D4).

        Raises:
            TransactionRolledBackError: a failover has doomed it.
            JMSError: the connection is gone for good.
        """

    def commit(self) -> None:
        """Commit what was received and sent.

        Raises:
            TransactionRolledBackError: it is rolled back; what was received comes again.
            JMSError: the connection is gone for good.
        """


Run = Callable[[Received, Database | None], Ran]
"""Runs the stage on one message."""


class Level(Protocol):
    """One of the `Transaction`s, at work."""

    def perform(self, stage_id: str, received: Sequence[Received], run: Run, messaging: Messaging) -> list[Ran]:
        """Run the stage on all of `received`, in one transaction, and commit it.

        On any error everything is rolled back that can be: the database here, messaging by the caller.

        Returns:
            What was run; without those of which the inbox knew that they had been.

        Raises:
            Exception: whatever `run` raises.
            JMSError: messaging failed.
        """


class MessagingOnly:
    """`Transaction.MESSAGING`: receive and send commit together; there is no database (CONTRACT D3).

    Args:
        bundle_max: `Policy.bundle_max`.
    """

    def __init__(self, bundle_max: int = 1) -> None:
        self._bundle_max = bundle_max
        self._drill_orders = DrillOrders.of_environment()

    def perform(self, stage_id: str, received: Sequence[Received], run: Run, messaging: Messaging) -> list[Ran]:
        ran = [run(one, None) for one in received]
        messaging.send(sends_of(received, ran, self._bundle_max))
        hit(self._drill_orders, FlowPoint.BETWEEN_SEND_AND_MESSAGING_COMMIT)
        messaging.commit()
        return ran


class BestEffort:
    """`Transaction.BEST_EFFORT`: the database commits when nothing else can fail but the brokers (CONTRACT D4).

    Args:
        bundle_max: `Policy.bundle_max`.
    """

    def __init__(self, source: DataSource, bundle_max: int = 1) -> None:
        self._bundle_max = bundle_max
        self._source = source
        self._drill_orders = DrillOrders.of_environment()

    def perform(self, stage_id: str, received: Sequence[Received], run: Run, messaging: Messaging) -> list[Ran]:
        with self._source.transaction() as work:
            ran = [run(one, work.connection) for one in received]
            messaging.send(sends_of(received, ran, self._bundle_max))
            messaging.check()
            hit(self._drill_orders, FlowPoint.BEFORE_DATABASE_COMMIT)
            work.commit()
        hit(self._drill_orders, FlowPoint.BETWEEN_DATABASE_COMMIT_AND_MESSAGING_COMMIT)
        messaging.commit()
        return ran


SENDS_AGAIN_MAX = 3
"""Deliveries of a message whose work is done at which the stage itself sends what came of it; then only sweepers do.

A broker that refuses what was sent would otherwise make a dead letter of a message that has been worked on.
"""


class InboxOutbox:
    """`Transaction.INBOX_OUTBOX`: what came and what goes is written with the work (CONTRACT D12, D13, D14).

    Args:
        bundle_max: `Policy.bundle_max`.
    """

    def __init__(self, source: DataSource, inbox: Inbox, outbox: Outbox, clock: Clock, bundle_max: int = 1) -> None:
        self._bundle_max = bundle_max
        self._source = source
        self._inbox = inbox
        self._outbox = outbox
        self._clock = clock
        self._drill_orders = DrillOrders.of_environment()

    def perform(self, stage_id: str, received: Sequence[Received], run: Run, messaging: Messaging) -> list[Ran]:
        ran, sends = self._work(stage_id, received, run)
        hit(self._drill_orders, FlowPoint.BETWEEN_DATABASE_COMMIT_AND_MESSAGING_COMMIT)
        messaging.send(sends, once=True)
        hit(self._drill_orders, FlowPoint.BETWEEN_SEND_AND_MESSAGING_COMMIT)
        messaging.commit()
        hit(self._drill_orders, FlowPoint.BETWEEN_MESSAGING_COMMIT_AND_CLEANING)
        self._outbox.sent(sends)
        return ran

    def _work(self, stage_id: str, received: Sequence[Received], run: Run) -> tuple[list[Ran], list[Outgoing]]:
        """Do the stage's work, and commit its database; returns what is to be sent for it, too."""
        now_us = self._clock.now_us()
        ran: list[Ran] = []
        rows: list[Row] = []
        done: list[str] = []
        with self._source.transaction() as work:
            connection = work.connection()
            new = self._inbox.enter(connection, stage_id, [one.envelope.message_id for one in received], now_us)
            for one in received:
                message_id = one.envelope.message_id
                if message_id in new:
                    new.remove(message_id)
                    result = run(one, work.connection)
                    rows += [(message_id, outgoing) for outgoing in result.outgoing]
                    ran.append(result)
                elif one.delivery_count <= SENDS_AGAIN_MAX:
                    done.append(message_id)
            sends = [late(one, now_us) for one in self._outbox.unsent(connection, done)] if done else []
            rows = bundled(received, rows, self._bundle_max)
            self._outbox.put(connection, rows, now_us)
            with self._outbox.deleting(connection):
                hit(self._drill_orders, FlowPoint.BEFORE_DATABASE_COMMIT)
                work.commit()
        return ran, [*sends, *(outgoing for _, outgoing in rows)]


def sends_of(received: Sequence[Received], ran: Sequence[Ran], bundle_max: int) -> list[Outgoing]:
    """Messages to send for runs, one run for each received message."""
    rows = [
        (one.envelope.message_id, outgoing)
        for one, result in zip(received, ran, strict=True)
        for outgoing in result.outgoing
    ]
    return [outgoing for _, outgoing in bundled(received, rows, bundle_max)]


def bundled(received: Sequence[Received], rows: list[Row], bundle_max: int) -> list[Row]:
    """Messages of a batch, in bundles; those of a single run stay apart, so that several workers can take them."""
    return bundle(rows, bundle_max) if bundle_max > 1 and len(received) > 1 else rows


def hit(drill_orders: DrillOrders | None, point: FlowPoint) -> None:
    """The process is at `point`, if it is drilled."""
    if drill_orders is not None:
        drill_orders.hit(point)
