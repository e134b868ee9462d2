"""Commands of those who receive: attaching, credit, and going away; and what becomes of what they had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from legato.core.consumers import Consumer, Matcher
from legato.core.facts import ConsumerAttached, Kind
from legato.core.message import Message
from legato.core.queues import Queue
from legato.core.redelivering import Redelivering


class Consuming(Redelivering):
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
    ) -> tuple[Consumer, list[int]]:
        """A consumer begins to receive; it gets nothing before it has credit.

        Args:
            held: sequence numbers its application still holds (names.HELD): those that are still here come first.
            matches: which messages it wants, if not all.
            priority: as long as one of a higher priority has credit, others get nothing.

        Returns:
            The consumer, and those of `held` that another receiver has or had.
        """
        consumer = Consumer(self._next_consumer, queue, port, container, reports_presented, matches, priority)
        self._next_consumer += 1
        self._tick.facts.append(ConsumerAttached(consumer.id, queue.id, container))
        elsewhere = []
        claimed = self._claim(queue, set(held))
        for seq in sorted(held):
            if seq in claimed:
                consumer.first.append(claimed[seq])
            elif queue.holder(seq) is not None or queue.taken_again.get(seq, container) != container:
                elsewhere.append(seq)
        queue.consumers.append(consumer)
        self._review(queue)
        return consumer, elsewhere

    def _claim(self, queue: Queue, seqs: set[int]) -> dict[int, Message]:
        claimed: dict[int, Message] = {}
        for tick in (self._tick, self._in_flight):
            if tick is not None and seqs:
                claimed |= tick.keep(queue, seqs)
        seqs = {seq for seq in seqs if seq >> 56 in queue.lanes}
        return claimed | queue.claim(seqs - claimed.keys(), self._archive)

    def detach(self, consumer: Consumer, *, clean: bool, keep: Sequence[int] = (), moving: bool = False) -> None:
        """A consumer stops receiving; what it had in flight returns to its place.

        A message counts as a failed delivery if it was presented. If the end was not `clean` the others may have
        been seen too, and are flagged. Those in `keep` are still held by its application: they are not counted.

        Args:
            moving: the same client attaches again at once: a subscription that lives with its consumers stays.
        """
        queue = consumer.queue
        if consumer not in queue.consumers:
            return
        queue.consumers.remove(consumer)
        if consumer in queue.ring:
            queue.ring.remove(consumer)
        consumer.credit = 0
        consumer.cursors.clear()
        if queue.groups.release(consumer):
            self._rewind(queue)
        for message in list(consumer.unsettled.values()):
            message.consumer = None
            if message.presented and message.seq not in keep:
                message.presented = False
                self._fail(message, consumer, "disconnect")
            else:
                message.presented = False
                message.flagged = message.flagged or not clean
                queue.put_back(message)
        for message in consumer.first:
            message.flagged = True
            queue.put_back(message)
        consumer.unsettled.clear()
        consumer.first.clear()
        if not queue.consumers:
            queue.unload()
            if queue.temporary and queue.kind == Kind.SUBSCRIPTION and not moving:
                self._delete(queue)
                return
        self._review(queue)
        self._returned_to.add(queue)

    def flow(self, consumer: Consumer, credit: int, draining: bool, now_us: int) -> None:
        """The consumer's credit is now `credit`."""
        self.now_us = now_us
        consumer.credit = credit
        consumer.window = max(consumer.window, credit)
        if draining and not consumer.draining:
            consumer.drain_after = consumer.queue.coming()
        consumer.draining = draining
        self._refresh(consumer)
        self._dispatch(consumer.queue)

    def block(self, consumer: Consumer, blocked: bool, now_us: int) -> None:
        """The consumer's connection cannot take more bytes now, or can again."""
        self.now_us = now_us
        consumer.blocked = blocked
        self._refresh(consumer)
        if not blocked:
            self._dispatch(consumer.queue)

    def resume(self, consumer: Consumer, now_us: int) -> None:
        """The consumer's socket took what it was given."""
        if consumer.unsent_bytes:
            self.now_us = now_us
            consumer.unsent_bytes = 0
            self._refresh(consumer)
            self._dispatch(consumer.queue)
