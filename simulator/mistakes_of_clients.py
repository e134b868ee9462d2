"""Mistakes to plant in the client."""

from __future__ import annotations

from typing import Any

from legato.client.channel import Channel
from legato.client.deliveries import AckBatch, Delivery, DeliveryState, Incoming
from legato.client.endings import Query
from legato.client.session_state import AcknowledgementOutcome, Outgoing
from legato.errors import JMSError

_answer = Query.answer
_connection_lost = Outgoing.connection_lost


def resend_as_new(self: Outgoing) -> int:
    """The client numbers anew what it sends again."""
    resent = _connection_lost(self)
    for send in self.waiting:
        self.last_number += 1
        send.number = self.last_number
    return resent


def resend_nothing(self: Outgoing) -> int:
    """The client does not send again what was not confirmed."""
    self.unconfirmed.clear()
    return _connection_lost(self)


def all_acknowledged(self: Incoming) -> list[Delivery]:
    """The client takes for acknowledged whatever does not come again."""
    if self._awaited != 0:
        return []
    self._awaited = -1
    missing = [delivery for delivery in self.outstanding.values() if delivery.link != self.link]
    return self._close(missing, DeliveryState.ACKNOWLEDGED)


def all_accepted(self: AckBatch, delivery: Delivery) -> AcknowledgementOutcome:
    """Every acknowledgement counted, as the client tells it."""
    return AcknowledgementOutcome.ACCEPTED


def never_committed(self: Query, outcome: Any) -> None:
    """Whoever asks what became of a commit hears that it was rolled back."""
    _answer(self, outcome)
    self.committed = False


def no_abort(self: Channel, failure: JMSError, cause: JMSError) -> None:
    """Applications do not hear of what a failover aborted."""
