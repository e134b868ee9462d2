"""The transaction around runs of a stage: what commits when, for each of the levels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from legato.flows.envelope import Envelope, Outgoing
from legato.flows.running import Ran

if TYPE_CHECKING:
    from sqlalchemy import Connection as DatabaseConnection

Database = Callable[[], "DatabaseConnection"]
"""Gives a stage its open database transaction."""


@dataclass(frozen=True)
class Received:
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
    """`Transaction.MESSAGING`: receive and send commit together; there is no database (CONTRACT D3)."""

    def perform(self, stage_id: str, received: Sequence[Received], run: Run, messaging: Messaging) -> list[Ran]:
        ran = [run(one, None) for one in received]
        messaging.send([outgoing for one in ran for outgoing in one.outgoing])
        messaging.commit()
        return ran
