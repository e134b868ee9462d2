"""Receivers: attach, grant credit, detach; and the return of their messages."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from legato import limits
from legato.core.consumers import Consumer, Matcher, Reservation
from legato.core.deletion import Deletion
from legato.core.dispatch_modes import DispatchModes
from legato.core.dispatcher import Dispatcher
from legato.core.facts import ConsumerAttached, Kind
from legato.core.kernel import Kernel
from legato.core.message import Message
from legato.core.queues import Queue
from legato.core.redelivery import Redelivery, record_released
from legato.core.reservations import Reservations
from legato.core.transaction import OpenTransactions


class Receivers:
    """Attaches and detaches consumers, and gives them credit."""

    __slots__ = (
        "_deletion",
        "_dispatcher",
        "_kernel",
        "_modes",
        "_next",
        "_redelivery",
        "_reservations",
        "_transactions",
    )

    def __init__(
        self,
        kernel: Kernel,
        modes: DispatchModes,
        transactions: OpenTransactions,
        dispatcher: Dispatcher,
        redelivery: Redelivery,
        reservations: Reservations,
        deletion: Deletion,
        next_number: int,
    ) -> None:
        self._kernel = kernel
        self._modes = modes
        self._transactions = transactions
        self._dispatcher = dispatcher
        self._redelivery = redelivery
        self._reservations = reservations
        self._deletion = deletion
        self._next = next_number

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
        consumer = Consumer(self._next, queue, port, container, reports_presented, matches, priority, name)
        # The ledger's detail is of single messages.
        consumer.takes_runs = not self._kernel.detailed
        self._next += 1
        self._kernel.record(ConsumerAttached(consumer.id, queue.id, container, name))
        reservation = queue.reservations.get((container, name))
        claims = set(held)
        self._reservations.resume(consumer, claims)
        elsewhere = self._claim_held(consumer, claims - {message.seq for message in consumer.first})
        if reservation is not None and reservation.leads:
            queue.consumers = {consumer: None, **queue.consumers}
        else:
            queue.consumers[consumer] = None
        self._modes.review(queue)
        return consumer, elsewhere

    def _claim_held(self, consumer: Consumer, held: set[int]) -> list[int]:
        """Give the consumer what it holds and nobody else was given; returns what others have or had."""
        queue = consumer.queue
        if not held:
            return []
        claimed = self._claim(queue, held)
        in_order = [claimed[seq] for seq in sorted(claimed)]
        for message in in_order:
            self._reservations.take_back(consumer, message)
            consumer.first.append(message)
        if queue.grouped:
            self._claim_groups(consumer, in_order)
        missing = held - claimed.keys()
        had = queue.held_of(missing) | self._transactions.held_in(queue)
        mine = (None, (consumer.container, consumer.name))
        return [seq for seq in sorted(missing) if seq in had or queue.taken_by(seq, self._kernel.archive) not in mine]

    def _claim_groups(self, consumer: Consumer, messages: list[Message]) -> None:
        """The groups of its messages are the consumer's; to know them they are read, and not kept."""
        queue, archive = consumer.queue, self._kernel.archive
        for place, message in enumerate(messages):
            if message.body is None:
                neighbours = messages[place : place + limits.FIRST_LOAD_MESSAGES]
                queue.read_ahead(neighbours, archive, limits.WINDOW_BYTES)
            if message.body is None:
                continue  # It cannot be read: whoever receives from the queue is told (`server.links.damaged_queues`).
            if group := self._kernel.group_of(message):
                queue.groups.claim(group, consumer)
            message.body = None

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
        self._kernel.withdraw(consumer)
        del queue.consumers[consumer]
        with suppress(ValueError):
            queue.ring.remove(consumer)
        consumer.credit = 0
        consumer.cursors.clear()
        reservation = None
        if hold_until_us and consumer.reports_presented:
            reservation = self._reservations.reserve(consumer, hold_until_us, leads=leads)
        elif queue.groups.release(consumer):
            queue.rewind()
        self._return_all(consumer, reservation, clean=clean)
        if reservation is not None:
            self._reservations.review(queue, reservation)
        if not queue.consumers:
            queue.unload()
            if queue.temporary and queue.kind == Kind.SUBSCRIPTION and not moving:
                self._deletion.delete(queue)
                return
            self._modes.review(queue)
        queue.mode_is_stale = bool(queue.consumers)
        self._dispatcher.returned_to.add(queue)

    def _return_all(self, consumer: Consumer, reservation: Reservation | None, *, clean: bool) -> None:
        """Return a consumer's messages in flight to their places, or reserve them for it."""
        had = [*consumer.first, *consumer.unsettled.values()]
        consumer.unsettled.clear()
        consumer.first.clear()
        if reservation is not None:
            self._reservations.keep(reservation, [message for message in had if message.presented])
        for message in had:
            message.consumer = None
            if not message.presented:
                message.flagged = message.flagged or not clean
                record_released(self._kernel, message, consumer)
                self._put_back(message)
            elif reservation is None:
                message.presented = False
                self._redelivery.fail(message, consumer, "disconnect")

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
        consumer.queue.review_turn(consumer)
        self._dispatcher.returned_to.add(consumer.queue)

    def block(self, consumer: Consumer, blocked: bool, now_us: int) -> None:
        """The consumer's connection cannot take more bytes now, or can again."""
        self._kernel.now_us = now_us
        consumer.blocked = blocked
        consumer.queue.review_turn(consumer)
        if not blocked:
            self._dispatcher.dispatch(consumer.queue)

    def resume(self, consumer: Consumer, now_us: int) -> None:
        """The consumer's socket took what it was given."""
        if consumer.unsent_bytes:
            self._kernel.now_us = now_us
            consumer.unsent_bytes = 0
            consumer.queue.review_turn(consumer)
            self._dispatcher.dispatch(consumer.queue)
