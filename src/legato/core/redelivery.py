"""Redelivery of a failed message: from its place, later, or as a dead letter."""

from __future__ import annotations

from collections.abc import Callable

from legato.core.consumers import Consumer
from legato.core.dead_letters import MAXIMUM_DELIVERIES, DeadLetters, is_dead_letter_queue
from legato.core.dispatcher import Dispatcher
from legato.core.facts import MessageReleased, MessageReturned
from legato.core.kernel import Kernel
from legato.core.message import Message
from legato.core.presentations import Presentations
from legato.core.queues import Queue, in_order
from legato.core.router import Router

_US_PER_S = 1_000_000


class Redelivery:
    """Failed deliveries (CONTRACT D15-D19).

    Args:
        chance: a number in [0, 1), another one each time.

    Attributes:
        holding: queues in which something waits for its redelivery: the tick looks at them.
    """

    __slots__ = ("_chance", "_dead_letters", "_dispatcher", "_kernel", "_presentations", "_router", "holding")

    def __init__(
        self,
        kernel: Kernel,
        presentations: Presentations,
        router: Router,
        dispatcher: Dispatcher,
        dead_letters: DeadLetters,
        chance: Callable[[], float],
    ) -> None:
        self._kernel = kernel
        self._presentations = presentations
        self._router = router
        self._dispatcher = dispatcher
        self._dead_letters = dead_letters
        self._chance = chance
        self.holding: set[Queue] = set()

    def fail(self, message: Message, consumer: Consumer, cause: str, txn: bytes = b"", text: str = "") -> None:
        """A delivery failed and counts; the message is nobody's now."""
        queue = message.queue
        if queue.deleted:
            return
        self._presentations.end_on_record(message)
        message.count += 1
        message.lost += cause == "disconnect"
        self._kernel.record(MessageReturned(queue.id, message.seq, message.count, False, consumer.id, cause, txn))
        settings = queue.settings
        if 0 < settings.maximum_deliveries <= message.count and not is_dead_letter_queue(queue):
            self._dead_letters.bury(message, consumer, MAXIMUM_DELIVERIES, text)
        elif settings.redelivery_delay_s:
            self._redeliver_later(message, consumer, self._kernel.now_us + self._delay_us(message))
        else:
            self._kernel.gathering.give_back(message)

    def _delay_us(self, message: Message) -> int:
        settings = message.queue.settings
        # The exponent is bounded so that a message that failed for weeks does not overflow a float.
        delay_s = settings.redelivery_delay_s * settings.redelivery_multiplier ** min(message.count - 1, 64)
        delay_s = min(delay_s, max(settings.redelivery_delay_max_s, settings.redelivery_delay_s))
        spread = settings.redelivery_jitter * (2 * self._chance() - 1)
        return int(delay_s * (1 + spread) * _US_PER_S)

    def _redeliver_later(self, message: Message, consumer: Consumer, due_us: int) -> None:
        queue = message.queue
        match queue.settings.redelivery_blocking:
            case "queue":
                queue.held_until_us = max(queue.held_until_us, due_us)
                self.holding.add(queue)
                self._kernel.gathering.give_back(message)
            case "consumer" if self._may_wait_at(consumer, message):
                if group := self._kernel.group_of(message):
                    queue.groups.claim(group, consumer)
                consumer.held_until_us = max(consumer.held_until_us, due_us)
                self.holding.add(queue)
                queue.review_turn(consumer)
                consumer.first.append(message)
                self._kernel.gathering.keep_back(message)
                if queue.claims or queue.selecting:
                    queue.lane(message.seq).claimed.add(message.seq)
            case "group" if group := self._kernel.group_of(message):
                queue.groups.hold(group, due_us)
                self.holding.add(queue)
                self._kernel.gathering.give_back(message)
            case _:
                self._router.move(message, "delayed", queue, self._router.copy_of(message), due_us)

    def _may_wait_at(self, consumer: Consumer, message: Message) -> bool:
        """Whether the message can wait at the consumer that failed it.

        Not if the consumer has left, or another one of an exclusive queue is served, or the group is another's: what
        came back with its holder after a takeover may be of a group that has been given to another one since.
        """
        queue = message.queue
        if consumer not in queue.consumers or not queue.gives_to(consumer):
            return False
        group = self._kernel.group_of(message)
        return not group or not queue.groups.is_others(group, consumer)

    def let_go(self) -> None:
        """Go on where the time of a redelivery has come."""
        for queue in in_order(self.holding):
            waiting = False
            if queue.held_until_us:
                if queue.held_until_us <= self._kernel.now_us:
                    queue.held_until_us = 0
                waiting = bool(queue.held_until_us)
            for consumer in queue.consumers:
                if consumer.held_until_us and consumer.held_until_us <= self._kernel.now_us:
                    consumer.held_until_us = 0
                    queue.review_turn(consumer)
                waiting = waiting or bool(consumer.held_until_us)
            if queue.groups.let_go(self._kernel.now_us):
                queue.rewind()
            if not waiting and not queue.groups.next_release_us:
                self.holding.discard(queue)
            self._dispatcher.dispatch(queue)


def record_released(kernel: Kernel, message: Message, consumer: Consumer) -> None:
    """For the ledger: the message goes back, and its delivery does not count."""
    if kernel.detailed and not message.queue.deleted:
        flagged = message.flagged or message.count > 0
        kernel.record(MessageReleased(message.queue.id, message.seq, consumer.id, flagged))
