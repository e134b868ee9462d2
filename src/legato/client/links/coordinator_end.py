"""Link to the coordinator: declares, discharges, and asks for outcomes. Runs in the I/O thread.

1. There is always one current transaction. Its end (`TransactionEnding`) waits until all its sends are on the wire.
2. A discharge and the declare of the next transaction go out together (amqp.md A7).
3. A loss of the connection dooms a current transaction that did work. If its discharge was under way, the same
   discharge goes out again on the new connection, and the answer is the truth: accepted, it had committed (promise 2).
4. Where the failover contract does not wait for that, the application hears at once that it is rolled back; what
   became of it is asked for first thing on the new connection (`Query`), before anything can be replayed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from legato.amqp.codec.sections import encode_declare, encode_discharge
from legato.amqp.engine.events import Attached, Detached, Disposition, Flow
from legato.amqp.engine.outcomes import ACCEPTED, RELEASED, Accepted, Declared, Outcome, Transactional
from legato.amqp.engine.terminus import Terminus
from legato.client.links.deliveries import Delivery, DeliveryState, finish
from legato.client.links.session_state import Transaction
from legato.client.links.transaction_outcome import (
    ROLLED_BACK,
    Query,
    TransactionEnding,
    lost_during_commit,
    lost_while_open,
    refused,
)
from legato.client.mapping.conditions import error_of
from legato.errors import JMSError

if TYPE_CHECKING:
    from legato.amqp.engine.link import Sender
    from legato.client.links.ports import ChannelPort
    from legato.client.links.receiver_end import ReceiverEnd

LOCAL_TRANSACTIONS = "amqp:local-transactions"


class CoordinatorEnd:
    """The link to the broker's transaction coordinator."""

    def __init__(self, channel: ChannelPort, name: str, first: Transaction) -> None:
        self.channel = channel
        self.name = name
        self.current = first
        self.link: Sender | None = None
        self.attached = False
        self._ending: TransactionEnding | None = None
        self._queries: list[Query] = []
        self._begun: Transaction | None = None
        """The last one that was declared over this link."""
        self._tags = 0

    # -- its life ----------------------------------------------------------------------------------------

    def attach(self) -> None:
        """Attach on the channel's present session."""
        session = self.channel.session
        assert session is not None
        self._begun = None
        self.link = session.sender(
            self.name,
            source=Terminus(address=self.name),
            target=Terminus(kind="coordinator", capabilities=[LOCAL_TRANSACTIONS]),
        )
        self.link.context = self

    def connection_lost(self, cause: JMSError, with_application: list[Delivery]) -> JMSError | None:
        """The wire is gone; returns the failure of the transaction that this aborts, if any."""
        self.link = None
        self.attached = False
        self.current.id = None
        ending = self._ending
        aborted: JMSError | None = None
        if ending is not None:
            if not (ending.discharged and ending.commit):
                failure = self._abort(ending.transaction, cause)
                # A rollback is what the application asked for.
                aborted = failure if ending.commit else None
                self._resolve(ending, committed=False)
                self._return(ending.transaction)
            elif not self.channel.contract.resolves_calls:
                self._leave_in_doubt(ending, cause)
        # The application has more than the one that ends only if it did not wait for its end.
        taken: frozenset[Delivery] = frozenset() if ending is None else ending.taken
        if self.current.did_work or any(delivery not in taken for delivery in with_application):
            aborted = self._abort(self.current, cause) or aborted
        self._return(self.current)
        return aborted

    def _return(self, transaction: Transaction) -> None:
        for delivery in transaction.received:
            finish(delivery, DeliveryState.RETURNED)
        transaction.received.clear()

    def _abort(self, transaction: Transaction, cause: JMSError) -> JMSError | None:
        if transaction.doomed:
            return None
        failure = lost_while_open(transaction, cause)
        transaction.doom(failure)
        self._finish_sends(transaction, failure)
        return failure

    def _leave_in_doubt(self, ending: TransactionEnding, cause: JMSError) -> None:
        """The contract has the application hear at once of a commit that was cut off (CONTRACT E12, A10)."""
        transaction = ending.transaction
        assert transaction.name is not None
        transaction.failure = lost_during_commit(transaction, cause)
        self._queries.append(Query(transaction.name, transaction))
        self._resolve(ending, committed=False)

    def _finish_sends(self, transaction: Transaction, error: JMSError | None) -> None:
        for sender, send in transaction.sends:
            sender.finish(send, error)

    def on_attached(self, event: Attached) -> None:
        """The broker answered; a refusal has no target and is followed by `Detached`."""
        if event.link.remote_target.kind == "none":
            return
        self.attached = True
        self.channel.restored(self)
        for query in self._queries:
            self._ask(query)
        if not self._doubts:
            self._begin()

    @property
    def _doubts(self) -> bool:
        """Whether it is not known yet what the next transaction has to replay."""
        return any(query.doubtful is not None for query in self._queries)

    def _begin(self) -> None:
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
        self.channel.restored(self)
        if link is None:
            return
        link.close()
        if self.channel.closing:
            return
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
        """`receiver` closes: give the transaction at the broker what it received; returns whether that is done.

        What others received stays the application's to decide about.
        """
        ending = self._ending
        if ending is not None and any(delivery.consumer is receiver for delivery in ending.transaction.received):
            return False
        transaction = self.current
        own = [delivery for delivery in transaction.received if delivery.consumer is receiver]
        if transaction.doomed:
            _let_go(own)
            return True
        if not own:
            return True
        if transaction.id is None:
            return False
        transaction.received = [delivery for delivery in transaction.received if delivery.consumer is not receiver]
        # It may yet be rolled back.
        self._consume(transaction, _let_go(own))
        return True

    def give_up(self, receiver: ReceiverEnd, error: JMSError) -> None:
        """The broker ended `receiver`'s link: a transaction that received something over it must not commit."""
        transactions = [self.current] if self._ending is None else [self._ending.transaction, self.current]
        for transaction in transactions:
            if any(delivery.consumer is receiver for delivery in transaction.received):
                transaction.failure = transaction.failure or error

    def take_in_vain(self, error: JMSError) -> None:
        """The current transaction received a message over a link that the broker had ended."""
        self.current.took = True
        self.current.failure = self.current.failure or error

    def _consume(self, transaction: Transaction, received: list[Delivery]) -> None:
        """Make what the transaction received part of it at the broker."""
        assert transaction.id is not None
        accepted = Transactional(transaction.id, ACCEPTED)
        for delivery in received:
            verdict = delivery.verdict
            state = accepted if verdict is None else Transactional(transaction.id, verdict)
            delivery.consumer.settle(delivery, state, DeliveryState.ACKNOWLEDGED)

    def end(self, transaction: Transaction, commit: bool, following: Transaction) -> None:
        """`commit()` or `rollback()`: the outcome will be in the transaction.

        Args:
            following: becomes the current transaction.
        """
        if self.current is not transaction:
            return  # Who was interrupted asks again.
        self.channel.flush_receivers()
        self.current = following
        if self.link is None and not commit and not transaction.doomed:
            # What it did it did since the connection was lost: no broker knows of it.
            transaction.doom(ROLLED_BACK)
        if transaction.doomed:
            self.channel.quiesce(lambda: self._end_doomed(transaction))
        elif not transaction.did_work:
            # CONTRACT B17: nothing to commit, nothing to ask. The broker's transaction serves on.
            following.id = following.name = transaction.id
            transaction.following = following
            transaction.outcome = commit
            self.channel.touch()
        else:
            ending = self._ending = TransactionEnding(transaction, commit)
            if commit:
                self.pump()
            else:
                self.channel.drop_sends(transaction, ROLLED_BACK)
                self.channel.quiesce(lambda: self._quiet(ending))

    def _end_doomed(self, transaction: Transaction) -> None:
        failed, transaction.received = _let_go(transaction.received), []
        # Those since it was doomed too: who waits for their listeners is not to wait for the next connection.
        self._finish_sends(transaction, transaction.failure)
        self.channel.give_back(failed)
        self.channel.grant()
        if self.attached and not self._doubts:
            self._declare(self.current)
        transaction.outcome = False
        self.channel.touch()

    def _quiet(self, ending: TransactionEnding) -> None:
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
        received, ending.transaction.received = ending.transaction.received, []
        self._consume(ending.transaction, received if ending.commit else _let_go(received))
        self._discharge(ending)
        self._declare(self.current)
        self.channel.close_receivers_that_wait()

    @property
    def rolls_back(self) -> bool:
        """Whether the broker has yet to roll back what was received."""
        return self._ending is not None and not self._ending.commit

    def query(self, query: Query) -> None:
        """Find out what became of a transaction."""
        self._queries.append(query)
        if self.attached:
            self._ask(query)

    # -- on the wire -------------------------------------------------------------------------------------

    def _discharge(self, ending: TransactionEnding) -> None:
        assert ending.transaction.id is not None
        self._send(encode_discharge(ending.transaction.id, fail=ending.refused or not ending.commit), ending)

    def _declare(self, transaction: Transaction) -> None:
        if self._begun is transaction:
            # The link came back, or its doubts were resolved, while messages stopped for the end of the one before.
            return
        self._begun = transaction
        self._send(encode_declare(), transaction)

    def _ask(self, query: Query) -> None:
        self._send(encode_discharge(query.name, fail=False), query)

    def _answered(self, query: Query, outcome: Outcome | None) -> None:
        if query not in self._queries:
            return
        doubted = self._doubts
        self._queries.remove(query)
        query.answer(outcome)
        self.channel.touch()
        if doubted and not self._doubts and self.attached:
            self._begin()

    def _send(self, data: bytes, context: TransactionEnding | Transaction | Query) -> None:
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
        if isinstance(event.context, Query):
            self._answered(event.context, outcome)
            return
        ending: TransactionEnding = event.context
        if ending is not self._ending:
            return
        committed = ending.commit and not ending.refused and type(outcome) is Accepted
        if committed or not ending.commit:
            if not ending.commit:
                self._ending = None
                self.channel.give_back([])
                self.channel.grant()
            self._resolve(ending, committed)
            return
        ending.transaction.failure = refused(ending.transaction, outcome)
        self.channel.quiesce(lambda: self._refused(ending))

    def _refused(self, ending: TransactionEnding) -> None:
        self.channel.give_back([])
        self.channel.grant()
        self._resolve(ending, committed=False)

    def _declared(self, transaction: Transaction, txn_id: bytes) -> None:
        while transaction.following is not None:
            # It ended empty before it was declared; its successor takes the declaration over.
            transaction = transaction.following
        transaction.id = transaction.name = txn_id
        self.channel.close_receivers_that_wait()
        self.channel.pump_senders()
        self.pump()

    def _resolve(self, ending: TransactionEnding, committed: bool) -> None:
        if self._ending is ending:
            self._ending = None
        transaction = ending.transaction
        self._finish_sends(transaction, None if committed else transaction.failure or ROLLED_BACK)
        transaction.outcome = committed
        self.channel.touch()


def _let_go(received: list[Delivery]) -> list[Delivery]:
    """Release outside of its transaction what was given back uncounted; returns the others.

    Of a transaction that is rolled back the broker counts every delivery as failed.
    """
    rest = []
    for delivery in received:
        if delivery.verdict is RELEASED:
            # As all that a transaction is done with: nothing else can be decided about it.
            delivery.consumer.settle(delivery, RELEASED, DeliveryState.ACKNOWLEDGED)
        else:
            rest.append(delivery)
    return rest
