"""Commands of those who receive: attaching, credit, looking on, and going away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from legato.core.consumers import Browser, Consumer
from legato.core.dispatch import dispatch, show
from legato.core.facts import ConsumerAttached, MessageReturned
from legato.core.message import Message
from legato.core.queues import Queue
from legato.core.state import State


class Consuming(State):
    """Receiving messages."""

    def attach(
        self,
        queue: Queue,
        port: Any,
        container: str,
        *,
        reports_presented: bool = False,
        held: Sequence[int] = (),
    ) -> tuple[Consumer, list[int]]:
        """A consumer begins to receive; it gets nothing before it has credit.

        Args:
            held: sequence numbers its application still holds (names.HELD): those that are still here come first.

        Returns:
            The consumer, and those of `held` that another receiver has or had.
        """
        consumer = Consumer(self._next_consumer, queue, port, container, reports_presented)
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
        return consumer, elsewhere

    def _claim(self, queue: Queue, seqs: set[int]) -> dict[int, Message]:
        claimed: dict[int, Message] = {}
        for tick in (self._tick, self._in_flight):
            if tick is not None and seqs:
                claimed |= tick.keep(queue, seqs)
        return claimed | queue.claim(seqs - claimed.keys(), self._archive)

    def detach(self, consumer: Consumer, *, clean: bool, keep: Sequence[int] = ()) -> None:
        """A consumer stops receiving; what it had in flight returns to its place.

        A message counts as a failed delivery if it was presented. If the end was not `clean` the others may have
        been seen too, and are flagged. Those in `keep` are still held by its application: they are not counted.
        """
        queue = consumer.queue
        if consumer not in queue.consumers:
            return
        queue.consumers.remove(consumer)
        if consumer in queue.ring:
            queue.ring.remove(consumer)
        consumer.credit = 0
        for message in consumer.unsettled.values():
            message.consumer = None
            if message.presented and message.seq not in keep:
                message.presented = False
                self._count(message, consumer, "disconnect")
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
        self._returned_to.add(queue)

    def flow(self, consumer: Consumer, credit: int, draining: bool, now_us: int) -> None:
        """The consumer's credit is now `credit`."""
        consumer.credit = credit
        consumer.window = max(consumer.window, credit)
        consumer.draining = draining
        self._refresh(consumer)
        self._dispatch(consumer.queue, now_us)

    def block(self, consumer: Consumer, blocked: bool, now_us: int) -> None:
        """The consumer's connection cannot take more bytes now, or can again."""
        consumer.blocked = blocked
        self._refresh(consumer)
        if not blocked:
            self._dispatch(consumer.queue, now_us)

    def resume(self, consumer: Consumer, now_us: int) -> None:
        """The consumer's socket took what it was given."""
        if consumer.unsent_bytes:
            consumer.unsent_bytes = 0
            self._refresh(consumer)
            self._dispatch(consumer.queue, now_us)

    def _refresh(self, consumer: Consumer) -> None:
        ring = consumer.queue.ring
        if consumer.ready:
            if consumer not in ring:
                ring.append(consumer)
        elif consumer in ring:
            ring.remove(consumer)

    def _dispatch(self, queue: Queue, now_us: int) -> None:
        if dispatch(queue, self._archive, now_us, self._effects):
            self._unmarked.add(queue)

    def dispatch_returned(self, now_us: int) -> None:
        """Dispatch again what was given back since the last call; once for all commands of one read."""
        queues, self._returned_to = self._returned_to, set()
        for queue in queues:
            self._dispatch(queue, now_us)

    def _count(self, message: Message, consumer: Consumer, cause: str, txn: bytes = b"") -> None:
        message.count += 1
        tick = self._tick
        tick.facts.append(MessageReturned(message.queue.id, message.seq, message.count, False, consumer.id, cause, txn))
        tick.give_back(message)

    def browse(self, queue: Queue, port: Any) -> Browser:
        """A browser comes: it sees what waits now."""
        return Browser(queue, port)

    def browser_flow(self, browser: Browser, credit: int, draining: bool) -> None:
        """The browser's credit is now `credit`."""
        browser.credit = credit
        browser.draining = draining
        show(browser, self._archive, self._effects)

    def block_browser(self, browser: Browser, blocked: bool) -> None:
        """The browser's connection cannot take more bytes now, or can again."""
        browser.blocked = blocked
        show(browser, self._archive, self._effects)
