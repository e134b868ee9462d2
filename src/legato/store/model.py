"""The model of a store's state: the meaning of each fact, in plain dictionaries."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, assert_never

from msgspec.structs import replace

from legato import limits
from legato.amqp.codec.stubs import read_stub
from legato.core.fact_runs import single_batch
from legato.core.facts import (
    ActionAudited,
    AnyFact,
    AssignmentAcknowledged,
    AssignmentFenced,
    BatchPublished,
    ConsumerAttached,
    DispatchMarked,
    DuplicateDropped,
    DuplicateIdDropped,
    DuplicateIdKept,
    EpochBegan,
    EpochEnded,
    MessageConsumed,
    MessageDeadLettered,
    MessageDelivered,
    MessageMoved,
    MessageOfFlow,
    MessagePresented,
    MessagePublished,
    MessageReleased,
    MessageReturned,
    MessagesAssigned,
    MessagesConsumed,
    MessageSeen,
    MessagesStored,
    MessageStored,
    MessageTaken,
    NumberRefused,
    ProducerForgotten,
    ProducerRegistered,
    QueueCreated,
    QueueDeleted,
    QueueGrouped,
    QueueMarked,
    QueuePaused,
    RunStored,
    ServingBegan,
    TransactionCommitted,
    TransactionRolledBack,
)
from legato.core.published_batches import note_batch
from legato.core.records import (
    NO_ATTEMPT,
    Attempt,
    Batch,
    KeptId,
    Meta,
    ProducerRecord,
    PublishedBatch,
    QueueRecord,
    StoredMessage,
    TakenMessage,
)
from legato.core.refused_numbers import note_refused
from legato.errors import StoreError
from legato.store.base import NONE_KEPT, first_after, new_queue
from legato.store.blocks import Block
from legato.store.changes import gather_runs
from legato.store.lanes import note_last, note_mark

QUEUE_FACTS = (
    QueueDeleted,
    QueuePaused,
    QueueGrouped,
    MessageStored,
    MessageConsumed,
    MessageMoved,
    MessageDeadLettered,
    MessageReturned,
    MessagePresented,
    MessageTaken,
    MessagesAssigned,
    AssignmentAcknowledged,
    AssignmentFenced,
    DispatchMarked,
    DuplicateIdKept,
)
"""Facts that change a queue, which must be there."""


class SharedBody(NamedTuple):
    """A message published to a topic, and the subscriptions that still have a copy."""

    body: bytes
    holders: set[int]


class Ids:
    """The duplicate ids of one address."""

    def __init__(self) -> None:
        self.kept: dict[int, tuple[bytes, KeptId]] = {}
        """By position."""
        self.positions: dict[bytes, int] = {}
        self.first, self.last = NONE_KEPT

    def keep(self, fact: DuplicateIdKept) -> None:
        """Remember one more, and forget what the window is too small for."""
        self.last += 1
        self.kept[self.last] = fact.id, KeptId(self.last, fact.message_id, fact.producer, fact.number)
        self.positions[fact.id] = self.last
        end = first_after(self.first, self.last, fact.window)
        for position in range(self.first, end):
            duplicate_id, _ = self.kept.pop(position)
            if self.positions[duplicate_id] == position:
                del self.positions[duplicate_id]
        self.first = end


class Model:
    """State in memory. A batch is checked as a whole, then applied fact by fact."""

    def __init__(self) -> None:
        self.meta = Meta()
        self.queues: dict[int, QueueRecord] = {}
        self.messages: dict[int, dict[int, StoredMessage]] = {}
        self.shared: dict[tuple[int, int], SharedBody] = {}
        """Bodies by topic and sequence."""
        self.taken: dict[int, list[TakenMessage]] = {}
        """Of each queue, what left it after others had had it, oldest first."""
        self.producers: dict[int, ProducerRecord] = {}
        self.ids: dict[int, Ids] = {}
        """By queue or topic."""
        self.outcomes: dict[bytes, int] = {}
        """When each transaction was committed, by the steady clock."""
        self.chunks: dict[tuple[int, int], bytes] = {}
        self.uploading: set[int] = set()
        """Large messages of which more is to come."""

    def apply(self, batch: Batch) -> None:
        """All of a batch, or nothing.

        Raises:
            StoreError: the batch contradicts itself or the state.
        """
        batch = single_batch(batch)
        runs = self.check(batch)
        bodies = iter(batch.bodies)
        self.meta.steady_us = max(self.meta.steady_us, batch.steady_us)
        for fact in batch.facts:
            self._apply(fact, bodies, batch.time_us)
        for fact in batch.facts:
            if isinstance(fact, RunStored):
                self._store_run(fact, runs[id(fact)], batch.time_us)
            self._apply_assignment(fact)
        for large, index, data in batch.chunks:
            self.chunks[large, index] = data
            self.uploading.add(large)
        if self.uploading:
            self.uploading -= self._referred() | {*batch.ended}

    def check(self, batch: Batch) -> dict[int, Sequence[bytes | memoryview]]:
        """See that a batch can be applied; returns the blocks of its runs, by the identity of the fact.

        Raises:
            StoreError: the batch contradicts itself or the state.
        """
        batch = single_batch(batch)
        self._check_bodies(batch)
        runs = {id(fact): blocks for fact, blocks in gather_runs(batch)}
        self._check_queues(batch)
        return runs

    def forget_outcomes(self) -> int:
        """Forget those beyond what is kept, if they are past their time; returns how many."""
        end_us = self.meta.steady_us - limits.OUTCOME_RETENTION_S * 1_000_000
        excess = max(len(self.outcomes) - limits.OUTCOMES_KEPT, 0)
        oldest = sorted((time_us, txn) for txn, time_us in self.outcomes.items())[:excess]
        gone = [(time_us, txn) for time_us, txn in oldest if time_us < end_us]
        for time_us, txn in gone:
            self.meta.outcomes_forgotten_us = max(self.meta.outcomes_forgotten_us, time_us)
            del self.outcomes[txn]
        return len(gone)

    def remove_loose(self) -> int:
        """Remove the parts of large messages that nobody needs; returns how many."""
        needed = self._referred() | self.uploading if self.chunks else set()
        loose = [key for key in self.chunks if key[0] not in needed]
        for key in loose:
            del self.chunks[key]
        return len(loose)

    def _referred(self) -> set[int]:
        """Large messages that messages refer to."""
        bodies = [message.body for waiting in self.messages.values() for message in waiting.values()]
        return {stub.large for body in bodies if (stub := read_stub(body)) is not None}

    def _check_bodies(self, batch: Batch) -> None:
        sizes = [
            fact.size
            for fact in batch.facts
            if isinstance(fact, MessageStored) or (isinstance(fact, MessagePublished) and fact.subscriptions)
        ]
        if sizes != [len(body) for body in batch.bodies]:
            raise StoreError("the sizes of the batch's bodies are not those of its stored messages")

    def _check_queues(self, batch: Batch) -> None:
        names = {number: queue.name for number, queue in self.queues.items()}
        for fact in batch.facts:
            if isinstance(fact, QueueCreated):
                if fact.queue in names or fact.name in names.values():
                    raise StoreError(f"the batch creates queue {fact.queue} ({fact.name}), which there is already")
                names[fact.queue] = fact.name
            named = [fact.queue] if isinstance(fact, QUEUE_FACTS) else []
            if isinstance(fact, MessagePublished):
                named = [fact.topic, *fact.subscriptions]
            for number in named:
                if number not in names:
                    raise StoreError(f"a fact names queue {number}, which is not there")
            if isinstance(fact, QueueDeleted):
                del names[fact.queue]
        for fact in batch.facts:
            if isinstance(fact, MessagePublished) and fact.topic not in names and names.keys() & fact.subscriptions:
                raise StoreError(
                    f"the batch deletes topic {fact.topic}, to which it published, but not all subscriptions"
                )

    def _apply(self, fact: AnyFact, bodies: Iterator[bytes], time_us: int) -> None:
        meta = self.meta
        match fact:
            case QueueCreated(queue):
                self.queues[queue] = new_queue(fact)
                self.messages[queue] = {}
                meta.next_queue = max(meta.next_queue, queue + 1)
            case QueueDeleted(queue):
                self._delete(queue)
            case QueuePaused(queue, paused):
                self.queues[queue].paused = paused
            case QueueGrouped(queue):
                self.queues[queue].grouped = True
            case ProducerRegistered(producer, name):
                self.producers.setdefault(producer, ProducerRecord(producer, name)).seen_us = meta.steady_us
                meta.next_producer = max(meta.next_producer, producer + 1)
            case ProducerForgotten(producer):
                self.producers.pop(producer, None)
            case ConsumerAttached(consumer):
                meta.next_consumer = max(meta.next_consumer, consumer + 1)
            case MessageStored(queue, seq):
                self._put(queue, self._new_message(fact, next(bodies), time_us))
                self._number(fact.producer, fact.number, refused=False)
            case MessagePublished(topic, seq):
                note_last(self.queues[topic], seq)
                if fact.subscriptions:
                    self._publish(fact, next(bodies), time_us)
                self._number(fact.producer, fact.number, refused=False)
            case MessageConsumed(queue, seq) | MessageMoved(queue, seq) | MessageDeadLettered(queue, seq):
                self._take(queue, seq)
            case MessageReturned(queue, seq):
                if message := self.messages[queue].get(seq):
                    message.count, message.flagged = fact.count, fact.flagged
                    if fact.cause not in NO_ATTEMPT:
                        attempts = [*message.history, Attempt(time_us, fact.consumer, fact.cause)]
                        message.history = attempts[-limits.HISTORY_ATTEMPTS :]
            case MessagePresented(queue, seq):
                if message := self.messages[queue].get(seq):
                    message.flagged = True
            case MessageTaken(queue, seq):
                self.queues[queue].taken += 1
                self.taken.setdefault(queue, []).append(TakenMessage(seq, fact.container, fact.link))
                del self.taken[queue][: -limits.TAKEN_MESSAGES]
            case DispatchMarked(queue, seq):
                note_mark(self.queues[queue], seq)
            case NumberRefused(producer, number):
                self._number(producer, number, refused=True)
            case DuplicateIdKept(queue):
                self.ids.setdefault(queue, Ids()).keep(fact)
            case DuplicateIdDropped(producer=producer, number=number):
                self._number(producer, number, refused=False)
            case BatchPublished(producer, number):
                self._number(producer, number, refused=False)
                if record := self.producers.get(producer):
                    note_batch(record, PublishedBatch(number, fact.count, fact.digest, fact.stages))
            case TransactionCommitted(txn):
                self.outcomes[txn] = meta.steady_us
            case MessagesStored() | MessagesConsumed():
                raise AssertionError(f"{fact} was taken apart")
            case RunStored() | MessagesAssigned() | AssignmentAcknowledged() | AssignmentFenced():
                pass  # Applied after all others, by `_store_run` and `_apply_assignment`.
            case DuplicateDropped() | TransactionRolledBack():
                pass  # What they say is on record already.
            case EpochBegan() | ServingBegan() | EpochEnded() | QueueMarked() | ActionAudited():
                pass  # For those who read the log.
            case MessageOfFlow() | MessageDelivered() | MessageSeen() | MessageReleased():
                pass  # For those who read the log.
            case _:
                assert_never(fact)

    def _store_run(self, fact: RunStored, blocks: Sequence[bytes | memoryview], time_us: int) -> None:
        seq = fact.seq
        for value in blocks:
            block = Block(fact.queue, seq, memoryview(value))
            for entry in block.entries():
                stored_us = block.stored_us
                self._put(
                    fact.queue,
                    StoredMessage(entry.seq, bytes(entry.body), expires_us=entry.expires_us, stored_us=stored_us),
                )
            seq += block.count
        self._number(fact.producer, fact.number, refused=False)

    def _apply_assignment(self, fact: AnyFact) -> None:
        match fact:
            case MessagesAssigned(queue, seq, count, _, to, number):
                for place in range(count):
                    moved = replace(self.messages[queue][seq + place], seq=number + place, expires_us=0)
                    self._take(queue, seq + place)
                    self._put(to, moved)
            case AssignmentAcknowledged(queue, through):
                self.queues[queue].acknowledged = through
                for seq in [seq for seq in self.messages[queue] if seq <= through]:
                    self._take(queue, seq)
            case AssignmentFenced(queue, fence, floors, source):
                self.queues[queue].fence = fence
                self.queues[queue].floors = floors
                self.queues[queue].topic = source or self.queues[queue].topic

    def _new_message(self, fact: MessageStored | MessagePublished, body: bytes, time_us: int) -> StoredMessage:
        return StoredMessage(fact.seq, body, expires_us=fact.expires_us, stored_us=time_us)

    def _put(self, queue: int, message: StoredMessage) -> None:
        self.messages[queue][message.seq] = message
        self.queues[queue].stored += 1
        self.queues[queue].bytes += len(message.body)
        note_last(self.queues[queue], message.seq)

    def _publish(self, fact: MessagePublished, body: bytes, time_us: int) -> None:
        """A body that is there already, because the message comes back to its place, stays the one."""
        topic = self.queues[fact.topic]
        if (fact.topic, fact.seq) not in self.shared:
            self.shared[fact.topic, fact.seq] = SharedBody(body, set())
            topic.stored += 1
            topic.bytes += len(body)
        shared = self.shared[fact.topic, fact.seq]
        for subscription in fact.subscriptions:
            shared.holders.add(subscription)
            self._put(subscription, self._new_message(fact, shared.body, time_us))

    def _take(self, queue: int, seq: int) -> None:
        self.queues[queue].consumed += 1
        message = self.messages[queue].pop(seq, None)
        if message is not None:
            self.queues[queue].bytes -= len(message.body)
            self._release(self.queues[queue], seq)

    def _delete(self, queue: int) -> None:
        record = self.queues.pop(queue)
        self.ids.pop(queue, None)
        self.taken.pop(queue, None)
        for seq in self.messages.pop(queue):
            self._release(record, seq)

    def _release(self, subscription: QueueRecord, seq: int) -> None:
        """A copy of a body goes, if it was one, and with the last copy the body; its topic may be gone already."""
        shared = self.shared.get((subscription.topic, seq))
        if shared is None or subscription.queue not in shared.holders:
            return
        shared.holders.remove(subscription.queue)
        if not shared.holders:
            del self.shared[subscription.topic, seq]
            if topic := self.queues.get(subscription.topic):
                topic.consumed += 1
                topic.bytes -= len(shared.body)

    def _number(self, producer: int, number: int, *, refused: bool) -> None:
        """Remember what became of a producer's number; one that closed meanwhile is forgotten."""
        if record := self.producers.get(producer):
            record.last_number = max(record.last_number, number)
            note_refused(record, {number: refused})
            record.seen_us = self.meta.steady_us
