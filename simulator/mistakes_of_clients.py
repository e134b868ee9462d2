"""Mistakes to plant in the client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from legato.amqp.engine.events import Attached
from legato.client.calls.undertakings import Undertakings
from legato.client.failover.wire import Wire
from legato.client.links.channel import Channel
from legato.client.links.coordinator_end import CoordinatorEnd
from legato.client.links.deliveries import AckBatch, Delivery, Incoming
from legato.client.links.receiver_end import LAZY_MAX, ReceiverEnd
from legato.client.links.sender_end import SenderEnd
from legato.client.links.session_state import AcknowledgementOutcome, AcknowledgeMode, Outgoing, Send
from legato.client.links.temporaries import TemporaryEnd
from legato.client.links.transaction_outcome import Query
from legato.client.steps import NOTHING, Steps
from legato.errors import JMSError

_answer = Query.answer
_on_attached = ReceiverEnd.on_attached
_claims_answered = Incoming.claims_answered
_connection_lost = Outgoing.connection_lost
_decided = Outgoing.decided


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


def resend_the_last_first(self: Outgoing) -> int:
    """The client sends again what was not confirmed, and the last one of it first."""
    resent = _connection_lost(self)
    again = [self.waiting.popleft() for _ in range(resent)]
    self.waiting.extendleft(again)
    return resent


def forget_the_oldest_first(self: Incoming) -> list[Delivery]:
    """The I/O thread forgets what waits from where the application's thread takes it."""
    unseen = []
    while self.inbox:
        try:
            unseen.append(self.inbox.popleft())
        except IndexError:
            break
    return unseen


def credit_before_what_goes_back(self: Wire) -> None:
    """The broker hears of credit before it hears of what comes back."""


def none_elsewhere(self: Incoming, coming: int | None, elsewhere: Iterable[int]) -> list[Delivery]:
    """The client does not hear what others have of what it held."""
    return _claims_answered(self, coming, ())


def all_accepted(self: AckBatch, delivery: Delivery) -> AcknowledgementOutcome:
    """Every acknowledgement counted, as the client tells it."""
    return AcknowledgementOutcome.ACCEPTED


def never_committed(self: Query, outcome: Any) -> None:
    """Whoever asks what became of a commit hears that it was rolled back."""
    _answer(self, outcome)
    self.committed = False


def no_abort(self: Channel, failure: JMSError, cause: JMSError) -> None:
    """Applications do not hear of what a failover aborted."""


def hear_nothing(self: Undertakings, until: Any = None, timeout_s: float | None = None) -> Steps[bool]:
    """D1: no call waits for the end of what an interrupted one had begun."""
    yield from NOTHING
    return True


def deletion_forgotten(self: TemporaryEnd) -> None:
    """D8 (a18): `delete()` returns if the connection is lost meanwhile."""
    self.link = None
    if self.closing:
        self._close_done()


def lazy_and_silent(self: ReceiverEnd) -> None:
    """DUPS_OK: the broker does not hear what `receive()` has returned before that is acknowledged."""
    lazy = self.channel.mode is AcknowledgeMode.DUPS_OK
    if lazy and len(self.accepted) < LAZY_MAX and self.incoming.inbox:
        self.scheduled = False
        self.widen()
    else:
        self.flush()


def commit_behind_what_is_gone(self: SenderEnd) -> None:
    """What a failover rolled back before it was sent stays in front of what follows, which a commit does not see."""
    if self.closing and self._upload is None:
        self.outgoing.drop_done()


def commit_without_what_came_back(self: CoordinatorEnd, receiver: ReceiverEnd, error: JMSError) -> None:
    """A transaction commits without what it received over a link that the broker has ended."""


def last_words_twice(self: Outgoing, sends: Iterable[Send], error: JMSError | None) -> list[Send]:
    """Who was told that the broker has ended the link hears something else of what came there afterwards."""
    sends = list(sends)
    done = _decided(self, sends, error)
    for send in sends:
        send.error = error
    return done


def claims_of_any_queue(self: ReceiverEnd, event: Attached) -> None:
    """What a queue had given that was deleted since is claimed of another one of the same name."""
    _on_attached(self, event)
    self._queue = None
