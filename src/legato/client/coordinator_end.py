"""The I/O thread's half of a session's transactions: declares, discharges, and finds out what became of a commit.

1. There is always one current transaction. Its end (`Ending`) waits until all its sends are on the wire.
2. A discharge and the declare of the next transaction go out together (AMQP.md A7).
3. A loss of the connection dooms a current transaction that did work. If its discharge was under way, the same
   discharge goes out again on the new connection, and the answer is the truth: accepted, it had committed (promise 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from legato.amqp.events import Attached, Detached, Disposition, Flow
from legato.amqp.outcomes import ACCEPTED, Accepted, Declared, Rejected, Transactional
from legato.amqp.sections import encode_declare, encode_discharge
from legato.amqp.terminus import Terminus
from legato.client.conditions import error_of
from legato.client.deliveries import Delivery, DeliveryState, finish
from legato.client.session_state import Transaction
from legato.errors import JMSError, TransactionRolledBackError

if TYPE_CHECKING:
    from legato.amqp.link import Sender
    from legato.client.channel import Channel
    from legato.client.receiver_end import ReceiverEnd

LOCAL_TRANSACTIONS = "amqp:local-transactions"


class Ending:
    """A `commit()` or `rollback()` that the application waits for."""

    __slots__ = ("commit", "discharged", "quiet", "refused", "transaction")

    def __init__(self, transaction: Transaction, commit: bool) -> None:
        self.transaction = transaction
        self.commit = commit
        self.quiet = commit
        """A rollback first stops the flow of messages, so that what it received can come again in order."""
        self.discharged = False
        self.refused = False
        """A send of the transaction was refused: it is rolled back instead of committed."""


class CoordinatorEnd:
    """The link to the broker's transaction coordinator; all of it is the I/O thread's."""

    def __init__(self, channel: Channel, name: str, first: Transaction) -> None:
        self.channel = channel
        self.name = name
        self.current = first
        self.link: Sender | None = None
        self.attached = False
        self._ending: Ending | None = None
        self._tags = 0

    # -- its life ----------------------------------------------------------------------------------------

    def attach(self) -> None:
        """Attach on the channel's present session."""
        session = self.channel.session
        assert session is not None
        self.link = session.sender(
            self.name,
            source=Terminus(address=self.name),
            target=Terminus(kind="coordinator", capabilities=[LOCAL_TRANSACTIONS]),
        )
        self.link.context = self

    def connection_lost(self, cause: JMSError, *, application_has_messages: bool) -> bool:
        """The wire is gone; returns whether that aborts a transaction."""
        self.link = None
        self.attached = False
        self.current.id = None
        ending = self._ending
        if ending is not None and ending.discharged and ending.commit:
            return False
        transaction = self.current if ending is None else ending.transaction
        aborted = not transaction.doomed and (application_has_messages or transaction.did_work)
        if aborted:
            self._doom(transaction, cause)
        for delivery in transaction.received:
            finish(delivery, DeliveryState.RETURNED)
        transaction.received.clear()
        if ending is not None:
            self._resolve(ending, committed=False)
        return aborted

    def _doom(self, transaction: Transaction, cause: JMSError) -> None:
        failure = TransactionRolledBackError(
            "The connection to the broker was lost while the transaction was open, and the broker rolled it back. "
            "What it received comes again; session.replay() sends again what it sent.",
            linked=cause,
        )
        transaction.doom(failure)
        self._finish_sends(transaction, failure)

    def _finish_sends(self, transaction: Transaction, error: JMSError | None) -> None:
        for sender, send in transaction.sends:
            sender.finish(send, error)

    def on_attached(self, event: Attached) -> None:
        """The broker answered; a refusal has no target and is followed by `Detached`."""
        if event.link.remote_target.kind == "none":
            return
        self.attached = True
        self.channel.restored(self)
        ending = self._ending
        if ending is not None and not ending.discharged:
            self._declare(ending.transaction)
            return
        if ending is not None:
            # A commit was cut off: ask for its outcome.
            self._discharge(ending)
        if not self.current.doomed:
            self._declare(self.current)

    def on_detached(self, event: Detached) -> None:
        """The broker refuses transactions, or gives them up: the session cannot go on."""
        link, self.link, self.attached = self.link, None, False
        if link is None or self.channel.closing:
            return
        link.close()
        self.channel.restored(self)
        self.channel.fail(error_of(event.condition, event.description, "The broker does not coordinate transactions"))

    def on_flow(self, event: Flow) -> None:
        """Credit came; the engine keeps what we send without it, so there is nothing to do."""

    # -- the application's wishes ------------------------------------------------------------------------

    def take(self, receiver: ReceiverEnd, delivery: Delivery) -> None:
        """The current transaction received a message; it is the transaction's at the broker once that is discharged."""
        self.current.took = True
        self.current.received.append(delivery)
        receiver.present(delivery)

    def release(self, receiver: ReceiverEnd) -> bool:
        """`receiver` closes: give the transaction at the broker what it received; returns whether that is done."""
        transaction = self.current
        if transaction.id is not None and not transaction.doomed:
            self._consume(transaction)
        return transaction.doomed or not any(delivery.consumer is receiver for delivery in transaction.received)

    def _consume(self, transaction: Transaction) -> None:
        """Make what the transaction received part of it at the broker."""
        assert transaction.id is not None
        state = Transactional(transaction.id, ACCEPTED)
        received, transaction.received = transaction.received, []
        for delivery in received:
            delivery.consumer.settle(delivery, state, DeliveryState.ACKNOWLEDGED)

    def end(self, commit: bool, following: Transaction) -> None:
        """`commit()` or `rollback()`: the outcome will be in the transaction.

        Args:
            following: becomes the current transaction.
        """
        self.channel.flush_receivers()
        transaction, self.current = self.current, following
        if transaction.doomed:
            self.channel.quiesce(lambda: self._end_doomed(transaction))
        elif not transaction.did_work:
            # CONTRACT B17: nothing to commit, nothing to ask. The broker's transaction serves on.
            following.id = transaction.id
            transaction.following = following
            transaction.outcome = commit
            self.channel.touch()
        else:
            ending = self._ending = Ending(transaction, commit)
            if commit:
                self.pump()
            else:
                self.channel.drop_sends(transaction, _ROLLED_BACK)
                self.channel.quiesce(lambda: self._quiet(ending))

    def _end_doomed(self, transaction: Transaction) -> None:
        failed, transaction.received = transaction.received, []
        self.channel.give_back(failed)
        self.channel.grant()
        if self.attached:
            self._declare(self.current)
        transaction.outcome = False
        self.channel.touch()

    def _quiet(self, ending: Ending) -> None:
        ending.quiet = True
        self.pump()

    def pump(self) -> None:
        """Discharge, once all that belongs to the transaction is on the wire."""
        ending = self._ending
        if ending is None or ending.discharged or not ending.quiet or not self.attached:
            return
        if ending.transaction.id is None or self.channel.has_waiting_sends(ending.transaction):
            return
        ending.discharged = True
        ending.refused = ending.transaction.failure is not None
        self._consume(ending.transaction)
        self._discharge(ending)
        self._declare(self.current)

    # -- on the wire -------------------------------------------------------------------------------------

    def _discharge(self, ending: Ending) -> None:
        assert ending.transaction.id is not None
        self._send(encode_discharge(ending.transaction.id, fail=ending.refused or not ending.commit), ending)

    def _declare(self, transaction: Transaction) -> None:
        self._send(encode_declare(), transaction)

    def _send(self, data: bytes, context: Ending | Transaction) -> None:
        assert self.link is not None
        self._tags += 1
        self.link.send(data, self._tags.to_bytes(8, "big"), context)

    def on_disposition(self, event: Disposition) -> None:
        """The coordinator answered."""
        outcome = event.outcome
        if isinstance(event.context, Transaction):
            if isinstance(outcome, Declared):
                self._declared(event.context, outcome.txn_id)
            else:
                self.channel.fail(JMSError("The broker did not begin a transaction; close the session and try later."))
            return
        ending: Ending = event.context
        if ending is not self._ending:
            return
        committed = ending.commit and not ending.refused and type(outcome) is Accepted
        if committed or not ending.commit:
            if not ending.commit:
                self.channel.give_back([])
                self.channel.grant()
            self._resolve(ending, committed)
            return
        transaction = ending.transaction
        refusal = transaction.failure
        code = refusal.code if refusal is not None else None
        reason = str(refusal)
        if isinstance(outcome, Rejected):
            reason, code = outcome.description or outcome.condition, outcome.condition
        transaction.failure = TransactionRolledBackError(
            f"The transaction was rolled back: {reason}. What it received comes again; session.replay() sends again "
            "what it sent.",
            code=code,
            linked=refusal,
        )
        self.channel.quiesce(lambda: self._refused(ending))

    def _refused(self, ending: Ending) -> None:
        self.channel.give_back([])
        self.channel.grant()
        self._resolve(ending, committed=False)

    def _declared(self, transaction: Transaction, txn_id: bytes) -> None:
        while transaction.following is not None:
            # It ended empty before it was declared; its successor takes the declaration over.
            transaction = transaction.following
        transaction.id = txn_id
        self.channel.close_receivers_that_wait()
        self.channel.pump_senders()
        self.pump()

    def _resolve(self, ending: Ending, committed: bool) -> None:
        if self._ending is ending:
            self._ending = None
        transaction = ending.transaction
        self._finish_sends(transaction, None if committed else transaction.failure or _ROLLED_BACK)
        transaction.outcome = committed
        self.channel.touch()


_ROLLED_BACK = TransactionRolledBackError("The transaction was rolled back.")
