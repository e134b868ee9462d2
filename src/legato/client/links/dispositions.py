"""Dispositions of a consumer (received, accepted, released, modified, rejected) and their confirmations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from legato.amqp import names
from legato.amqp.engine.events import ConfirmedRun, Disposition
from legato.amqp.engine.outcomes import ACCEPTED, DELIVERY_FAILED, RECEIVED, RELEASED, Modified, Outcome, Rejected
from legato.client.links.deliveries import (
    ACCEPTING,
    ACKNOWLEDGED,
    HERE,
    AckBatch,
    Delivery,
    DeliveryState,
    finish,
)
from legato.client.links.prefetch import PrefetchEnd

if TYPE_CHECKING:
    from legato.client.links.ports import ChannelPort


class DispositionEnd(PrefetchEnd):
    """Link end with dispositions. Runs in the I/O thread."""

    def __init__(self, channel: ChannelPort, prefetch: int) -> None:
        super().__init__(channel, prefetch)
        self._accepting: dict[int, Delivery] = {}

    def flush(self) -> None:
        """State what the application's thread has said since the last time."""
        raise NotImplementedError

    def close_if_asked(self) -> None:
        """Something that closing waits for has happened."""
        raise NotImplementedError

    def present(self, delivery: Delivery) -> None:
        """Say that the application has a message now (promise 4)."""
        if delivery.link == self.incoming.link and self.link is not None:
            self.link.update(delivery.handle, RECEIVED)

    def accept(self, delivery: Delivery) -> None:
        """Acknowledge a message and ask to be told when that is durable."""
        if delivery.state is HERE:
            delivery.state = ACCEPTING
            if delivery.link == self.incoming.link and self.link is not None:
                self._state_accepted(delivery)

    def accept_all(self, deliveries: list[Delivery]) -> None:
        """`accept` many; neighbours are stated at once."""
        link = self.link
        number = self.incoming.link
        accepting = self._accepting
        first = next_handle = 0
        for delivery in deliveries:
            if delivery.state is not HERE:
                continue
            delivery.state = ACCEPTING
            if link is None or delivery.link != number:
                continue
            handle = delivery.handle
            accepting[handle] = delivery
            delivery.stated = True
            if handle != next_handle:
                if first:
                    link.state_accepted(first, next_handle - first)
                first = handle
            next_handle = handle + 1
        if first:
            assert link is not None
            link.state_accepted(first, next_handle - first)

    def accept_for(self, delivery: Delivery, batch: AckBatch) -> None:
        """Acknowledge a message on behalf of `Message.acknowledge()`."""
        if delivery.state is HERE:
            self.incoming.taken_back(delivery)
            delivery.batch = batch
            self.accept(delivery)
        else:
            batch.open -= 1

    def _state_accepted(self, delivery: Delivery) -> None:
        assert self.link is not None
        self._accepting[delivery.handle] = delivery
        delivery.stated = True
        self.link.update(delivery.handle, ACCEPTED)

    def settle(self, delivery: Delivery, outcome: Outcome, state: DeliveryState) -> None:
        """State an outcome that needs no confirmation; afterwards we know nothing of the delivery."""
        if delivery.state is not HERE:
            return
        self.incoming.outstanding.pop(delivery.tag, None)
        if self.link is not None:
            if delivery.link == self.incoming.link:
                self.link.settle(delivery.handle, outcome)
            else:
                self.incoming.settle_early(delivery, outcome)
        finish(delivery, state)

    def on_disposition(self, event: Disposition) -> None:
        """The broker settled a delivery that we accepted."""
        delivery = self._accepting.pop(event.context, None)
        if delivery is None:
            return
        outcome = event.outcome
        state = ACKNOWLEDGED
        if isinstance(outcome, Rejected) and outcome.condition != names.ALREADY_ACKNOWLEDGED:
            state = DeliveryState.ELSEWHERE
        self.incoming.outstanding.pop(delivery.tag, None)
        # Before the application hears of it: what it does next may need the link to be gone.
        self.close_if_asked()
        finish(delivery, state)
        if delivery.batch is not None:
            if isinstance(outcome, Rejected):
                delivery.batch = None
            self.channel.touch()

    def on_confirmed(self, event: ConfirmedRun) -> None:
        """The broker settled, as accepted, neighbours that we accepted."""
        take = self._accepting.pop
        outstanding = self.incoming.outstanding
        confirmed = []
        for handle in range(event.delivery, event.delivery + event.count):
            delivery = take(handle, None)
            if delivery is not None:
                outstanding.pop(delivery.tag, None)
                confirmed.append(delivery)
        # Before the application hears of it: what it does next may need the link to be gone.
        self.close_if_asked()
        for delivery in confirmed:
            if delivery.batch is None and delivery.state is ACCEPTING:
                delivery.state = ACKNOWLEDGED
                continue
            finish(delivery, ACKNOWLEDGED)
            if delivery.batch is not None:
                self.channel.touch()

    # -- giving back -------------------------------------------------------------------------------------

    def give_back(self, failed: list[Delivery], why: str = "") -> None:
        """Return `failed`, which the application has had, and all that it has not had yet, in their order."""
        outcome = Modified(delivery_failed=True, text=why) if why else DELIVERY_FAILED
        for delivery in failed:
            self.settle(delivery, outcome, DeliveryState.RETURNED)
        self._return_unseen()
        self.close_if_asked()

    def decide(self, delivery: Delivery, outcome: Outcome) -> None:
        """Settle one message that the application has had, by the outcome that it wants."""
        self.flush()
        self.incoming.taken_back(delivery)
        # A dead letter is removed, as what is acknowledged is; all else comes again.
        removed = isinstance(outcome, Rejected)
        self.settle(delivery, outcome, ACKNOWLEDGED if removed else DeliveryState.RETURNED)
        self.close_if_asked()
        self.grant()
        self.channel.touch()

    def refuse_message(self, delivery: Delivery, outcome: Outcome) -> None:
        """The application cannot have it; another one may come instead."""
        self.settle(delivery, outcome, DeliveryState.RETURNED)
        self.close_if_asked()
        self.widen()

    def _return_unseen(self) -> None:
        if not self.prefetch and self.channel.listening:
            # Its listener asks no more before it is called.
            self.lost()
        for delivery in self.incoming.take_unseen():
            self.settle(delivery, RELEASED, DeliveryState.RETURNED)
