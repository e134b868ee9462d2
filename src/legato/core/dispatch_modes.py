"""Dispatch modes of a queue: in order, or by selection if its consumers want different messages."""

from __future__ import annotations

from legato.core.changes import Gone
from legato.core.kernel import Kernel
from legato.core.queues import Queue
from legato.core.transaction import OpenTransactions


class DispatchModes:
    """Turns selection on and off, and tracks the messages in memory meanwhile.

    Args:
        transactions: what they hold is in the heap too.
    """

    __slots__ = ("_kernel", "_transactions")

    def __init__(self, kernel: Kernel, transactions: OpenTransactions) -> None:
        self._kernel = kernel
        self._transactions = transactions

    def review(self, queue: Queue) -> None:
        """Consumers, groups or settings changed: perhaps consumers now want different messages, or no longer do."""
        queue.mode_is_stale = False
        priorities = {consumer.priority for consumer in queue.consumers}
        select = bool(
            queue.jobs
            or queue.grouped
            or len(priorities) > 1
            or any(consumer.matches is not None or consumer.passes_over for consumer in queue.consumers)
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
        in_ring = set(queue.ring)
        for consumer in queue.consumers:
            # Mostly it has its turn, or need not have it: they may be thousands.
            if (consumer.ready and queue.gives_to(consumer)) != (consumer in in_ring):
                queue.review_turn(consumer)

    def _begin_selecting(self, queue: Queue) -> None:
        """From here on every consumer looks through what is on disk: what is in the heap must be passed over there."""
        queue.selecting = True
        queue.claims = True
        for seq in self.in_heap(queue):
            queue.lane(seq).claimed.add(seq)
        for commit in self._kernel.commits:
            # What left before there were claims is let go of with its commit, like what leaves from now on.
            commit.changes += [Gone(queue, seq) for seq in sorted(commit.taken(queue))]
        for lane in queue.order:
            lane.unload()
            lane.claimed.update(message.seq for message in lane.returned if message.waiting)
            lane.wanted = 0

    def in_heap(self, queue: Queue) -> set[int]:
        """Sequences of messages that somebody has, or that were taken and are not gone from disk yet."""
        seqs = {seq for consumer in queue.consumers for seq in consumer.unsettled}
        seqs |= {message.seq for consumer in queue.consumers for message in consumer.first}
        seqs |= {seq for reservation in queue.reservations.values() for seq in reservation.messages}
        seqs |= self._transactions.held_in(queue)
        for commit in self._kernel.commits:
            seqs |= commit.leaving(queue)
        return seqs
