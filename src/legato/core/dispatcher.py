"""The dispatcher: gives waiting messages to consumers with credit, and answers drains."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from legato import limits
from legato.core.changes import Marked
from legato.core.commit import Commit
from legato.core.consumers import Consumer
from legato.core.dispatch import Given, Stopped, dispatch_in_order, mark_wanted
from legato.core.dispatch_modes import DispatchModes
from legato.core.drop_oldest import DropOldest
from legato.core.effects import Deliver, Drained, Paced
from legato.core.facts import DispatchMarked, MessageDelivered
from legato.core.kernel import Kernel
from legato.core.message import Message, MessageRun
from legato.core.message_states import GIVE, enter
from legato.core.queues import Queue, in_order
from legato.core.router import Router
from legato.core.selecting import Selection


class Dispatcher:
    """Gives messages to consumers.

    Attributes:
        consumed_from: queues whose consumers acknowledged something: they will ask for more before the next commit is
            done.
        delivered: how many deliveries this epoch has made.
        returned_to: queues that something went back to since they were dispatched.
        unmarked: queues that wait for a higher dispatch mark.
    """

    __slots__ = (
        "_drop_oldest",
        "_kernel",
        "_modes",
        "_router",
        "_unscanned",
        "consumed_from",
        "delivered",
        "returned_to",
        "unmarked",
    )

    def __init__(self, kernel: Kernel, modes: DispatchModes, router: Router, drop_oldest: DropOldest) -> None:
        self._drop_oldest = drop_oldest
        self._kernel = kernel
        self._modes = modes
        self._router = router
        self.consumed_from: set[Queue] = set()
        self.delivered = 0
        self.returned_to: set[Queue] = set()
        self.unmarked: set[Queue] = set()
        self._unscanned: dict[Queue, None] = {}
        """Queues that were looked through in part: the rest is for `go_on`."""

    def dispatch(self, queue: Queue) -> None:
        """Give what waits in the queue to those who have credit."""
        if queue.mode_is_stale and not queue.deleted:
            self._modes.review(queue)
        if queue.returning or queue.deleted:
            return
        given: Given = {}
        unfinished: set[Consumer] | None = None
        claimants = [consumer for consumer in queue.consumers if consumer.first]
        interrupted = self._give_claimed(claimants, given) if claimants else []
        if not queue.paused and queue.held_until_us <= self._kernel.now_us:
            if queue.selecting:
                unfinished = self._select(queue, given)
            else:
                stopped = dispatch_in_order(
                    queue, self._kernel.archive, self._kernel.now_us, given, self._router.expire
                )
                if stopped is not Stopped.DONE:
                    self._come_back_to(queue, stopped)
                    unfinished = set(queue.consumers)
        if interrupted:
            unfinished = {*(unfinished or ()), *interrupted}
            for consumer in interrupted:
                queue.review_turn(consumer)
        for consumer, messages in given.items():
            if messages:
                count = len(messages)
                if consumer.runs:
                    count += sum([message.count - 1 for message in messages if isinstance(message, MessageRun)])
                queue.delivered += count
                self.delivered += count
                consumer.served = queue.delivered
                self._kernel.emit(Deliver(consumer, messages))
                if self._kernel.detailed:
                    self._record_delivered(consumer, [m for m in messages if isinstance(m, Message)])
                if consumer.unsent_bytes >= limits.DELIVERY_BYTES_IN_ONE_GO:
                    self._kernel.emit(Paced(consumer))
        for consumer in queue.consumers:
            if consumer.draining and not (unfinished and consumer in unfinished):
                self._drain(consumer)

    def _come_back_to(self, queue: Queue, stopped: Stopped) -> None:
        """There may be more for its consumers: when its mark is higher, or in another turn."""
        if stopped is Stopped.BY_MARK:
            self.unmarked.add(queue)
        else:
            self._unscanned[queue] = None
            self._kernel.scan_again()

    def _record_delivered(self, consumer: Consumer, messages: list[Message]) -> None:
        """For the ledger: these are on their way. What nothing else is committed with is committed on its own."""
        queue = consumer.queue
        for message in messages:
            group = self._kernel.group_of(message)
            flagged = message.flagged or message.count > 0
            self._kernel.record(
                MessageDelivered(
                    queue.id, message.seq, consumer.id, message.count + 1, flagged, message.delivered_us, group
                )
            )

    def _select(self, queue: Queue, given: Given) -> set[Consumer]:
        queue.look_again()
        selection = Selection(
            queue,
            self._kernel.archive,
            self._kernel.bodies,
            self._kernel.now_us,
            self._router.expire,
            self._kernel.begin_slice(),
        )
        selection.run(given)
        queue.claims = True
        if selection.blocked_by_mark:
            self.unmarked.add(queue)
        if queue.groups.freed:
            # Not at once: a turn looks at so much and no more, however many groups are closed in it.
            selection.unfinished.update(queue.ring)
        if selection.out_of_budget or (queue.groups.freed and queue.ring):
            self._unscanned[queue] = None
            self._kernel.scan_again()
        return selection.unfinished

    def _give_claimed(self, claimants: list[Consumer], given: Given) -> list[Consumer]:
        """Give consumers what is their own already; returns those that were not given all of it, see `_give_first`."""
        is_over: Callable[[], bool] | None = None

        def may_read() -> bool:
            """Once in any case, and until the slice is over."""
            nonlocal is_over
            if is_over is None:
                is_over = self._kernel.begin_slice()
                return True
            return not is_over()

        return [consumer for consumer in claimants if not self._give_first(consumer, given, may_read)]

    def _give_first(self, consumer: Consumer, given: Given, may_read: Callable[[], bool]) -> bool:
        """Give the consumer the messages that are its own already, also if an exclusive queue serves another.

        Returns:
            False if the rest has to be read and is for another turn, or cannot be: until then it gets nothing else.
        """
        queue = consumer.queue
        while consumer.first and consumer.ready:
            message = consumer.first[0]
            is_expired = message.expires_us and message.expires_us <= self._kernel.now_us and not message.presented
            if message.body is None and not is_expired:
                if may_read():
                    self._read_first(consumer)
                else:
                    self._come_back_to(queue, Stopped.BY_BUDGET)
                if message.body is None:
                    if consumer in queue.ring:
                        queue.ring.remove(consumer)
                    return False
            consumer.first.popleft()
            if is_expired:
                self._router.expire(message)
                continue
            enter(message, GIVE)
            message.consumer = consumer
            if not (message.presented and message.delivered_us):  # else it is the same delivery still
                message.delivered_us = self._kernel.now_us
            consumer.held[message.seq] = message
            consumer.credit -= 1
            consumer.unsent_bytes += message.size
            given.setdefault(consumer, []).append(message)
        if not consumer.ready and consumer in queue.ring:
            queue.ring.remove(consumer)
        return True

    def _read_first(self, consumer: Consumer) -> None:
        """Read what comes first and is not in memory, no more than the consumer can be given now."""
        next_ones = list(islice(consumer.first, min(consumer.credit, limits.FIRST_LOAD_MESSAGES)))
        room_bytes = limits.DELIVERY_BYTES_IN_ONE_GO - consumer.unsent_bytes
        consumer.queue.read_ahead(next_ones, self._kernel.archive, room_bytes)

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

    def dispatch_returned(self, now_us: int) -> None:
        """Dispatch again what was given back since the last call; once for all commands of one read."""
        self._kernel.now_us = now_us
        queues, self.returned_to = self.returned_to, set()
        for queue in in_order(queues):
            self.dispatch(queue)
            if queue.limited:
                self._drop_oldest.review_returned(queue)

    def go_on(self) -> None:
        """The next slice of what was looked through in part."""
        is_over = self._kernel.begin_slice()
        unscanned, self._unscanned = list(self._unscanned), {}
        for place, queue in enumerate(unscanned, 1):
            self.dispatch(queue)
            if place < len(unscanned) and is_over():
                # First the next time, before those that were looked through now.
                self._unscanned = dict.fromkeys(unscanned[place:]) | self._unscanned
                self._kernel.scan_again()
                break

    def mark(self, commit: Commit) -> None:
        """Raise dispatch marks for what consumers may be given once the commit is durable."""
        queues = self.unmarked
        queues |= commit.queues
        consumed_from = self.consumed_from
        for queue in in_order(queues | consumed_from):
            if queue.deleted or not queue.consumers:
                continue
            for lane in queue.order:
                wanted = mark_wanted(lane, ahead=queue in consumed_from)
                if wanted > lane.mark_pending:
                    lane.mark_pending = wanted
                    commit.facts.append(DispatchMarked(queue.id, wanted))
                    commit.changes.append(Marked(queue, wanted))
        self.unmarked = set()
        self.consumed_from = set()
