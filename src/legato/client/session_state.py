"""What a client remembers so that a failover loses and doubles nothing. Pure: no sockets, threads or clocks.

1. `Outgoing` belongs to a producer: what is not confirmed yet is sent again, with the same numbers (promise 1).
2. `Incoming` belongs to a consumer: what the application has, or acknowledged without being told so, is not presented
   again when it comes again (promise 5).
3. `Transaction` belongs to a transacted session: what it sent can be replayed (promise 3). A failover dooms one that
   did work: from then on it absorbs sends and receives, until `commit()`, which raises once, or `rollback()`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any

from legato.errors import JMSError

if TYPE_CHECKING:
    from legato.client.completion import Completion
    from legato.client.large import Region


class AcknowledgeMode(IntEnum):
    """When received messages count as consumed (Jakarta Messaging 6.2.8, CONTRACT C1); long names are Jakarta's."""

    SESSION_TRANSACTED = 0
    """With the session's `commit()`."""
    AUTO = 1
    """When `receive()` or the listener returns."""
    CLIENT = 2
    """When the application calls `Message.acknowledge()`, which covers all that the session received."""
    DUPS_OK = 3
    """Some time after `receive()` or the listener returned; a failure may bring several messages again."""
    INDIVIDUAL = 101
    """When the application calls `Message.acknowledge()`, which covers that message alone; not in Jakarta Messaging."""
    AUTO_ACKNOWLEDGE = 1
    CLIENT_ACKNOWLEDGE = 2
    DUPS_OK_ACKNOWLEDGE = 3


def checked_mode(mode: int) -> AcknowledgeMode:
    """`mode` as one of the acknowledge modes.

    Raises:
        JMSError: it is none (CONTRACT A23).
    """
    try:
        return AcknowledgeMode(mode)
    except ValueError:
        raise JMSError(f"The acknowledge mode must be one of AcknowledgeMode, not {mode!r}.") from None


class Send:
    """One message on its way to a broker."""

    __slots__ = (
        "awaited",
        "completion",
        "data",
        "decided",
        "done",
        "error",
        "message",
        "number",
        "stream",
        "transaction",
        "watched",
    )

    def __init__(
        self,
        number: int,
        data: bytes,
        message: Any,
        transaction: Transaction | None = None,
        completion: Completion | None = None,
        stream: Region | None = None,
    ) -> None:
        self.number = number
        self.data = data
        self.message = message
        self.stream = stream
        """What follows `data`, if it is not in memory."""
        self.transaction = transaction
        self.completion = completion
        """Whom to tell once it is done."""
        self.awaited = False
        """Whether `send()` waits until it is done."""
        self.watched = True
        """Whether somebody looks at `error`."""
        self.decided = False
        """Whether the broker has said what became of it; `done` follows in the order of the sends."""
        self.done = False
        self.error: JMSError | None = None


class Outgoing:
    """A producer's sends, in the order of their numbers: first those on the wire, then those that wait for credit."""

    __slots__ = ("last_number", "unconfirmed", "waiting")

    def __init__(self) -> None:
        self.last_number = 0
        """Of the messages sent so far; the application's thread counts."""
        self.waiting: deque[Send] = deque()
        self.unconfirmed: deque[Send] = deque()

    def decided(self, send: Send, error: JMSError | None) -> list[Send]:
        """The broker decided about a send; returns those that are done thereby, in the order in which they were sent.

        Jakarta Messaging 7.3.8 wants that order; the engine reports a range of dispositions in any.
        """
        send.decided = True
        send.error = error
        unconfirmed = self.unconfirmed
        done = []
        while unconfirmed and unconfirmed[0].decided:
            done.append(unconfirmed.popleft())
        return done

    def connection_lost(self) -> int:
        """Put what is unconfirmed back in front of what waits, except transactions' sends; returns how many."""
        again = [send for send in self.unconfirmed if send.transaction is None]
        for send in again:
            send.decided = False
        self.unconfirmed.clear()
        self.waiting.extendleft(reversed(again))
        return len(again)


class DeliveryState(Enum):
    """Where a delivery stands, from the client's side."""

    HERE = "here"
    ACCEPTING = "accepting"
    """We said accepted, the broker has not confirmed."""
    ACKNOWLEDGED = "acknowledged"
    ELSEWHERE = "elsewhere"
    """Another receiver has or had it."""
    RETURNED = "returned"
    """We gave it back, or will get it again as a new delivery."""


class Delivery:
    """One message that a broker handed to a consumer; `handle` names it on the link numbered `link`."""

    __slots__ = ("batch", "consumer", "data", "handle", "link", "state", "stated", "tag")

    def __init__(self, consumer: Any, link: int, handle: int, tag: bytes, data: bytes) -> None:
        self.consumer = consumer
        self.link = link
        self.handle = handle
        self.tag = tag
        self.data = data
        self.state = DeliveryState.HERE
        self.stated = False
        """Whether a broker was told that it is accepted."""
        self.batch: AckBatch | None = None

    @property
    def seq(self) -> int:
        """The message's sequence number in its queue, which is what Legato's brokers use as tag."""
        return int.from_bytes(self.tag, "big")


class AckBatch:
    """One `acknowledge()`: how many confirmations it waits for."""

    __slots__ = ("deliveries", "open", "why")

    def __init__(self, deliveries: list[Delivery], why: str = "") -> None:
        self.deliveries = deliveries
        self.why = why
        """What the application raised when it had them, if they are given back for that."""
        self.open = len(deliveries)

    def elsewhere(self) -> list[Delivery]:
        """Those that another receiver has or had."""
        return [delivery for delivery in self.deliveries if delivery.state is DeliveryState.ELSEWHERE]


def finish(delivery: Delivery, state: DeliveryState) -> None:
    """The last word on a delivery; its batch, if any, waits for one less."""
    if delivery.state not in (DeliveryState.HERE, DeliveryState.ACCEPTING):
        return
    delivery.state = state
    if delivery.batch is not None:
        delivery.batch.open -= 1


class Incoming:
    """A consumer's deliveries that are not settled: those ready in `inbox`, and those that the application has.

    The application's thread takes from `inbox`; all else happens in the I/O thread. So what is outstanding and no
    longer in `inbox` is with the application, however the threads interleave.
    """

    __slots__ = ("_awaited", "inbox", "link", "outstanding")

    def __init__(self) -> None:
        self.inbox: deque[Delivery] = deque()
        self.outstanding: dict[bytes, Delivery] = {}
        self.link = 0
        """Counts the links this consumer has had."""
        self._awaited: int | None = None
        """Held deliveries that the broker has yet to send again on this link; None before it said how many."""

    def arrived(self, consumer: Any, handle: int, tag: bytes, data: bytes, *, settled: bool = False) -> Delivery | None:
        """A transfer came. Returns the delivery if the application has it already: it must not be presented again."""
        known = self.outstanding.get(tag)
        if known is not None and known.link != self.link:
            known.link = self.link
            known.handle = handle
            if self._awaited:
                self._awaited -= 1
            return known
        delivery = Delivery(consumer, self.link, handle, tag, data)
        if settled:
            delivery.state = DeliveryState.ACKNOWLEDGED
        else:
            self.outstanding[tag] = delivery
        self.inbox.append(delivery)
        return None

    def connection_lost(self, *, keep: bool) -> list[Delivery]:
        """Forget what was not presented: it comes again. Returns what the application has.

        Args:
            keep: whether the application may still acknowledge what it has (AUTO and CLIENT).
        """
        inbox = self.inbox
        while inbox:
            try:
                delivery = inbox.popleft()
            except IndexError:  # the application took the last one
                break
            self.outstanding.pop(delivery.tag, None)
            delivery.state = DeliveryState.RETURNED
        with_application = list(self.outstanding.values())
        if not keep:
            self.outstanding.clear()
            for delivery in with_application:
                finish(delivery, DeliveryState.RETURNED)
        self.link += 1
        self._awaited = None
        return with_application

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
            return self._close([d for d in self.outstanding.values() if d.link != self.link], DeliveryState.RETURNED)
        lost = {seq.to_bytes(8, "big") for seq in elsewhere}
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
        missing = [d for d in self.outstanding.values() if d.link != self.link]
        ours = self._close([d for d in missing if d.stated], DeliveryState.ACKNOWLEDGED)
        return ours + self._close([d for d in missing if not d.stated], DeliveryState.ELSEWHERE)

    def _close(self, deliveries: list[Delivery], state: DeliveryState) -> list[Delivery]:
        for delivery in deliveries:
            del self.outstanding[delivery.tag]
            finish(delivery, state)
        return deliveries


class Transaction:
    """One transaction of a session, from the end of the one before."""

    __slots__ = ("doomed", "failure", "following", "id", "outcome", "received", "sends", "took")

    def __init__(self) -> None:
        self.id: bytes | None = None
        """The broker's name for it; None until it was declared."""
        self.sends: list[tuple[Any, Send]] = []
        """(the producer's I/O half, send), in order."""
        self.received: list[Delivery] = []
        """Deliveries that it took and that are not part of it at the broker yet."""
        self.took = False
        """Whether it received anything."""
        self.doomed = False
        self.failure: JMSError | None = None
        self.outcome: bool | None = None
        """True committed, False rolled back, None open."""
        self.following: Transaction | None = None
        """Its successor, if it ended without work: that one uses the broker's transaction."""

    @property
    def did_work(self) -> bool:
        """Whether it matters to anybody if it commits (CONTRACT B17)."""
        return self.took or bool(self.sends)

    def doom(self, failure: JMSError) -> None:
        """It can only roll back; `failure` says why."""
        self.doomed = True
        self.failure = failure
