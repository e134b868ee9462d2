"""Channel of a session in the I/O thread: its AMQP session and its links."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from legato.client.failover.contract import FailoverContract
from legato.client.gate import Gate
from legato.client.links.channel_ends import ChannelEnds, End
from legato.client.links.completion import are_due
from legato.client.links.coordinator_end import CoordinatorEnd
from legato.client.links.deliveries import AckBatch, Delivery, DeliveryState
from legato.client.links.link_names import Named
from legato.client.links.receiver_end import ReceiverEnd
from legato.client.links.sender_end import SenderEnd
from legato.client.links.session_state import AcknowledgeMode, Send, Transaction
from legato.client.links.unsubscribe_end import UnsubscribeEnd
from legato.client.mapping.conditions import UNBLOCKED
from legato.errors import JMSError, SpaceLostError, TransactionRolledBackError

if TYPE_CHECKING:
    from legato.client.links.transport import Transport


class Interruption(msgspec.Struct, frozen=True):
    """The effects of a lost connection on one session.

    `aborted`: whether a transaction with work was rolled back; where the contract counts unacknowledged messages as
    one, also whether there were such. Kept deliveries stay with the application, returned ones come again.
    """

    resent_sends: int
    aborted: bool
    kept_deliveries: int
    returned_deliveries: int


def _stays(delivery: Delivery) -> bool:
    return not delivery.again and delivery.state in (DeliveryState.HERE, DeliveryState.ACCEPTING)


def _aborted(cause: JMSError) -> TransactionRolledBackError:
    return TransactionRolledBackError(
        "The connection to the broker was lost while messages were unacknowledged. They come again, the first one "
        "first, flagged as redelivered.",
        linked=cause,
    )


class Channel(ChannelEnds):
    """A session's half in the I/O thread. The application's thread calls only the marked methods."""

    def __init__(
        self,
        transport: Transport,
        name: str,
        mode: AcknowledgeMode,
        first: Transaction | None,
        contract: FailoverContract,
        owner: object = None,
        gate: Gate | None = None,
    ) -> None:
        super().__init__(transport)
        self.name = name
        self.mode = mode
        self.contract = contract
        self.owner = owner
        """The application's session."""
        self.interruptions = 0
        """How often the connection was lost; a blocked call may look whether it changes."""
        self.aborted: JMSError | None = None
        """What a failover aborted, if the application is to hear so and has not yet."""
        self.listening = False
        """Whether messages go to listeners."""
        self._resolving: AckBatch | None = None
        """For what the application waits for the truth, or is to when it goes on: that has to come again for it."""
        self.gate = Gate() if gate is None else gate
        if first is not None:
            self.coordinator = CoordinatorEnd(self, f"{name}:coordinator", first)
        self.closing = False
        self.closed = False
        self.error: JMSError | None = None
        self.sends_given_up = 0
        """Sends that failed unconfirmed because their link, session or connection ended, and for which no call
        waited."""
        self.acknowledgements_given_up = 0
        """Likewise acknowledgements."""

    # -- called by the application's thread --------------------------------------------------------------

    def wake_sender(self, sender: SenderEnd) -> None:
        """There is something in `outgoing.waiting`."""
        if not sender.scheduled:
            sender.scheduled = True
            self.transport.post(sender.pump)

    def wake_receiver(self, receiver: ReceiverEnd) -> None:
        """There is something in `presented` or `accepted`."""
        if not receiver.scheduled:
            receiver.scheduled = True
            self.transport.post(receiver.look)

    def look_again(self) -> None:
        """A call of the application's was interrupted, and may not have said what it wants. In the I/O thread."""
        if self.closed:
            return
        for receiver in list(self.receivers):
            receiver.look()
        self.pump_senders()
        self.grant()
        self.touch()

    def hear_abort(self) -> JMSError | None:
        """The application hears of what was aborted, if it has not: messages may come again."""
        aborted, self.aborted = self.aborted, None
        if aborted is not None:
            self.transport.post(self.grant)
        return aborted

    # -- its life ----------------------------------------------------------------------------------------

    @property
    def flowing(self) -> bool:
        """Whether messages may come: the connection is started (Jakarta Messaging 6.1.4).

        During a rollback they may not: what comes again comes first (CONTRACT A4).
        """
        rolls_back = self.coordinator is not None and self.coordinator.rolls_back
        return self.transport.started and not self.closing and not rolls_back

    @property
    def holds_back(self) -> bool:
        """Whether `receive()` is to raise before a message comes (CONTRACT A11); listeners are not kept waiting."""
        resolving = self._resolving is not None and self._resolving.open
        return self.aborted is not None and not self.listening and not resolving

    def begin(self) -> None:
        """Begin on the transport's present wire, and attach every link."""
        assert self.transport.wire is not None
        if self.closed:
            return
        self.session = self.transport.wire.engine.begin_session()
        self.session.context = self
        for end in self._ends():
            # What the broker has closed does not come back; the application's next one has another name.
            if not (isinstance(end, SenderEnd) and end.closed):
                self.attach(end)

    def forget_sender(self, sender: SenderEnd) -> None:
        """A producer's link is closed."""
        if sender in self.senders:
            self.senders.remove(sender)
        self._end_when_done()

    def forget_receiver(self, receiver: ReceiverEnd) -> None:
        """A consumer's link is closed."""
        if receiver in self.receivers:
            self.receivers.remove(receiver)
        self.give_back_name(receiver)
        self._end_when_done()

    def connection_lost(self, cause: JMSError) -> Interruption:
        """The wire is gone; returns what that did."""
        self.session = None
        if self.coordinator is not None:
            self.coordinator.attached = False
        kept: list[Delivery] = []
        returned = 0
        for receiver in list(self.receivers):
            with_application, unseen = receiver.connection_lost()
            kept += with_application
            returned += unseen
        for browser in self.browsers:
            browser.connection_lost()
        for other in list(self.others):
            other.connection_lost()
        resent = sum(sender.connection_lost() for sender in list(self.senders))
        unacknowledged = self.contract.abort_raises and any(delivery.again for delivery in kept)
        failure: JMSError | None = _aborted(cause) if unacknowledged else None
        if self.coordinator is not None:
            failure = self.coordinator.connection_lost(cause, kept)
        for sender in list(self.senders):
            if sender.closing:
                # What it waited for may have gone with the connection, or with the transaction.
                sender.close()
        if failure is not None and not self.closing:
            self._report_abort(failure, cause)
        self._end_when_done()
        # Last: whoever is blocked looks first whether what it waits for has come.
        self.interruptions += 1
        self.touch()
        stays = 0 if self.coordinator is not None else sum(_stays(delivery) for delivery in kept)
        return Interruption(resent, failure is not None, stays, returned + len(kept) - stays)

    def _report_abort(self, failure: JMSError, cause: JMSError) -> None:
        # A commit that was under way tells of its own transaction.
        if self.contract.abort_raises and (self.coordinator is None or self.coordinator.current.failure is failure):
            self.aborted = self.aborted or failure
        if self.contract.space_lost_error:
            what = "The connection to the broker was lost, and the session's transaction was aborted with it."
            self.report(SpaceLostError(what, linked=cause, session=self.owner))

    def restored(self, end: End) -> None:
        """A link is attached again, or never will be."""
        self.transport.restored(end)

    def fail(self, error: JMSError) -> None:
        """The session cannot go on; every call on it says why."""
        if self.error is None:
            self.error = error
            for sender in list(self.senders):
                sender.fail(error)
            self.report(error)
        # Nothing more of it comes back after a loss of the connection.
        for end in self._ends():
            self.restored(end)
        self._drop_unseen()
        if self.session is None:
            # The broker ended it, and all its links with it: other sessions may have their names.
            for named in [end for end in self._ends() if isinstance(end, Named)]:
                self.give_back_name(named)
        self.touch()
        self.transport.outages.touch_all()

    def close(self) -> None:
        """Close all links in good order, then the session."""
        self.closing = True
        for sender in list(self.senders):
            sender.close()
        for receiver in list(self.receivers):
            receiver.close()
        self._end_when_done()

    def give_up_sends(self, error: JMSError) -> None:
        """The session closes, and the broker has not confirmed its sends for too long: who waits for them hears so."""
        for sender in list(self.senders):
            sender.give_up(error)
        if self.coordinator is not None:
            self.coordinator.pump()

    def give_up(self, error: JMSError) -> None:
        """The session closes, and the broker has not answered for too long: who waits for anything hears so."""
        self.fail_quietly(error)
        for receiver in list(self.receivers):
            self.acknowledgements_given_up += receiver.unheard
            receiver.give_up()
        self.touch()
        # A call of this session may wait for something of another one.
        self.transport.outages.touch_all()

    def abandon(self, error: JMSError) -> None:
        """The connection is gone for good: whatever waits hears so."""
        self.fail_quietly(error)
        if not self.closed:
            self.acknowledgements_given_up += sum(receiver.unheard for receiver in self.receivers)
        self.closed = True
        self._drop_unseen()
        self.touch()

    def _drop_unseen(self) -> None:
        """What is not presented by now comes to somebody else: nothing could be said about it any more."""
        for receiver in self.receivers:
            receiver.incoming.inbox.clear()

    def fail_quietly(self, error: JMSError) -> None:
        """As `fail`, but the exception listener is told by somebody else."""
        self.error = self.error or error
        for sender in list(self.senders):
            sender.ready = False
            sender.fail(error)

    def _end_when_done(self) -> None:
        if not self.closing or self.closed or self.senders or self.receivers:
            return
        self.closed = True
        session, self.session = self.session, None
        if session is not None:
            session.close()
        for other in list(self.others):
            if isinstance(other, UnsubscribeEnd):
                other.refuse(JMSError("The session was closed while it was to end a subscription.", code=UNBLOCKED))
        self.transport.forget(self)
        self.touch()

    # -- together ----------------------------------------------------------------------------------------

    def touch(self) -> None:
        """Something changed that the application's thread may wait for."""
        self.transport.touched[self.gate] = None

    def report(self, error: JMSError, *, usual: bool = False) -> None:
        """Tell the connection's exception listener; without one the log, unless it is usual."""
        self.transport.report(error, usual=usual)

    def complete(self, sends: list[Send]) -> None:
        """Call the completion listeners of sends, in the thread for that."""
        are_due(sends)
        self.transport.completed += sends

    # -- what the application asks for -------------------------------------------------------------------

    def acknowledge(self, batch: AckBatch) -> None:
        """`Message.acknowledge()`: the batch is done when its `open` is 0."""
        if batch.begun:
            return
        batch.begun = True
        if batch.resolved:
            self._resolving = batch
        self.flush_receivers()
        for delivery in batch.deliveries:
            delivery.consumer.accept_for(delivery, batch)
        self.touch()

    def recover(self, batch: AckBatch) -> None:
        """`Session.recover()`: the batch is done when its `open` is 0."""
        if batch.begun:
            return
        batch.begun = True
        self.flush_receivers()

        def give_back() -> None:
            self.give_back(batch.deliveries, batch.why)
            batch.open = 0
            self.grant()
            self.touch()

        self.quiesce(give_back)
