"""The links of a session, and operations on all of them. Runs in the I/O thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from legato.client.links.coordinator_end import CoordinatorEnd
from legato.client.links.deliveries import Delivery
from legato.client.links.link_names import Named
from legato.client.links.receiver_end import ReceiverEnd
from legato.client.links.sender_end import SenderEnd
from legato.client.links.session_state import Transaction
from legato.client.links.temporaries import TemporaryEnd
from legato.client.links.unsubscribe_end import UnsubscribeEnd
from legato.errors import IllegalStateError, JMSError

if TYPE_CHECKING:
    from legato.amqp.engine.link import Session as EngineSession
    from legato.client.links.browser_end import BrowserEnd
    from legato.client.links.transport import Transport

Other = TemporaryEnd | UnsubscribeEnd
End = SenderEnd | ReceiverEnd | CoordinatorEnd | Other


class ChannelEnds:
    """A session's links."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.session: EngineSession | None = None
        self.senders: list[SenderEnd] = []
        self.receivers: list[ReceiverEnd] = []
        self.browsers: list[BrowserEnd] = []
        self.others: list[Other] = []
        self.coordinator: CoordinatorEnd | None = None

    # -- one by one --------------------------------------------------------------------------------------

    def _ends(self) -> list[End]:
        ends: list[End] = [] if self.coordinator is None else [self.coordinator]
        return [*ends, *self.others, *self.senders, *self.receivers]

    def attach(self, end: End) -> None:
        """Attach a link, if there is a wire and it has its name; if not, that happens with the next one, or then."""
        transport = self.transport
        if self.session is not None and transport.wire is not None and transport.link_names.lets(end):
            transport.awaits(end)
            end.attach()

    def add_sender(self, sender: SenderEnd) -> None:
        """A producer was created."""
        self.senders.append(sender)
        self.attach(sender)

    def add_receiver(self, receiver: ReceiverEnd) -> None:
        """A consumer was created."""
        self.receivers.append(receiver)
        self._attach_named(receiver)

    def add(self, end: TemporaryEnd) -> None:
        """A temporary destination was created."""
        self.others.append(end)
        self.attach(end)

    def unsubscribe(self, end: UnsubscribeEnd) -> None:
        """A subscription is to be ended; who was interrupted asks again."""
        if end not in self.others and not end.closed:
            self.others.append(end)
            self._attach_named(end)

    def _attach_named(self, end: Named) -> None:
        try:
            self.transport.link_names.take(end)
        except IllegalStateError as error:
            end.refuse(error)
        else:
            self.attach(end)

    def give_back_name(self, end: Named) -> None:
        """The link of a consumer, or one that ended a subscription, is closed: the next one may have its name."""
        following = self.transport.link_names.give_back(end)
        if following is not None:
            # The engine says attaches before detaches.
            self.transport.encode()
            following.channel.attach(following)

    def forget(self, end: Other) -> None:
        """Its link is closed."""
        if end in self.others:
            self.others.remove(end)
        if isinstance(end, UnsubscribeEnd):
            self.give_back_name(end)

    def add_browser(self, browser: BrowserEnd) -> None:
        """A browser was created."""
        self.browsers.append(browser)
        browser.attach()

    def forget_browser(self, browser: BrowserEnd) -> None:
        """A browser's link is closed."""
        if browser in self.browsers:
            self.browsers.remove(browser)

    # -- together ----------------------------------------------------------------------------------------

    def drop_sends(self, transaction: Transaction, error: JMSError) -> None:
        """A transaction is rolled back: what is not on the wire yet need not go there."""
        for sender in self.senders:
            sender.drop_sends(transaction, error)

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
        """Whether sends of a transaction are not on the wire yet."""
        return any(sender.holds_back(transaction) for sender in self.senders)

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
        # One that waited for that closes, and is forgotten.
        for receiver in list(self.receivers):
            receiver.give_back([delivery for delivery in failed if delivery.consumer is receiver], why)
        # The engine says flows before dispositions: for credit that the broker hears of first, it would give what is
        # later than what comes back.
        self.transport.encode()
