"""Dispatch without selection: messages in order, consumers in turn, under their credit, and never before
its dispatch mark is durable."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from enum import Enum, auto

from legato import limits
from legato.core.consumers import Consumer
from legato.core.lanes import Lane
from legato.core.message import Message, MessageRun
from legato.core.message_states import DELIVERED, GIVE, MAY_GIVE, enter
from legato.core.queues import Queue
from legato.core.records import Archive

Given = dict[Consumer, list[Message | MessageRun]]
_PASSED_OVER_MAX = 64
"""Messages that wait and that nobody with credit is to have again: more of them are not passed over each time."""


class Stopped(Enum):
    """Why messages in order go no further."""

    DONE = auto()
    """Nothing waits, or nobody has credit."""
    BY_MARK = auto()
    """The next message is above the durable dispatch mark."""
    BY_BUDGET = auto()
    """So many had expired, or were passed over: the rest is for another turn. Neither must hold the loop."""


def dispatch_in_order(
    queue: Queue, archive: Archive, now_us: int, given: Given, expire: Callable[[Message], None]
) -> Stopped:
    """Give waiting messages to consumers that have credit, and expired ones to `expire`.

    No more than `limits.SCAN_MESSAGES` expire in one go. If more than a few are passed over, as all with credit gave
    them back not to have them again, the queue selects while these are its consumers: each passes them once.
    """
    ring = queue.ring
    main = queue.main
    passed_over: list[Message] = []
    stopped = Stopped.DONE
    budget = limits.SCAN_MESSAGES
    while ring:
        if _may_give_run(queue) and _give_run(main, ring[0], now_us, given):
            continue
        lane = queue.next_lane(archive)
        if lane is None:
            break
        run = lane.first_run
        if run is not None:
            if run.seq > lane.mark:
                stopped = Stopped.BY_MARK
                break
            # It may have been read just now.
            if _may_give_run(queue) and _give_run(main, ring[0], now_us, given):
                continue
        head = lane.head(archive)
        assert head is not None
        if head.expires_us and head.expires_us <= now_us:
            if not budget:
                stopped = Stopped.BY_BUDGET
                break
            budget -= 1
            lane.take()
            queue.body(head, archive)
            expire(head)
            continue
        if head.seq > lane.mark:
            stopped = Stopped.BY_MARK
            break
        message = lane.take()
        consumer = ring[0]
        if message.excluded is not None:
            taker = next((c for c in ring if c.id not in message.excluded), None)
            if taker is None:
                passed_over.append(message)
                if len(passed_over) == _PASSED_OVER_MAX:
                    for each in ring:
                        each.passes_over = True
                    queue.mode_is_stale = True
                    stopped = Stopped.BY_BUDGET
                    break
                continue
            consumer = taker
        give(consumer, message, archive, now_us, given)
        if not consumer.ready:
            ring.remove(consumer)
        elif len(ring) > 1:
            ring.rotate(-1)
    for message in passed_over:
        queue.put_back(message)
    return stopped


def _may_give_run(queue: Queue) -> bool:
    """Whether all that waits is for one consumer, and in the window of one lane."""
    main = queue.main
    if len(queue.ring) != 1 or not main.ready or len(queue.order) != 1:
        return False
    return not main.returned or main.ready[0].seq < main.returned[0].seq


def give(consumer: Consumer, message: Message, archive: Archive, now_us: int, given: Given) -> None:
    """The message is the consumer's now; to be sent with all the others in `given`."""
    if message.body is None:
        consumer.queue.body(message, archive)
    assert consumer.credit > 0
    assert message.seq <= consumer.queue.lane(message.seq).mark, f"{message} is above its dispatch mark"
    enter(message, GIVE)
    message.consumer = consumer
    message.delivered_us = now_us
    consumer.held[message.seq] = message
    consumer.credit -= 1
    consumer.unsent_bytes += message.size
    if consumer in given:
        given[consumer].append(message)
    else:
        given[consumer] = [message]


def _give_run(lane: Lane, consumer: Consumer, now_us: int, given: Given) -> bool:
    """The common case in one tight loop: one consumer, one lane, up to what came back. Whether anything was given."""
    ready, held, mark, credit = lane.ready, consumer.held, lane.mark, consumer.credit
    if lane.returned:
        mark = min(mark, lane.returned[0].seq - 1)
    room_bytes = limits.DELIVERY_BYTES_IN_ONE_GO - consumer.unsent_bytes
    taken_bytes = 0
    messages = given.setdefault(consumer, [])
    before = len(messages)
    while credit and ready and taken_bytes < room_bytes:
        message = ready[0]
        if message.__class__ is MessageRun:
            if message.seq > mark:
                break
            if not consumer.takes_runs:
                lane.tell_apart()
                continue
            # As many as if it were one message after the other.
            count = min(bisect_left(message.ends, room_bytes - taken_bytes) + 1, message.count)
            run = lane.take_run(min(count, credit, mark - message.seq + 1))
            run.consumer = consumer
            run.delivered_us = now_us
            held[run.seq] = run
            consumer.runs += 1
            taken_bytes += run.size
            credit -= run.count
            messages.append(run)
            continue
        assert message.__class__ is Message
        if message.seq > mark or message.excluded is not None or message.expires_us:
            break
        ready.popleft()
        assert message.state & MAY_GIVE
        message.state = DELIVERED
        message.consumer = consumer
        message.delivered_us = now_us
        held[message.seq] = message
        taken_bytes += message.size
        credit -= 1
        messages.append(message)
    lane.window_bytes -= taken_bytes
    consumer.credit = credit
    consumer.unsent_bytes += taken_bytes
    if not consumer.ready:
        lane.queue.ring.remove(consumer)
    return len(messages) > before


def mark_wanted(lane: Lane, *, ahead: bool) -> int:
    """Up to which sequence number consumers could be given messages of the lane now, for the credit they have.

    Args:
        ahead: reckon with the credit that they are about to give again, so that it need not wait for a commit.
    """
    queue = lane.queue
    if queue.selecting:
        return lane.wanted
    if ahead:
        credit = sum(max(consumer.credit, consumer.window) for consumer in queue.consumers)
    else:
        credit = sum(consumer.credit for consumer in queue.ring)
    if credit == 0:
        return 0
    count = len(lane.ready) + lane.run_messages
    if count >= credit:
        return lane.seq_at(credit - 1)
    if count:
        return min(lane.last_seq, lane.seq_at(count - 1) + credit - count)
    return min(lane.last_seq, max(lane.loaded_seq, lane.mark) + credit)
