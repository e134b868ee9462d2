"""Dispatching: what waits goes to those who have credit, in order or by selection; drains are answered."""

from __future__ import annotations

from collections import deque

from legato import limits
from legato.core.consumers import Consumer
from legato.core.dispatch import Given, dispatch_in_order
from legato.core.effects import Deliver, Drained, Paced
from legato.core.facts import MessageDelivered
from legato.core.message import Message
from legato.core.message_states import GIVE, enter
from legato.core.queues import Queue
from legato.core.router import Moving
from legato.core.selecting import Selection


class Dispatching(Moving):
    """Giving messages to consumers."""

    def _dispatch(self, queue: Queue) -> None:
        if queue.returning or queue.deleted:
            return
        given: Given = {}
        unfinished: set[Consumer] | None = None
        for consumer in queue.consumers:
            if consumer.first:
                self._give_first(consumer, given)
        if not queue.paused and queue.held_until_us <= self._kernel.now_us:
            if queue.selecting:
                unfinished = self._select(queue, given)
            elif dispatch_in_order(queue, self._kernel.archive, self._kernel.now_us, given, self._expire):
                self._unmarked.add(queue)
                unfinished = set(queue.consumers)
        for consumer, messages in given.items():
            if messages:
                queue.delivered += len(messages)
                consumer.served = queue.delivered
                self._kernel.emit(Deliver(consumer, messages))
                if self._kernel.detailed:
                    self._record_delivered(consumer, messages)
                if consumer.unsent_bytes >= limits.DELIVERY_BYTES_IN_ONE_GO:
                    self._kernel.emit(Paced(consumer))
        for consumer in queue.consumers:
            if consumer.draining and not (unfinished and consumer in unfinished):
                self._drain(consumer)

    def _record_delivered(self, consumer: Consumer, messages: list[Message]) -> None:
        """For the ledger: these are on their way. What nothing else is committed with is committed on its own."""
        queue = consumer.queue
        for message in messages:
            group = self._kernel.bodies.group(queue.body(message, self._kernel.archive))[0] if queue.grouped else ""
            flagged = message.flagged or message.count > 0
            self._kernel.record(
                MessageDelivered(
                    queue.id, message.seq, consumer.id, message.count + 1, flagged, message.delivered_us, group
                )
            )

    def _select(self, queue: Queue, given: Given) -> set[Consumer]:
        selection = Selection(
            queue,
            self._kernel.archive,
            self._kernel.bodies,
            self._kernel.now_us,
            self._expire,
            self._kernel.begin_slice(),
        )
        selection.run(given)
        queue.claims = True
        if selection.blocked_by_mark:
            self._unmarked.add(queue)
        if selection.out_of_budget:
            self._unscanned[queue] = None
            self._kernel.scan_again()
        return selection.unfinished

    def _give_first(self, consumer: Consumer, given: Given) -> None:
        """What is the consumer's own already, also if an exclusive queue has another to give to."""
        while consumer.first and consumer.ready:
            message = consumer.first.popleft()
            if message.expires_us and message.expires_us <= self._kernel.now_us and not message.presented:
                self._expire(message)
                continue
            consumer.queue.body(message, self._kernel.archive)
            enter(message, GIVE)
            message.consumer = consumer
            if not (message.presented and message.delivered_us):  # else it is the same delivery still
                message.delivered_us = self._kernel.now_us
            consumer.unsettled[message.seq] = message
            consumer.credit -= 1
            consumer.unsent_bytes += message.size
            given.setdefault(consumer, []).append(message)
        if not consumer.ready and consumer in consumer.queue.ring:
            consumer.queue.ring.remove(consumer)

    def _drain(self, consumer: Consumer) -> None:
        """All that could be delivered was; not so if its socket takes no more."""
        if consumer.credit and not consumer.ready and not consumer.held_until_us:
            return
        if any(lane.visible_seq < seq for lane, seq in consumer.drain_after):
            return
        consumer.draining = False
        if consumer.credit:
            consumer.credit = 0
            if consumer in consumer.queue.ring:
                consumer.queue.ring.remove(consumer)
        self._kernel.emit(Drained(consumer))

    def _refresh(self, consumer: Consumer) -> None:
        """Whether the consumer can be given something now may have changed."""
        queue = consumer.queue
        may = consumer.ready and queue.gives_to(consumer)
        if may and consumer not in queue.ring:
            _enter(queue.ring, consumer)
        elif not may and consumer in queue.ring:
            queue.ring.remove(consumer)

    def dispatch_returned(self, now_us: int) -> None:
        """Dispatch again what was given back since the last call; once for all commands of one read."""
        self._kernel.now_us = now_us
        queues, self._returned_to = self._returned_to, set()
        for queue in queues:
            self._dispatch(queue)

    # -- beginning and ending to select --------------------------------------------------------------------------

    def _review(self, queue: Queue) -> None:
        """Consumers, groups or settings changed: perhaps consumers now want different messages, or no longer do."""
        priorities = {consumer.priority for consumer in queue.consumers}
        select = bool(
            queue.jobs
            or queue.grouped
            or len(priorities) > 1
            or any(consumer.matches is not None for consumer in queue.consumers)
        )
        if select and not queue.selecting:
            self._begin_selecting(queue)
        elif queue.selecting and not select:
            queue.selecting = False
            for lane in queue.order:
                lane.restart()
            for consumer in queue.consumers:
                consumer.cursors.clear()
        queue.review()
        for consumer in queue.consumers:
            self._refresh(consumer)

    def _begin_selecting(self, queue: Queue) -> None:
        """From here on every consumer looks through what is on disk: what is in the heap must be passed over there."""
        queue.selecting = True
        queue.claims = True
        for seq in self._in_heap(queue):
            queue.lane(seq).claimed.add(seq)
        for commit in self._kernel.commits:
            # What left before there were claims is let go of with its commit, like what leaves from now on.
            commit.gone += [Message(queue, seq, None, 0) for seq in sorted(commit.taken(queue))]
        for lane in queue.order:
            lane.unload()
            lane.claimed.update(message.seq for message in lane.returned if message.waiting)
            lane.wanted = 0

    def _in_heap(self, queue: Queue) -> set[int]:
        """Sequences of messages that somebody has, or that were taken and are not gone from disk yet."""
        seqs = {seq for consumer in queue.consumers for seq in consumer.unsettled}
        seqs |= {message.seq for consumer in queue.consumers for message in consumer.first}
        seqs |= {seq for reservation in queue.reservations.values() for seq in reservation.messages}
        seqs |= self._in_transactions(queue)
        for commit in self._kernel.commits:
            seqs |= commit.leaving(queue)
        return seqs

    def _in_transactions(self, queue: Queue) -> set[int]:
        """Sequences of messages that transactions will consume."""
        return set()

    def _rewind(self, queue: Queue) -> None:
        """What consumers passed over may be theirs now: they look through all of it again."""
        for consumer in queue.consumers:
            consumer.cursors.clear()


def _enter(ring: deque[Consumer], consumer: Consumer) -> None:
    """Before those that were served after it: who drained, or had no credit for a while, keeps its turn."""
    place = next((place for place, other in enumerate(ring) if other.served > consumer.served), len(ring))
    ring.insert(place, consumer)
