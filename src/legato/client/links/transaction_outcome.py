"""Outcomes of transactions: pending ends, later queries, and the errors that report them. Pure."""

from __future__ import annotations

from legato.amqp.engine.outcomes import Accepted, Outcome, Rejected
from legato.amqp.names import CAUSE
from legato.client.links.redirection import RedirectedLinkError, whose_transaction
from legato.client.links.session_state import Transaction
from legato.errors import JMSError, TransactionRolledBackError

UNKNOWN = "amqp:transaction:unknown-id"
ROLLED_BACK = TransactionRolledBackError("The transaction was rolled back.")


class TransactionEnding:
    """A `commit()` or `rollback()` that the application waits for."""

    __slots__ = ("commit", "discharged", "quiet", "refused", "taken", "transaction")

    def __init__(self, transaction: Transaction, commit: bool) -> None:
        self.transaction = transaction
        self.taken = frozenset(transaction.received)
        """What it had received when it ended."""
        self.commit = commit
        self.quiet = commit
        """A rollback first stops the flow of messages, so that what it received can come again in order."""
        self.discharged = False
        self.refused = False
        """A send of the transaction was refused: it is rolled back instead of committed."""


class Query:
    """A query for a transaction's outcome: discharges it again, which commits nothing (decision 0004)."""

    __slots__ = ("answered", "committed", "doubtful", "elsewhere", "name")

    def __init__(self, name: bytes, doubtful: Transaction | None = None) -> None:
        self.name = name
        self.doubtful = doubtful
        """The transaction, if its commit was cut off and the application did not wait for the truth."""
        self.answered = False
        self.committed: bool | None = None
        """None if the broker does not know."""
        self.elsewhere: RedirectedLinkError | None = None
        """The group that knows then, if the broker says which."""

    def answer(self, outcome: Outcome | None) -> None:
        """The coordinator answered."""
        if isinstance(outcome, Rejected) and outcome.condition == UNKNOWN:
            self.elsewhere = whose_transaction(outcome)
        else:
            self.committed = type(outcome) is Accepted
        self.answered = True
        if self.doubtful is not None:
            self.doubtful.committed = self.committed


def lost_while_open(transaction: Transaction, cause: JMSError) -> TransactionRolledBackError:
    """A failover aborted it (CONTRACT A5)."""
    return TransactionRolledBackError(
        "The connection to the broker was lost while the transaction was open, and the broker rolled it back. "
        "What it received comes again; session.replay() sends again what it sent.",
        linked=cause,
        transaction_id=transaction.name,
    )


def lost_during_commit(transaction: Transaction, cause: JMSError) -> TransactionRolledBackError:
    """Its commit was cut off, and the application is not to wait for the truth (CONTRACT E12, A10)."""
    return TransactionRolledBackError(
        "The connection to the broker was lost during the commit, and the session goes on as if the transaction was "
        "rolled back. session.commit_outcome() says whether it was; session.replay() sends again what is not stored.",
        linked=cause,
        transaction_id=transaction.name,
    )


def in_doubt(transaction: Transaction, cause: JMSError) -> JMSError:
    """Nobody can tell any more, or not now: the connection is gone for good, or it was away for longer than a day."""
    return JMSError(
        "Whether the transaction was committed is not known. A later connection can ask: session.commit_outcome().",
        code="IN_DOUBT",
        linked=cause,
        transaction_id=transaction.name,
    )


def refused(transaction: Transaction, outcome: Outcome | None) -> TransactionRolledBackError:
    """The coordinator did not commit it."""
    refusal = transaction.failure
    code = refusal.code if refusal is not None else None
    reason = str(refusal)
    if isinstance(outcome, Rejected):
        reason = outcome.description or outcome.condition
        code = str(dict(outcome.info).get(CAUSE, outcome.condition))
    return TransactionRolledBackError(
        f"The transaction was rolled back: {reason}. What it received comes again; session.replay() sends again what "
        "it sent.",
        code=code,
        linked=refusal,
        transaction_id=transaction.name,
    )
