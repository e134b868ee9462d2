"""Commands that say what became of a delivery (AMQP 3.4), each true only of who has the message (promise 5)."""

from __future__ import annotations

from legato.core.consumers import Consumer
from legato.core.consuming import Consuming
from legato.core.facts import MessageConsumed, MessageDeadLettered, MessageStored
from legato.core.message import Message
from legato.core.tick import Tick

DEAD_LETTER_PREFIX = "DLQ."


class Settling(Consuming):
    """Settling deliveries. Each command returns False if the consumer does not have the message."""

    def acknowledge(self, consumer: Consumer, message: Message, *, confirm: bool) -> bool:
        """The consumer accepted the message: it leaves the queue. False if it does not have it (promise 5)."""
        if message.consumer is not consumer:
            return False
        self._consume(consumer, message, b"", self._tick)
        if confirm:
            self._tick.acknowledged.append((consumer, message))
        return True

    def _consume(self, consumer: Consumer, message: Message, txn: bytes, tick: Tick) -> None:
        queue = message.queue
        message.consumer = None
        consumer.unsettled.pop(message.seq, None)
        queue.consumed += 1
        self._consumed_from.add(queue)
        tick.facts.append(
            MessageConsumed(queue.id, message.seq, consumer.id, message.delivered_us, message.count + 1, txn)
        )
        if message.flagged or message.count:
            queue.remember_taken(message.seq, consumer.container)

    def release(self, consumer: Consumer, message: Message) -> bool:
        """The consumer gives the message back unseen: to its place, not counted (AMQP 3.4.4)."""
        if message.consumer is not consumer:
            return False
        del consumer.unsettled[message.seq]
        message.consumer = None
        message.presented = False
        message.queue.put_back(message)
        self._returned_to.add(message.queue)
        return True

    def modify(self, consumer: Consumer, message: Message, *, failed: bool, undeliverable_here: bool) -> bool:
        """The consumer gives the message back with remarks (AMQP 3.4.5)."""
        if message.consumer is not consumer:
            return False
        if undeliverable_here:
            message.excluded = (message.excluded or set()) | {consumer.id}
        if not failed:
            return self.release(consumer, message)
        del consumer.unsettled[message.seq]
        message.consumer = None
        message.presented = False
        self._count(message, consumer, "modified")
        return True

    def reject(self, consumer: Consumer, message: Message, cause: str) -> bool:
        """The consumer says that the message itself is at fault (AMQP 3.4.3): it goes to the dead letters."""
        if message.consumer is not consumer:
            return False
        queue = message.queue
        found = self._archive.messages(queue.id, message.seq - 1, 1, 0)
        assert found, "a message in flight is in the store"
        assert found[0].seq == message.seq, "a message in flight is in the store"
        dead = self.queue(DEAD_LETTER_PREFIX + queue.name)
        dead.last_seq += 1
        dead.stored += 1
        queue.consumed += 1
        message.consumer = None
        del consumer.unsettled[message.seq]
        body = found[0].body
        tick = self._tick
        origin = (queue.id, message.seq)
        tick.facts.append(MessageDeadLettered(queue.id, message.seq, consumer.id, cause, dead.id, dead.last_seq))
        tick.facts.append(MessageStored(dead.id, dead.last_seq, len(body), "", origin=origin))
        tick.bodies.append(body)
        tick.stored.append(Message(dead, dead.last_seq, body, len(body)))
        tick.dead.append(message)
        return True

    def present(self, consumer: Consumer, message: Message) -> None:
        """The consumer's application has the message now: from here on this delivery counts (promise 4)."""
        if message.consumer is consumer and not message.presented:
            message.presented = True
            self._presented.append(message)
