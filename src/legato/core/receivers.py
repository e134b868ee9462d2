"""Commands of those who receive: attaching, credit, and going away; and what becomes of what they had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from legato.core.consumers import Consumer, Matcher
from legato.core.facts import ConsumerAttached, Kind, MessageReleased
from legato.core.message import Message
from legato.core.queues import Queue
from legato.core.reservations import Reservation
from legato.core.reserving import Reserving


class Consuming(Reserving):
    """Receiving messages."""

    def attach(
        self,
        queue: Queue,
        port: Any,
        container: str,
        *,
        reports_presented: bool = False,
        held: Sequence[int] = (),
        matches: Matcher | None = None,
        priority: int = 0,
        name: str = "",
    ) -> tuple[Consumer, list[int]]:
        """A consumer begins to receive; it gets nothing before it has credit.

        Args:
            held: sequence numbers its application still holds (names.HELD): those that are still here come first.
            matches: which messages it wants, if not all.
            priority: as long as one of a higher priority has credit, others get nothing.
            name: its link's: with `container` it says whose reservation this is.

        Returns:
            The consumer, and those of `held` that another receiver has or had.
        """
        consumer = Consumer(self._next_consumer, queue, port, container, reports_presented, matches, priority, name)
        self._next_consumer += 1
        self._kernel.record(ConsumerAttached(consumer.id, queue.id, container, name))
        reservation = queue.reservations.get((container, name))
        self._resume(consumer, held)
        elsewhere = self._claim_held(consumer, set(held) - {message.seq for message in consumer.first})
        if reservation is not None and reservation.leads:
            queue.consumers.insert(0, consumer)
        else:
            queue.consumers.append(consumer)
        self._review(queue)
        return consumer, elsewhere

    def _claim_held(self, consumer: Consumer, held: set[int]) -> list[int]:
        """Give the consumer what it holds and nobody else was given; returns what others have or had."""
        queue = consumer.queue
        if not held:
            return []
        claimed = self._claim(queue, held)
        for seq in sorted(claimed):
            self._take_back(consumer, claimed[seq])
            consumer.first.append(claimed[seq])
            if queue.grouped and (
                group := self._kernel.bodies.group(queue.body(claimed[seq], self._kernel.archive))[0]
            ):
                queue.groups.claim(group, consumer)
        in_transactions = self._in_transactions(queue)
        mine = (None, (consumer.container, consumer.name))
        return [
            seq
            for seq in sorted(held - claimed.keys())
            if queue.has_holder(seq) or seq in in_transactions or queue.taken_by(seq, self._kernel.archive) not in mine
        ]

    def _claim(self, queue: Queue, seqs: set[int]) -> dict[int, Message]:
        claimed: dict[int, Message] = {}
        for commit in self._kernel.commits:
            claimed |= commit.keep(queue, seqs)
        seqs = {seq for seq in seqs if seq >> 56 in queue.lanes}
        return claimed | queue.claim(seqs - claimed.keys(), self._kernel.archive)

    def detach(self, consumer: Consumer, *, clean: bool, hold_until_us: int = 0, moving: bool = False) -> None:
        """A consumer stops receiving; what it had in flight returns to its place.

        A message counts as a failed delivery if it was presented. If the end was not `clean` the others may have
        been seen too, and are flagged.

        Args:
            hold_until_us: until then what it has is kept for its return, if it told us what was presented; 0: nothing.
            moving: the same client may attach again: a subscription that lives with its consumers stays.
        """
        queue = consumer.queue
        if consumer not in queue.consumers:
            return
        leads = queue.settings.exclusive and queue.gives_to(consumer)
        queue.consumers.remove(consumer)
        if consumer in queue.ring:
            queue.ring.remove(consumer)
        consumer.credit = 0
        consumer.cursors.clear()
        reservation = None
        if hold_until_us and consumer.reports_presented:
            reservation = self._reserve(consumer, hold_until_us, leads=leads)
        elif queue.groups.release(consumer):
            self._rewind(queue)
        self._return_all(consumer, reservation, clean=clean)
        if reservation is not None:
            self._review_reservation(queue, reservation)
        if not queue.consumers:
            queue.unload()
            if queue.temporary and queue.kind == Kind.SUBSCRIPTION and not moving:
                self._delete(queue)
                return
        self._review(queue)
        self._returned_to.add(queue)

    def _return_all(self, consumer: Consumer, reservation: Reservation | None, *, clean: bool) -> None:
        """What the consumer had in flight goes back to its place, or is kept for it."""
        had = [*consumer.first, *consumer.unsettled.values()]
        consumer.unsettled.clear()
        consumer.first.clear()
        if reservation is not None:
            self._keep(reservation, [message for message in had if message.presented])
        for message in had:
            message.consumer = None
            if not message.presented:
                message.flagged = message.flagged or not clean
                self._record_released(message, consumer)
                self._put_back(message)
            elif reservation is None:
                message.presented = False
                self._fail(message, consumer, "disconnect")

    def _record_released(self, message: Message, consumer: Consumer) -> None:
        """For the ledger: the message goes back, and its delivery does not count."""
        if self._kernel.detailed and not message.queue.deleted:
            flagged = message.flagged or message.count > 0
            self._kernel.record(MessageReleased(message.queue.id, message.seq, consumer.id, flagged))

    def _put_back(self, message: Message) -> None:
        """The message goes to its place; if it was given back a moment ago, when that is durable."""
        if not any(commit.let_go(message) for commit in self._kernel.commits):
            message.queue.put_back(message)

    def flow(self, consumer: Consumer, credit: int, draining: bool, now_us: int) -> None:
        """The consumer's credit is now `credit`; it is used up by `dispatch_returned`.

        Not before: until what was given is on the link, the same credit may be told again, by this or another flow.
        """
        self._kernel.now_us = now_us
        consumer.credit = credit
        consumer.window = max(consumer.window, credit)
        if draining and not consumer.draining:
            consumer.drain_after = consumer.queue.coming()
        consumer.draining = draining
        self._refresh(consumer)
        self._returned_to.add(consumer.queue)

    def block(self, consumer: Consumer, blocked: bool, now_us: int) -> None:
        """The consumer's connection cannot take more bytes now, or can again."""
        self._kernel.now_us = now_us
        consumer.blocked = blocked
        self._refresh(consumer)
        if not blocked:
            self._dispatch(consumer.queue)

    def resume(self, consumer: Consumer, now_us: int) -> None:
        """The consumer's socket took what it was given."""
        if consumer.unsent_bytes:
            self._kernel.now_us = now_us
            consumer.unsent_bytes = 0
            self._refresh(consumer)
            self._dispatch(consumer.queue)
