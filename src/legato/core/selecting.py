"""Dispatch by selection: for selectors, message groups and consumer priorities.

Each consumer looks through what waits itself and remembers how far it came, so that nothing is looked at twice for it.
No more than `limits.SCAN_MESSAGES` are looked at in one go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from legato import limits
from legato.core.consumers import Consumer, Cursor
from legato.core.dispatch import Given, give
from legato.core.lanes import LANE_SHIFT, Lane
from legato.core.message import Message
from legato.core.queues import Queue
from legato.core.records import Archive, Bodies, StoredMessage


class Selection:
    """One dispatch of a queue that selects.

    Args:
        expire: takes a message that expired.
        is_over: says whether its share of the turn is used up.

    Attributes:
        unfinished: consumers for whom there may be more, now or once something is durable.
        blocked_by_mark: a message was found above the durable dispatch mark.
        out_of_budget: it stopped before everything was looked at.
    """

    def __init__(
        self,
        queue: Queue,
        archive: Archive,
        bodies: Bodies,
        now_us: int,
        expire: Callable[[Message], None],
        is_over: Callable[[], bool],
    ) -> None:
        self.unfinished: set[Consumer] = set()
        self.blocked_by_mark = False
        self._queue = queue
        self._archive = archive
        self._bodies = bodies
        self._now_us = now_us
        self._expire = expire
        self._turn_is_over = is_over
        self._budget = limits.SCAN_MESSAGES
        self._readings: dict[tuple[Consumer, int], Iterator[StoredMessage]] = {}

    @property
    def out_of_budget(self) -> bool:
        return self._budget <= 0

    def run(self, given: Given) -> None:
        """Give what there is to consumers that have credit: those of the highest priority first, each in turn."""
        ring = self._queue.ring
        for priority in sorted({consumer.priority for consumer in ring}, reverse=True):
            turn = deque(consumer for consumer in ring if consumer.priority == priority)
            while turn:
                consumer = turn.popleft()
                message = self._next_for(consumer)
                if message is None:
                    continue
                give(consumer, message, self._archive, self._now_us, given)
                if consumer.ready:
                    turn.append(consumer)
                else:
                    ring.remove(consumer)
        if (given or self.out_of_budget) and len(ring) > 1:
            ring.rotate(-1)

    def _next_for(self, consumer: Consumer) -> Message | None:
        for lane in self._queue.order:
            cursor = consumer.cursor(lane)
            message = self._in_lane(consumer, lane, cursor)
            if message is not None:
                return message
            if consumer in self.unfinished:
                return None
        return None

    def _in_lane(self, consumer: Consumer, lane: Lane, cursor: Cursor) -> Message | None:
        """The next message of a lane for the consumer: what came back goes in its place among what is on disk."""
        while (returned := cursor.head()) is not None:
            if returned.seq > cursor.seen:
                message = self._stored(consumer, lane, cursor, until=returned.seq)
                if message is not None or consumer in self.unfinished:
                    return message
            message = self._returned(consumer, lane, cursor)
            if message is not None or consumer in self.unfinished:
                return message
        return self._stored(consumer, lane, cursor, until=lane.visible_seq)

    def _returned(self, consumer: Consumer, lane: Lane, cursor: Cursor) -> Message | None:
        """What came back and is next for the consumer, if it is for this one."""
        message = cursor.head()
        if message is None or not self._spend(consumer):
            return None
        if self._is_over(message):
            return None
        if message.excluded and consumer.id in message.excluded:
            cursor.drop()
            return None
        body = self._queue.body(message, self._archive)
        if not self._wants(consumer, body, cursor, message.seq, message):
            cursor.drop()
            return None
        if not self._may_dispatch(consumer, lane, message.seq):
            return None
        cursor.drop()
        message.waiting = False
        self._took(consumer, body, message.seq)
        return message

    def _stored(self, consumer: Consumer, lane: Lane, cursor: Cursor, until: int) -> Message | None:
        """The next message for the consumer among those on disk, up to a sequence number."""
        if consumer in self.unfinished or cursor.seen >= until:
            return None
        reading = self._readings.get((consumer, lane.number))
        if reading is None:
            if cursor.resumes_at:
                cursor.give_up_taken(self._queue.groups, consumer, lane.number)
                cursor.goes_on()
                if cursor.seen >= until:
                    return None
            reading = self._readings[consumer, lane.number] = self._read(lane, cursor.seen)
        for stored in reading:
            if stored.seq > until:
                # It is read again: an iterator cannot take it back.
                del self._readings[consumer, lane.number]
                break
            if not self._spend(consumer):
                del self._readings[consumer, lane.number]
                return None
            if stored.seq not in lane.claimed:
                message = self._examine(consumer, lane, cursor, stored)
                if consumer in self.unfinished:
                    return None
                if message is not None:
                    cursor.seen = stored.seq
                    return message
            cursor.seen = stored.seq
            if cursor.resumes_at and cursor.goes_on():
                del self._readings[consumer, lane.number]
                return self._stored(consumer, lane, cursor, until)
            if cursor.seen == until:
                return None
        cursor.seen = until
        return None

    def _examine(self, consumer: Consumer, lane: Lane, cursor: Cursor, stored: StoredMessage) -> Message | None:
        if stored.expires_us and stored.expires_us <= self._now_us:
            lane.claimed.add(stored.seq)
            self._expire(lane.restored(stored))
            return None
        if not self._wants(consumer, stored.body, cursor, stored.seq) or not self._may_dispatch(
            consumer, lane, stored.seq
        ):
            return None
        lane.claimed.add(stored.seq)
        self._took(consumer, stored.body, stored.seq)
        return lane.restored(stored)

    def _read(self, lane: Lane, after: int) -> Iterator[StoredMessage]:
        limit = limits.SCAN_FIRST_MESSAGES
        while found := self._archive.messages(self._queue.id, after, limit, limits.WINDOW_BYTES):
            yield from found
            after = found[-1].seq
            limit = limits.SCAN_MESSAGES

    def _is_over(self, message: Message) -> bool:
        if message.expires_us and message.expires_us <= self._now_us:
            message.waiting = False
            self._expire(message)
            return True
        return False

    def _spend(self, consumer: Consumer) -> bool:
        self._budget -= 1
        if self._budget < 0 or (self._budget < limits.SCAN_MESSAGES - 1 and self._turn_is_over()):
            self._budget = min(self._budget, -1)
            self.unfinished.add(consumer)
            return False
        return True

    def _may_dispatch(self, consumer: Consumer, lane: Lane, seq: int) -> bool:
        if seq <= lane.mark:
            return True
        # As much further as it may take of a queue in which all match.
        lane.wanted = max(lane.wanted, min(lane.last_seq, seq + max(consumer.credit, consumer.window) - 1))
        self.blocked_by_mark = True
        self.unfinished.add(consumer)
        return False

    def _wants(
        self, consumer: Consumer, body: bytes, cursor: Cursor, seq: int, returned: Message | None = None
    ) -> bool:
        wanted = consumer.matches is None or consumer.matches(body)
        if not self._queue.grouped or not (wanted or cursor.second_look_for):
            return wanted
        groups = self._queue.groups
        group, _ = self._bodies.group(body)
        if not group or groups.may_have(group, consumer):
            return wanted
        if returned is not None:
            groups.pass_over_returned(group, returned)
        elif group in cursor.second_look_for:
            cursor.second_look_for.remove(group)
            groups.pass_over(group, seq >> LANE_SHIFT, seq, max(seq, cursor.second_look_until))
        elif wanted:
            groups.pass_over(group, seq >> LANE_SHIFT, seq, seq)
        return False

    def _took(self, consumer: Consumer, body: bytes, seq: int) -> None:
        if self._queue.grouped:
            group, closes = self._bodies.group(body)
            if group:
                if consumer.matches is None:
                    self._queue.groups.forget_passed(group, seq >> LANE_SHIFT, seq)
                self._queue.groups.give(group, consumer, closes=closes)
