"""State of a session that survives a failover, so that nothing is lost or done twice. Pure: no I/O, no clock.

1. `Outgoing` belongs to a producer: unconfirmed messages are sent again, with the same numbers (promise 1).
2. `Transaction` belongs to a transacted session: its sends can be replayed (promise 3). A failover dooms one that
   did work: from then on it absorbs sends and receives, until `commit()`, which raises once, or `rollback()`.
3. The state of consumers is in `deliveries`.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any

import msgspec

from legato.errors import JMSError

if TYPE_CHECKING:
    from legato.client.links.completion import Completion
    from legato.client.links.deliveries import Delivery
    from legato.client.messages.large import Region


class AcknowledgeMode(IntEnum):
    """Acknowledgement modes (Jakarta Messaging 6.2.10, CONTRACT C1); long names are Jakarta's."""

    SESSION_TRANSACTED = 0
    """With the session's `commit()`."""
    AUTO = 1
    """When `receive()` or the listener returns."""
    CLIENT = 2
    """When the application calls `Message.acknowledge()`, which covers all that the session received."""
    DUPS_OK = 3
    """Some time after `receive()` or the listener returned; a failure may bring several messages again, not all of them
    counted."""
    INDIVIDUAL = 101
    """When the application calls `Message.acknowledge()`, which covers that message alone; not in Jakarta Messaging."""
    AUTO_ACKNOWLEDGE = 1
    CLIENT_ACKNOWLEDGE = 2
    DUPS_OK_ACKNOWLEDGE = 3


class AcknowledgementOutcome(Enum):
    """Outcome of the acknowledgement of one message (promise 5)."""

    ACCEPTED = "accepted"
    """It is consumed, by this acknowledgement."""
    ALREADY_ACKNOWLEDGED = "already acknowledged"
    """It is consumed by an earlier one of this session, or rejected by this session."""
    WENT_ELSEWHERE = "went elsewhere"
    """It is not this session's any more: another receiver got it, or it comes again."""


def checked_mode(mode: int) -> AcknowledgeMode:
    """`mode` as one of the acknowledge modes.

    Raises:
        JMSError: it is none (CONTRACT A23).
    """
    try:
        return AcknowledgeMode(mode)
    except ValueError:
        raise JMSError(f"The acknowledge mode must be one of AcknowledgeMode, not {mode!r}.") from None


class Send(msgspec.Struct, eq=False):
    """One message on its way to a broker."""

    number: int
    data: bytes
    message: Any
    transaction: Transaction | None = None
    completion: Completion | None = None
    """Whom to tell once it is done."""
    stream: Region | None = None
    """What follows `data`, if it is not in memory."""
    awaited: bool = False
    """Whether `send()` waits until it is done."""
    watched: bool = True
    """Whether somebody looks at `error`."""
    decided: bool = False
    """Whether the broker has said what became of it; `done` follows in the order of the sends."""
    done: bool = False
    error: JMSError | None = None
    repeats: Transaction | None = None
    """The transaction that had sent the same before, if `replay()` sends it again."""
    former: Send | None = None
    """Its send, which may be a repetition too."""


class Outgoing:
    """A producer's sends, in the order of their numbers: first those on the wire, then those that wait for credit.

    The I/O thread moves them; the application's thread asks whether there are any. A send that moves is at the place
    where it goes to before it leaves the other.
    """

    __slots__ = ("_moves_back", "last_number", "unconfirmed", "waiting")

    def __init__(self) -> None:
        self.last_number = 0
        """Of the messages sent so far; the application's thread counts."""
        self.waiting: deque[Send] = deque()
        self.unconfirmed: deque[Send] = deque()
        self._moves_back = 0
        """Odd while sends move to where `under_way` does not look: back to those that wait, or out of them."""

    @property
    def under_way(self) -> bool:
        """Whether a send is not done; any thread may ask."""
        before = self._moves_back
        return bool(self.waiting or self.unconfirmed) or before % 2 == 1 or before != self._moves_back

    def decided(self, sends: Iterable[Send], error: JMSError | None) -> list[Send]:
        """The broker decided about sends; returns those that are done thereby, in the order in which they were sent.

        Jakarta Messaging 7.3.3 wants that order; the engine reports a range of dispositions in any. They stay among
        the unconfirmed until `forget`, so that whoever looks sees each of them under way, or counted as done.
        """
        for send in sends:
            send.decided = True
            if not send.done:
                # Else its sender has heard already: the link has ended, or the transaction.
                send.error = error
        done = []
        for each in self.unconfirmed:
            if not each.decided:
                break
            done.append(each)
        return done

    def forget(self, done: list[Send]) -> None:
        """Forget the sends that `decided` has returned."""
        for _ in done:
            self.unconfirmed.popleft()

    def blocked(self) -> list[Send]:
        """What somebody waits for and no transaction holds: it is not to be sent again (CONTRACT E11).

        They stay until `drop`, as those that `decided` returns stay until `forget`.
        """
        found = [
            send
            for send in self.unconfirmed
            if send.transaction is None and (send.awaited or send.completion is not None)
        ]
        # Whoever waits for a send sends nothing else meanwhile: it is the last one.
        if self.waiting and self.waiting[-1].awaited:
            found.append(self.waiting[-1])
        return found

    def drop(self, blocked: list[Send]) -> None:
        """Forget the sends that `blocked` has returned."""
        for send in blocked:
            (self.unconfirmed if send in self.unconfirmed else self.waiting).remove(send)

    @property
    def unheard(self) -> int:
        """How many sends are unconfirmed that no call waits for, and no transaction holds."""
        sends = [*self.unconfirmed, *self.waiting]
        return sum(
            not (send.done or send.decided or send.transaction or (send.awaited and send.watched)) for send in sends
        )

    def refused(self) -> Iterator[Send]:
        """Take what waits, for the last time; who has just put it there may be faster, and take it back."""
        self._moves_back += 1
        with contextlib.suppress(IndexError):
            while True:
                yield self.waiting.popleft()
        self._moves_back += 1

    def drop_done(self) -> None:
        """Forget what waits and need not be sent any more: its transaction has ended without it."""
        waiting = self.waiting
        while waiting and waiting[0].done:
            waiting.popleft()

    def connection_lost(self) -> int:
        """Put what is unconfirmed back in front of what waits, except transactions' sends; returns how many."""
        again = [send for send in self.unconfirmed if send.transaction is None]
        for send in again:
            send.decided = False
        self._moves_back += 1
        self.waiting.extendleft(reversed(again))
        self.unconfirmed.clear()
        self._moves_back += 1
        return len(again)


def is_stored_already(send: Send) -> bool:
    """Whether a replayed send turned out to be needless: one of the transactions that it repeats had committed."""
    each: Send | None = send
    while each is not None:
        if each.repeats is not None and each.repeats.committed is True:
            return True
        each = each.former
    return False


class Transaction:
    """One transaction of a session, from the end of the one before."""

    __slots__ = ("committed", "doomed", "failure", "following", "id", "name", "outcome", "received", "sends", "took")

    def __init__(self) -> None:
        self.id: bytes | None = None
        """The broker's name for it; None until it was declared, and from when the connection to that broker is lost."""
        self.name: bytes | None = None
        """As `id`, but it stays."""
        self.committed: bool | None = None
        """What became of it in truth, once that was asked; it was told that it is rolled back."""
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
