"""Settlement of deliveries (AMQP 3.4): succeeds only for the consumer that has the message (promise 5)."""

from __future__ import annotations

from collections.abc import Mapping

from legato.core.changes import Gone
from legato.core.commit import Commit
from legato.core.consumers import Consumer
from legato.core.dead_letters import NOTHING_MORE, DeadLetters
from legato.core.dispatcher import Dispatcher
from legato.core.facts import MessageConsumed, MessagesConsumed, MessageTaken
from legato.core.kernel import Kernel
from legato.core.message import Message, MessageRun, RunPart
from legato.core.message_states import ENLIST, LEAVING, MAY_CONSUME, enter
from legato.core.presentations import Presentations
from legato.core.redelivery import Redelivery, record_released


class Settlement:
    """Settles deliveries. Each command returns False if the consumer does not have the message."""

    __slots__ = ("_dead_letters", "_dispatcher", "_kernel", "_presentations", "_redelivery")

    def __init__(
        self,
        kernel: Kernel,
        dispatcher: Dispatcher,
        presentations: Presentations,
        redelivery: Redelivery,
        dead_letters: DeadLetters,
    ) -> None:
        self._kernel = kernel
        self._dispatcher = dispatcher
        self._presentations = presentations
        self._redelivery = redelivery
        self._dead_letters = dead_letters

    def acknowledge(self, consumer: Consumer, message: Message, *, confirm: bool) -> bool:
        """The consumer accepted the message: it leaves the queue. False if it does not have it (promise 5)."""
        if message.consumer is not consumer:
            return False
        self.consume(consumer, message, b"", self._kernel.gathering)
        if confirm:
            self._kernel.gathering.acknowledged.append((consumer, message))
        return True

    def acknowledge_run(self, consumer: Consumer, run: MessageRun, at: int, count: int, *, confirm: bool) -> bool:
        """The consumer accepted `count` messages of a run, from the one at `at` on: as `acknowledge` of each.

        False if they have to be acknowledged one by one: the consumer does not have them any more, they were told
        apart, or those before them are not settled.
        """
        queue = run.queue
        if run.consumer is not consumer or not run.is_whole or run.settled != at or queue.deleted or queue.claims:
            return False
        run.settled += count
        if run.settled == run.count:
            del consumer.held[run.seq]
            consumer.runs -= 1
            run.consumer = None
        queue.consumed += count
        queue.bytes -= run.size_of(at, count)
        assert queue.consumed <= queue.stored, f"{queue.name} gave more than it had"
        self._dispatcher.consumed_from.add(queue)
        commit = self._kernel.gathering
        commit.facts.append(MessagesConsumed(queue.id, run.seq + at, count, consumer.id, run.delivered_us))
        commit.run_messages += count - 1
        if confirm:
            commit.acknowledged.append((consumer, RunPart(run, at, count)))
        return True

    def consume(self, consumer: Consumer, message: Message, txn: bytes, commit: Commit) -> None:
        """The message is consumed with `commit`, in the transaction `txn` if there is one."""
        queue = message.queue
        assert message.state & MAY_CONSUME, f"consume: {message}"
        message.state = LEAVING
        message.consumer = None
        consumer.held.pop(message.seq, None)
        if queue.deleted:
            return
        queue.consumed += 1
        queue.bytes -= message.size
        assert queue.consumed <= queue.stored, f"{queue.name} gave more than it had"
        if queue.claims:
            commit.changes.append(Gone(queue, message.seq))
        self._dispatcher.consumed_from.add(queue)
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
        self.put_back(consumer, message)
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
        self.fail(consumer, message, "modified", text=text)
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
            self.bury(consumer, message, text, properties)
        return True

    # -- the same of what a transaction has --------------------------------------------------------------------------

    def enlist(self, consumer: Consumer, message: Message) -> None:
        """The message is a transaction's: whoever acknowledges has seen it, which counts should we crash before."""
        self._presentations.present(consumer, message)
        del consumer.unsettled[message.seq]
        enter(message, ENLIST)

    def put_back(self, consumer: Consumer, message: Message) -> None:
        """The message returns to its place, and its delivery does not count."""
        message.consumer = None
        message.presented = False
        record_released(self._kernel, message, consumer)
        message.queue.put_back(message)
        self._dispatcher.returned_to.add(message.queue)

    def fail(self, consumer: Consumer, message: Message, cause: str, txn: bytes = b"", text: str = "") -> None:
        """The message returns, and its delivery counts as failed."""
        message.consumer = None
        message.presented = False
        self._redelivery.fail(message, consumer, cause, txn, text)
        self._dispatcher.returned_to.add(message.queue)

    def bury(self, consumer: Consumer, message: Message, text: str, properties: Mapping[str, str | int]) -> None:
        """The message goes to the dead letters since its receiver rejects it."""
        self._dead_letters.bury(message, consumer, "rejected", text, properties)
