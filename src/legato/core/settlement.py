"""Commands that say what became of a delivery (AMQP 3.4), each true only of who has the message (promise 5)."""

from __future__ import annotations

from collections.abc import Mapping

from legato.core.commit import Commit
from legato.core.consumers import Consumer
from legato.core.facts import MessageConsumed, MessageSeen, MessageTaken
from legato.core.message import Message
from legato.core.message_states import LEAVING, MAY_CONSUME
from legato.core.receivers import Consuming
from legato.core.redelivery import NOTHING_MORE


class Settling(Consuming):
    """Settling deliveries. Each command returns False if the consumer does not have the message."""

    def acknowledge(self, consumer: Consumer, message: Message, *, confirm: bool) -> bool:
        """The consumer accepted the message: it leaves the queue. False if it does not have it (promise 5)."""
        if message.consumer is not consumer:
            return False
        self._consume(consumer, message, b"", self._kernel.gathering)
        if confirm:
            self._kernel.gathering.acknowledged.append((consumer, message))
        return True

    def _consume(self, consumer: Consumer, message: Message, txn: bytes, commit: Commit) -> None:
        queue = message.queue
        assert message.state & MAY_CONSUME, f"consume: {message}"
        message.state = LEAVING
        message.consumer = None
        consumer.unsettled.pop(message.seq, None)
        if queue.deleted:
            return
        queue.consumed += 1
        queue.bytes -= message.size
        assert queue.consumed <= queue.stored, f"{queue.name} gave more than it had"
        if queue.claims:
            commit.gone.append(message)
        self._consumed_from.add(queue)
        commit.facts.append(
            MessageConsumed(queue.id, message.seq, consumer.id, message.delivered_us, message.count + 1, txn)
        )
        if message.flagged or message.count:
            queue.remember_taken(message.seq, consumer.container, consumer.name)
            commit.facts.append(MessageTaken(queue.id, message.seq, consumer.container, consumer.name))

    def release(self, consumer: Consumer, message: Message) -> bool:
        """The consumer gives the message back unseen: to its place, not counted (AMQP 3.4.4)."""
        if message.consumer is not consumer:
            return False
        del consumer.unsettled[message.seq]
        message.consumer = None
        message.presented = False
        self._record_released(message, consumer)
        message.queue.put_back(message)
        self._returned_to.add(message.queue)
        return True

    def modify(
        self, consumer: Consumer, message: Message, *, failed: bool, undeliverable_here: bool, text: str = ""
    ) -> bool:
        """The consumer gives the message back with remarks (AMQP 3.4.5); `text` is why, for the dead letters."""
        if message.consumer is not consumer:
            return False
        if undeliverable_here:
            message.excluded = (message.excluded or set()) | {consumer.id}
        if not failed:
            return self.release(consumer, message)
        del consumer.unsettled[message.seq]
        message.consumer = None
        message.presented = False
        self._fail(message, consumer, "modified", text=text)
        self._returned_to.add(message.queue)
        return True

    def reject(
        self, consumer: Consumer, message: Message, text: str, properties: Mapping[str, str | int] = NOTHING_MORE
    ) -> bool:
        """The consumer says that the message itself is at fault (AMQP 3.4.3): it goes to the dead letters."""
        if message.consumer is not consumer:
            return False
        del consumer.unsettled[message.seq]
        message.consumer = None
        if not message.queue.deleted:
            self._dead_letter(message, consumer, "rejected", text, properties)
        return True

    def present(self, consumer: Consumer, message: Message) -> None:
        """The consumer's application has the message now: from here on this delivery counts (promise 4)."""
        if message.consumer is consumer and not message.presented:
            message.presented = True
            self._presented.append(message)
            if self._kernel.detailed:
                self._kernel.record(MessageSeen(message.queue.id, message.seq, consumer.id))
