"""A consumer's deliveries, kept over failovers. Pure: no sockets, threads or clocks.

`Incoming` knows which messages the application has, and which it acknowledged without learning the outcome. These are
not presented a second time if the broker delivers them again (promise 5).
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import Any

import msgspec

from legato.amqp.engine.outcomes import Outcome
from legato.client.links.session_state import AcknowledgementOutcome


class DeliveryState(Enum):
    """The state of a delivery in the client."""

    HERE = "here"
    ACCEPTING = "accepting"
    """We said accepted, the broker has not confirmed."""
    ACKNOWLEDGED = "acknowledged"
    ELSEWHERE = "elsewhere"
    """Another receiver has or had it."""
    RETURNED = "returned"
    """We gave it back, or will get it again as a new delivery."""


# A name of a module is found faster than a member of an enum: these are asked for with each message.
HERE = DeliveryState.HERE
ACCEPTING = DeliveryState.ACCEPTING
ACKNOWLEDGED = DeliveryState.ACKNOWLEDGED
GONE = (DeliveryState.ELSEWHERE, DeliveryState.RETURNED)
"""What is not this consumer's any more."""


class Delivery(msgspec.Struct, eq=False):
    """One message that a broker handed to a consumer; `handle` names it on the link numbered `link`."""

    consumer: Any
    link: int
    handle: int
    tag: bytes
    data: bytes
    state: DeliveryState = HERE
    stated: bool = False
    """Whether a broker was told that it is accepted."""
    batch: AckBatch | None = None
    again: bool = False
    """Whether the application had it before a failover, and is to get it again."""
    announced: bool = False
    """Whether the broker was told that it is presented before it is."""
    verdict: Outcome | None = None
    """What the application wants done with it at the commit, if not accepted."""
    times: int = 0
    """How often it got it again; the broker, which sends it as what is held, does not count that."""

    @property
    def seq(self) -> int:
        """The message's sequence number in its queue, which is what Legato's brokers use as tag."""
        return int.from_bytes(self.tag, "big")


class AckBatch:
    """One `acknowledge()`: how many confirmations it waits for.

    Args:
        resolved: whether it waits for the truth, whatever the failover contract says.
    """

    __slots__ = ("begun", "deliveries", "open", "resolved", "why")

    def __init__(self, deliveries: list[Delivery], why: str = "", *, resolved: bool = False) -> None:
        self.deliveries = deliveries
        self.resolved = resolved
        self.why = why
        """What the application raised when it had them, if they are given back for that."""
        self.open = len(deliveries)
        self.begun = False
        """Whether the I/O thread does it, or has done it: who was interrupted may ask again."""

    def outcome(self, delivery: Delivery) -> AcknowledgementOutcome:
        """Outcome of one of its deliveries, once none is open."""
        if delivery.state is not ACKNOWLEDGED:
            return AcknowledgementOutcome.WENT_ELSEWHERE
        if delivery.batch is not self:
            return AcknowledgementOutcome.ALREADY_ACKNOWLEDGED
        return AcknowledgementOutcome.ACCEPTED

    def elsewhere(self) -> list[Delivery]:
        """Messages that no longer belong to the session."""
        return [each for each in self.deliveries if self.outcome(each) is AcknowledgementOutcome.WENT_ELSEWHERE]


def finish(delivery: Delivery, state: DeliveryState) -> None:
    """The last word on a delivery; its batch, if any, waits for one less."""
    if delivery.state is not HERE and delivery.state is not ACCEPTING:
        return
    delivery.state = state
    if delivery.batch is not None:
        delivery.batch.open -= 1


class Incoming:
    """A consumer's deliveries that are not settled: those ready in `inbox`, and those that the application has.

    The application's thread takes from `inbox`; all else happens in the I/O thread. So what is outstanding and no
    longer in `inbox` is with the application, however the threads interleave.
    """

    __slots__ = ("_awaited", "_settled_early", "inbox", "link", "outstanding")

    def __init__(self) -> None:
        self.inbox: deque[Delivery] = deque()
        self.outstanding: dict[bytes, Delivery] = {}
        self.link = 0
        """Counts the links this consumer has had."""
        self._awaited: int | None = None
        """Held deliveries that the broker has yet to send again on this link; None before it said how many."""
        self._settled_early: dict[bytes, Outcome] = {}
        """What became of some of them before they came, by tag: the broker hears so when they come."""

    def arrived(self, consumer: Any, handle: int, tag: bytes, data: bytes, *, settled: bool = False) -> Delivery | None:
        """A transfer came. Returns the delivery if the application has it already: it must not be presented again."""
        known = self.outstanding.get(tag)
        if known is not None and known.link != self.link:
            known.link = self.link
            known.handle = handle
            known.stated = False
            if self._awaited:
                self._awaited -= 1
            if not (known.again and known.state is HERE):
                return known
            known.data = data
            self.inbox.append(known)
            self.claims_came()
            return None
        delivery = Delivery(consumer, self.link, handle, tag, data)
        if settled:
            delivery.state = ACKNOWLEDGED
        else:
            self.outstanding[tag] = delivery
        self.inbox.append(delivery)
        return None

    def arrived_together(self, consumer: Any, first_handle: int, tags: list[bytes], bodies: list[bytes]) -> bool:
        """Transfers with neighbouring handles came, none of them settled; False if each has to be looked at."""
        outstanding = self.outstanding
        if self.awaited or self._settled_early or not outstanding.keys().isdisjoint(tags):
            return False
        link = self.link
        arrive = self.inbox.append
        for handle, (tag, data) in enumerate(zip(tags, bodies, strict=True), first_handle):
            outstanding[tag] = delivery = Delivery(consumer, link, handle, tag, data)
            arrive(delivery)
        return True

    def wants(self, tag: bytes) -> bool:
        """Whether the application is to get the message that comes under a tag; it may have it still."""
        known = self.outstanding.get(tag)
        return known is None or known.link == self.link or known.again

    def settle_early(self, delivery: Delivery, outcome: Outcome) -> None:
        """The application is done with what was claimed on this link and has not come again yet."""
        self._settled_early[delivery.tag] = outcome

    def settled_early(self, tag: bytes) -> Outcome | None:
        """Outcome of a claimed delivery that arrives now; None if it is not settled."""
        outcome = self._settled_early.pop(tag, None)
        if outcome is not None and self._awaited:
            self._awaited -= 1
        return outcome

    def comes_not(self, tag: bytes) -> None:
        """What was to come under a tag does not: if it was claimed, nobody is to wait for it."""
        self.settled_early(tag)
        known = self.outstanding.get(tag)
        if known is not None and known.link != self.link:
            if self._awaited:
                self._awaited -= 1
            self._close([known], DeliveryState.RETURNED)
        self.claims_came()

    def take_unseen(self) -> Iterable[Delivery]:
        """Take out what the application has not had, and return that in its order.

        From the end, since the application's thread may take messages meanwhile: it has to find the oldest one. If it
        found a later one, those before it would come to it afterwards.
        """
        inbox, unseen = self.inbox, deque[Delivery]()
        while inbox:
            try:
                unseen.appendleft(inbox.pop())
            except IndexError:  # the application took the last one
                break
        return unseen

    def connection_lost(
        self, *, keep: bool, again: bool = False, resolve: bool = True, presents: bool = True
    ) -> list[Delivery]:
        """Forget what was not presented: it comes again. Returns what the application has.

        Args:
            keep: whether the application may still acknowledge what it has (AUTO and CLIENT).
            again: whether it is to get that again all the same.
            resolve: whether an acknowledgement in flight is waited for; otherwise it is as if it had not been made.
            presents: whether it can get anything again; otherwise what it is not acknowledging yet is forgotten.
        """
        for delivery in self.take_unseen():
            if not delivery.again:
                self.outstanding.pop(delivery.tag, None)
                delivery.state = DeliveryState.RETURNED
        with_application = list(self.outstanding.values())
        # First: who looks whether a delivery came again compares its link with this one.
        self.link += 1
        if not keep:
            self.outstanding.clear()
            for delivery in with_application:
                finish(delivery, DeliveryState.RETURNED)
        elif again:
            for delivery in with_application:
                self._present_again(delivery, resolve)
            if not presents:
                self._close([each for each in with_application if each.again], DeliveryState.RETURNED)
                for delivery in with_application:
                    delivery.again = False
        self._awaited = None
        self._settled_early.clear()
        return with_application

    def _present_again(self, delivery: Delivery, resolve: bool) -> None:
        if delivery.state is ACCEPTING:
            if resolve or (delivery.batch is not None and delivery.batch.resolved):
                return
            delivery.state = HERE
            delivery.batch = None
        delivery.again = True

    def taken_back(self, delivery: Delivery) -> None:
        """The application acknowledges after all what it was to get again."""
        if delivery.again:
            delivery.again = False
            with contextlib.suppress(ValueError):
                self.inbox.remove(delivery)

    def forget_beyond(self, limit: int) -> None:
        """Keep only the oldest `limit` of those that the application has; the others come again."""
        self._close(list(self.outstanding.values())[limit:], DeliveryState.RETURNED)

    def held(self) -> list[int]:
        """Sequence numbers to claim when attaching again (`names.HELD`)."""
        return [delivery.seq for delivery in self.outstanding.values()]

    def claims_answered(self, coming: int | None, elsewhere: Iterable[int]) -> list[Delivery]:
        """The broker answered the claims; returns those that are decided by that and by what came so far.

        Args:
            coming: how many it sends again; None if it does not know of claims and sends them as if they were new.
            elsewhere: sequence numbers that other receivers have or had.
        """
        if coming is None:
            self._settled_early.clear()
            return self._close([d for d in self.outstanding.values() if d.link != self.link], DeliveryState.RETURNED)
        lost = {seq.to_bytes(8, "big") for seq in elsewhere}
        for tag in lost:
            self._settled_early.pop(tag, None)
        gone = self._close([d for d in self.outstanding.values() if d.tag in lost], DeliveryState.ELSEWHERE)
        self._awaited = coming
        return gone + self.claims_came()

    @property
    def awaited(self) -> int:
        """How many of those that the application holds have yet to come again on this link."""
        return max(self._awaited or 0, 0)

    def claims_came(self) -> list[Delivery]:
        """Once all awaited ones came: the rest, which left the queue before the failover.

        By our acknowledgement if any broker had heard of it; what we never acknowledged left by somebody else.
        """
        if self._awaited != 0:
            return []
        self._awaited = -1
        self._settled_early.clear()
        missing = [d for d in self.outstanding.values() if d.link != self.link]
        ours = self._close([d for d in missing if d.stated], ACKNOWLEDGED)
        return ours + self._close([d for d in missing if not d.stated], DeliveryState.ELSEWHERE)

    def _close(self, deliveries: list[Delivery], state: DeliveryState) -> list[Delivery]:
        for delivery in deliveries:
            del self.outstanding[delivery.tag]
            finish(delivery, state)
        # A call may have given some back: there they would take the room of others.
        for delivery in set(self.inbox).intersection(deliveries):
            with contextlib.suppress(ValueError):
                self.inbox.remove(delivery)
        return deliveries
