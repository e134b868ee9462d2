"""The broker: commands in, facts and effects out; here, how facts become durable and then visible.

1. A command is a method call. It changes what the heap knows, adds facts to the current tick, and effects that
   need none.
2. `take_batch` hands the facts out to be committed; `committed` makes them visible; `failed` undoes what they
   announced. Nothing that depends on a fact is visible before `committed`: durable first, visible second.
3. Time is an argument, in microseconds. There is no chance and no I/O; the archive is read as of the last commit.
"""

from __future__ import annotations

from legato import limits
from legato.core.dispatch import mark_wanted
from legato.core.effects import Confirm, ConfirmAcknowledged, Discharged, DischargeRefused, Refuse
from legato.core.facts import (
    DispatchMarked,
    EpochEnded,
    MessageConsumed,
    MessageDeadLettered,
    MessagePresented,
    MessageStored,
    NumberRefused,
    QueueMarked,
    TransactionCommitted,
)
from legato.core.message import Message
from legato.core.publishing import Publishing
from legato.core.queues import Queue
from legato.core.records import Batch
from legato.core.tick import Tick
from legato.core.transactions import ROLLED_BACK, Transactions

FULL = "amqp:resource-limit-exceeded"


class Broker(Transactions, Publishing):
    """The state machine of one epoch; see `State` for its arguments."""

    def take_batch(self, now_us: int) -> Batch | None:
        """What must be committed next, or None. Only one batch is out at a time."""
        if self._in_flight is not None:
            return None
        tick = self._tick
        self._gather_marks(tick)
        if not tick:
            return None
        self._tick = Tick()
        self._in_flight = tick
        return Batch(self.epoch, now_us, tick.facts, tick.bodies)

    @property
    def tick_is_full(self) -> bool:
        """Whether so much waits for the next commit that publishers should be slowed."""
        tick = self._tick
        return len(tick.facts) >= limits.BATCH_FACTS_MAX or tick.body_bytes >= limits.BATCH_BYTES_MAX

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be committed or for a commit to end."""
        return self._in_flight is None and not self._tick

    def committed(self, now_us: int) -> None:
        """The batch taken last is durable: its consequences become visible."""
        tick = self._in_flight
        assert tick is not None
        self._in_flight = None
        touched: set[Queue] = set()
        confirms = tick.confirms
        for queue, seq in tick.marks:
            queue.mark = max(queue.mark, seq)
            touched.add(queue)
        for message in tick.stored:
            queue = message.queue
            if queue not in touched:
                touched.add(queue)
            queue.append(message)
            if (token := message.token) is not None:
                confirms.append(token)
                message.token = None
        for message in tick.returned:
            message.queue.returning -= 1
            message.queue.put_back(message)
            touched.add(message.queue)
        effects = self._effects
        if confirms:
            effects.append(Confirm(confirms))
        if tick.acknowledged:
            effects.append(ConfirmAcknowledged(tick.acknowledged))
        for producer in tick.left:
            if producer.links == 0 and self._producers.get(producer.name) is producer:
                del self._producers[producer.name]
        for token, transaction, _ in tick.discharges:
            self._committing.discard(transaction.id)
            effects.append(Discharged(token))
        for queue in touched:
            self._dispatch(queue, now_us)

    def failed(self, description: str) -> None:
        """The batch taken last could not be stored for lack of room: nothing of it happened.

        Publications are refused and transactions that publish are rolled back; what only consumes is tried again.
        """
        tick = self._in_flight
        assert tick is not None
        self._in_flight = None
        stored = iter(tick.stored)
        dead = iter(tick.dead)
        rolled_back = {
            transaction.id: (token, transaction)
            for token, transaction, commits in tick.discharges
            if commits and transaction.sends
        }
        retry = Tick()
        for fact in tick.facts:
            kind = fact.__class__
            if kind is MessageStored:
                assert isinstance(fact, MessageStored)
                message = next(stored)
                message.queue.stored -= 1
                # A dead letter that found no room goes back to where it was, below.
                if fact.origin is None and not fact.txn:
                    self._refuse(message, fact, retry, description)
            elif kind is MessageConsumed or kind is TransactionCommitted:
                assert isinstance(fact, MessageConsumed | TransactionCommitted)
                if fact.txn not in rolled_back:
                    retry.facts.append(fact)
                elif isinstance(fact, MessageConsumed):
                    self._queue_by_id(fact.queue).consumed -= 1
            elif kind is MessageDeadLettered:
                message = next(dead)
                message.queue.consumed -= 1
                retry.give_back(message)
            elif kind is not QueueMarked:
                retry.facts.append(fact)
        retry.marks = tick.marks
        retry.left = tick.left
        retry.returned += tick.returned
        retry.acknowledged = tick.acknowledged
        retry.confirms = tick.confirms
        retry.discharges = [d for d in tick.discharges if d[1].id not in rolled_back]
        for token, transaction in rolled_back.values():
            self._committing.discard(transaction.id)
            self._give_up(transaction, "failed", retry)
            self._effects.append(DischargeRefused(token, FULL, description))
        newer, self._tick = self._tick, retry
        for asked in [d for d in newer.discharges if d[1].id in rolled_back]:
            newer.discharges.remove(asked)
            self._effects.append(DischargeRefused(asked[0], ROLLED_BACK, description))
        self._tick.append(newer)

    def _queue_by_id(self, number: int) -> Queue:
        return next(queue for queue in self.queues.values() if queue.id == number)

    def _refuse(self, message: Message, fact: MessageStored, retry: Tick, description: str) -> None:
        if fact.producer:
            producer = next((p for p in self._producers.values() if p.id == fact.producer), None)
            if producer is not None:
                producer.refuse(fact.number)
            retry.facts.append(NumberRefused(fact.producer, fact.number))
        self._effects.append(Refuse(message.token, FULL, description))

    def tick(self) -> None:
        """Time passed: record presentations that outlived a whole period (most messages are settled before), and
        the high-water marks of queues that moved."""
        for message in self._presented_before:
            if message.presented and message.consumer is not None:
                self._tick.facts.append(MessagePresented(message.queue.id, message.seq, message.consumer.id))
        self._presented_before, self._presented = self._presented, []

    def mark_queues(self) -> None:
        """Record the high-water marks of the queues that moved since the last time."""
        for queue in self.queues.values():
            marks = (queue.stored, queue.consumed)
            if queue.recorded != marks:
                queue.recorded = marks
                self._tick.facts.append(QueueMarked(queue.id, queue.last_seq, queue.stored, queue.consumed))

    def end(self, reason: str) -> None:
        """The broker stops cleanly; what follows is refused by the shell."""
        for transaction in list(self._transactions.values()):
            self.roll_back(transaction, "disconnect")
        self.mark_queues()
        self._tick.facts.append(EpochEnded(reason))

    def _gather_marks(self, tick: Tick) -> None:
        """Raise dispatch marks for what consumers may be given once this tick is durable."""
        queues = self._unmarked
        queues.update(message.queue for message in tick.stored)
        consumed_from = self._consumed_from
        for queue in queues | consumed_from:
            wanted = mark_wanted(queue, ahead=queue in consumed_from)
            if wanted > queue.mark_pending:
                queue.mark_pending = wanted
                tick.facts.append(DispatchMarked(queue.id, wanted))
                tick.marks.append((queue, wanted))
        self._unmarked = set()
        self._consumed_from = set()
