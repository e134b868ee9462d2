"""Which message goes to whom: in order, under credit, in turn, and never before its dispatch mark is durable."""

from __future__ import annotations

from legato import limits
from legato.core.consumers import Browser, Consumer
from legato.core.effects import Deliver, Drained, Effect, Paced, Show
from legato.core.message import Message
from legato.core.queues import Queue
from legato.core.records import Archive


def dispatch(queue: Queue, archive: Archive, now_us: int, effects: list[Effect]) -> bool:
    """Give waiting messages to consumers that have credit.

    Returns:
        True if it stopped only because the next message is above the durable dispatch mark.
    """
    if queue.returning:
        return False
    ring = queue.ring
    blocked_by_mark = False
    given: dict[Consumer, list[Message]] = {}
    passed_over: list[Message] = []
    for consumer in [consumer for consumer in ring if consumer.first]:
        while consumer.first and consumer.ready:
            _give(consumer, consumer.first.popleft(), archive, now_us, given)
        if not consumer.ready:
            ring.remove(consumer)
    while ring:
        if len(ring) == 1 and queue.ready and not queue.returned and _give_run(queue, ring[0], now_us, given):
            continue
        head = queue.head()
        if head is None:
            if not queue.load(archive):
                break
            continue
        if head.seq > queue.mark:
            blocked_by_mark = True
            break
        message = queue.take()
        consumer = ring[0]
        if message.excluded is not None:
            taker = next((c for c in ring if c.id not in message.excluded), None)
            if taker is None:
                passed_over.append(message)
                continue
            consumer = taker
        _give(consumer, message, archive, now_us, given)
        if not consumer.ready:
            ring.remove(consumer)
        elif len(ring) > 1:
            ring.rotate(-1)
    for message in passed_over:
        queue.put_back(message)
    for consumer, messages in given.items():
        if messages:
            effects.append(Deliver(consumer, messages))
            if consumer.unsent_bytes >= limits.DELIVERY_BYTES_IN_ONE_GO:
                effects.append(Paced(consumer))
    if not blocked_by_mark:
        for consumer in queue.consumers:
            if consumer.draining and (consumer.ready or not consumer.credit):
                _drained(consumer, effects)
    return blocked_by_mark


def _give(
    consumer: Consumer, message: Message, archive: Archive, now_us: int, given: dict[Consumer, list[Message]]
) -> None:
    if message.body is None:
        consumer.queue.body(message, archive)
    message.consumer = consumer
    message.delivered_us = now_us
    consumer.unsettled[message.seq] = message
    consumer.credit -= 1
    consumer.unsent_bytes += message.size
    if consumer in given:
        given[consumer].append(message)
    else:
        given[consumer] = [message]


def _give_run(queue: Queue, consumer: Consumer, now_us: int, given: dict[Consumer, list[Message]]) -> bool:
    """The common case in one tight loop: one consumer, nothing returned. Whether anything was given."""
    ready, unsettled, mark, credit = queue.ready, consumer.unsettled, queue.mark, consumer.credit
    room_bytes = limits.DELIVERY_BYTES_IN_ONE_GO - consumer.unsent_bytes
    taken_bytes = 0
    messages = given.setdefault(consumer, [])
    before = len(messages)
    while credit and ready and taken_bytes < room_bytes:
        message = ready[0]
        if message.seq > mark or message.excluded is not None:
            break
        ready.popleft()
        message.consumer = consumer
        message.delivered_us = now_us
        unsettled[message.seq] = message
        taken_bytes += message.size
        credit -= 1
        messages.append(message)
    queue.window_bytes -= taken_bytes
    consumer.credit = credit
    consumer.unsent_bytes += taken_bytes
    if not consumer.ready:
        queue.ring.remove(consumer)
    return len(messages) > before


def _drained(consumer: Consumer, effects: list[Effect]) -> None:
    consumer.draining = False
    if consumer.credit:
        consumer.credit = 0
        if consumer in consumer.queue.ring:
            consumer.queue.ring.remove(consumer)
    effects.append(Drained(consumer))


def mark_wanted(queue: Queue, *, ahead: bool) -> int:
    """Up to which sequence number consumers could be given messages now, for the credit they have.

    Args:
        ahead: reckon with the credit that they are about to give again, so that it need not wait for a commit.
    """
    if ahead:
        credit = sum(max(consumer.credit, consumer.window) for consumer in queue.consumers)
    else:
        credit = sum(consumer.credit for consumer in queue.ring)
    if credit == 0:
        return 0
    if queue.ready:
        head = queue.ready[0].seq
    else:
        head = max(queue.loaded_seq, queue.mark) + 1
    return min(queue.last_seq, head + credit - 1)


def show(browser: Browser, archive: Archive, effects: list[Effect]) -> None:
    """Send the browser as many copies as it has credit for."""
    queue = browser.queue
    while browser.credit and not browser.blocked and browser.after < browser.until:
        found = archive.messages(
            queue.id, browser.after, min(browser.credit, limits.WINDOW_MESSAGES), limits.WINDOW_BYTES
        )
        copies = [stored for stored in found if stored.seq <= browser.until]
        browser.after = copies[-1].seq if copies else browser.until
        if copies:
            browser.credit -= len(copies)
            messages = []
            for stored in copies:
                message = Message(queue, stored.seq, stored.body, len(stored.body))
                message.count = stored.count
                messages.append(message)
            effects.append(Show(browser, messages))
    if browser.draining and not browser.blocked:
        browser.draining = False
        browser.credit = 0
        effects.append(Drained(browser))
