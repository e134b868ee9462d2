"""The I/O thread's half of a session: its AMQP session, its links, and what happens to all of them together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from legato.client.coordinator_end import CoordinatorEnd
from legato.client.deliveries import AckBatch, Delivery
from legato.client.gate import Gate
from legato.client.receiver_end import ReceiverEnd
from legato.client.sender_end import SenderEnd
from legato.client.session_state import AcknowledgeMode, Send, Transaction
from legato.client.temporaries import TemporaryEnd
from legato.client.unsubscribe_end import UnsubscribeEnd
from legato.errors import JMSError

if TYPE_CHECKING:
    from legato.amqp.link import Session as EngineSession
    from legato.client.browser_end import BrowserEnd
    from legato.client.transport import Transport

Other = TemporaryEnd | UnsubscribeEnd


class Interruption(msgspec.Struct, frozen=True):
    """What the loss of a connection did to one session.

    `aborted`: whether a transaction with work was rolled back; where the contract counts unacknowledged messages as
    one, also whether there were such. Kept deliveries stay with the application, returned ones come again.
    """

    resent_sends: int
    aborted: bool
    kept_deliveries: int
    returned_deliveries: int


End = SenderEnd | ReceiverEnd | CoordinatorEnd | Other


class Channel:
    """What a session has on the wire. Only where marked is it called by the application's thread."""

    def __init__(self, transport: Transport, name: str, mode: AcknowledgeMode, first: Transaction | None) -> None:
        self.transport = transport
        self.name = name
        self.mode = mode
        self.gate = Gate()
        self.session: EngineSession | None = None
        self.senders: list[SenderEnd] = []
        self.receivers: list[ReceiverEnd] = []
        self.browsers: list[BrowserEnd] = []
        self.others: list[Other] = []
        self.coordinator = None if first is None else CoordinatorEnd(self, f"{name}:coordinator", first)
        self.closing = False
        self.closed = False
        self.error: JMSError | None = None

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
            self.transport.post(receiver.flush)

    # -- its life ----------------------------------------------------------------------------------------

    @property
    def flowing(self) -> bool:
        """Whether messages may come: the connection is started (Jakarta Messaging 6.1.4)."""
        return self.transport.started and not self.closing

    def begin(self) -> None:
        """Begin on the transport's present wire, and attach every link."""
        assert self.transport.wire is not None
        if self.closed:
            return
        self.session = self.transport.wire.engine.begin_session()
        self.session.context = self
        for end in self._ends():
            self.attach(end)

    def _ends(self) -> list[End]:
        ends: list[End] = [] if self.coordinator is None else [self.coordinator]
        return [*ends, *self.others, *self.senders, *self.receivers]

    def attach(self, end: End) -> None:
        """Attach a link, if there is a wire; if not, that happens with the next one."""
        if self.session is not None:
            self.transport.awaits(end)
            end.attach()

    def add_sender(self, sender: SenderEnd) -> None:
        """A producer was created."""
        self.senders.append(sender)
        self.attach(sender)

    def add_receiver(self, receiver: ReceiverEnd) -> None:
        """A consumer was created."""
        self.receivers.append(receiver)
        self.attach(receiver)

    def add(self, end: Other) -> None:
        """Something else was created."""
        self.others.append(end)
        self.attach(end)

    def forget(self, end: Other) -> None:
        """Its link is closed."""
        if end in self.others:
            self.others.remove(end)

    def forget_sender(self, sender: SenderEnd) -> None:
        """A producer's link is closed."""
        if sender in self.senders:
            self.senders.remove(sender)
        self._end_when_done()

    def forget_receiver(self, receiver: ReceiverEnd) -> None:
        """A consumer's link is closed."""
        if receiver in self.receivers:
            self.receivers.remove(receiver)
        self._end_when_done()

    def add_browser(self, browser: BrowserEnd) -> None:
        """A browser was created."""
        self.browsers.append(browser)
        browser.attach()

    def forget_browser(self, browser: BrowserEnd) -> None:
        """A browser's link is closed."""
        if browser in self.browsers:
            self.browsers.remove(browser)

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
        aborted = False
        if self.coordinator is not None:
            aborted = self.coordinator.connection_lost(cause, application_has_messages=bool(kept))
            returned += len(kept)
            kept.clear()
        self._end_when_done()
        self.touch()
        return Interruption(resent, aborted, len(kept), returned)

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
        self.touch()

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
            if sender.outgoing.waiting or sender.outgoing.unconfirmed:
                sender.ready = False
                sender.fail(error)
                sender.close()
        if self.coordinator is not None:
            self.coordinator.pump()

    def drop_sends(self, transaction: Transaction, error: JMSError) -> None:
        """A transaction is rolled back: what is not on the wire yet need not go there."""
        for sender in self.senders:
            sender.drop_sends(transaction, error)

    def abandon(self, error: JMSError) -> None:
        """The connection is gone for good: whatever waits hears so."""
        self.fail_quietly(error)
        self.closed = True
        self.touch()

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
        self.transport.forget(self)
        self.touch()

    # -- together ----------------------------------------------------------------------------------------

    def touch(self) -> None:
        """Something changed that the application's thread may wait for."""
        self.transport.touched.add(self.gate)

    def report(self, error: JMSError) -> None:
        """Tell the connection's exception listener."""
        self.transport.report(error)

    def complete(self, send: Send) -> None:
        """Call a send's completion listener, in the thread for that."""
        self.transport.completed.append(send)

    def grant(self) -> None:
        """Let messages come."""
        for receiver in self.receivers:
            receiver.grant()

    def flush_receivers(self) -> None:
        """State all that the application's thread asked for so far."""
        for receiver in list(self.receivers):
            receiver.flush()

    def close_receivers_that_wait(self) -> None:
        """Close those that waited for the transaction to take what they received."""
        for receiver in list(self.receivers):
            receiver.close_if_asked()

    def pump_senders(self) -> None:
        """Send what can be sent."""
        for sender in list(self.senders):
            sender.pump()

    def has_waiting_sends(self, transaction: Transaction) -> bool:
        """Whether sends of a transaction are not on the wire yet; those of the next one come after them."""
        return any(
            sender.outgoing.waiting and sender.outgoing.waiting[0].transaction is transaction for sender in self.senders
        )

    def quiesce(self, then: Callable[[], None]) -> None:
        """Stop the flow of messages, then call `then`; `grant` lets it flow again."""
        waiting = len(self.receivers)
        if not waiting:
            then()
            return

        def one_drained() -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting:
                then()

        for receiver in list(self.receivers):
            receiver.drain(one_drained)

    def give_back(self, failed: list[Delivery], why: str = "") -> None:
        """Return messages in order: those that the application has had, and why, and those it has not."""
        for receiver in self.receivers:
            receiver.give_back([delivery for delivery in failed if delivery.consumer is receiver], why)

    # -- what the application asks for -------------------------------------------------------------------

    def acknowledge(self, batch: AckBatch) -> None:
        """`Message.acknowledge()`: the batch is done when its `open` is 0."""
        self.flush_receivers()
        for delivery in batch.deliveries:
            delivery.consumer.accept_for(delivery, batch)
        self.touch()

    def recover(self, batch: AckBatch) -> None:
        """`Session.recover()`: the batch is done when its `open` is 0."""
        self.flush_receivers()

        def give_back() -> None:
            self.give_back(batch.deliveries, batch.why)
            batch.open = 0
            self.grant()
            self.touch()

        self.quiesce(give_back)
