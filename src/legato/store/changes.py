"""Changes of a batch, grouped by queue and by producer before anything is written."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, assert_never

from legato.core.fact_runs import ends_of, numbers_of
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
from legato.core.records import NO_ATTEMPT, Attempt, TakenMessage
from legato.errors import StoreError
from legato.store.base import Batch
from legato.store.blocks import Bytes, raw_block
from legato.store.lanes import LANE_SEQS, lane_of

KEEP_COUNT = -1
"""In place of a delivery count: the one on record stays."""


class StoredRun(NamedTuple):
    """Neighbours that one commit stores, from `seq` on: where each ends in `content`."""

    seq: int
    ends: array[int]
    content: Bytes


class QueueChanges:
    """Changes of one queue, topic or subscription."""

    __slots__ = (
        "added",
        "attempts",
        "consumed",
        "deliveries",
        "expiries",
        "grouped",
        "ids",
        "last_seq",
        "last_seqs",
        "marks",
        "paused",
        "published",
        "removed",
        "runs",
        "stored",
        "taken",
    )

    def __init__(self) -> None:
        self.added: dict[int, bytes] = {}
        """Bodies of messages stored and still there at the end of the batch; of a topic, all bodies."""
        self.runs: list[StoredRun] = []
        """Messages stored as runs; one of which this batch removes any is among `added` instead."""
        self.expiries: dict[int, int] = {}
        """Of messages stored, when those expire that do."""
        self.published: list[MessagePublished] = []
        """Of a topic: what there are copies of."""
        self.removed: set[int] = set()
        """Messages of earlier batches that go; of a subscription also copies made by this batch."""
        self.deliveries: dict[int, tuple[int, bool]] = {}
        self.attempts: dict[int, list[Attempt]] = {}
        self.taken: list[TakenMessage] = []
        self.stored = 0
        self.consumed = 0
        self.last_seq = 0
        self.last_seqs: dict[int, int] = {}
        """Last sequences of the lanes but lane 0."""
        self.marks: list[int] = []
        self.paused: bool | None = None
        self.grouped = False
        self.ids: list[DuplicateIdKept] = []

    def note_last(self, seq: int) -> None:
        """A message got the sequence `seq`."""
        if seq < LANE_SEQS:
            self.last_seq = max(self.last_seq, seq)
        else:
            lane = lane_of(seq)
            self.last_seqs[lane] = max(self.last_seqs.get(lane, 0), seq)

    def remove(self, seq: int) -> None:
        """A message left the queue."""
        self.consumed += 1
        if self.added.pop(seq, None) is None:
            self.removed.add(seq)

    def spread_runs(self) -> None:
        """Have single messages in the place of runs of which the batch removes any."""
        whole = []
        for run in self.runs:
            places = range(run.seq, run.seq + len(run.ends))
            if self.removed.isdisjoint(places):
                whole.append(run)
                continue
            content = bytes(run.content)
            for seq, (begin, end) in zip(places, pairwise((0, *run.ends)), strict=True):
                if seq in self.removed:
                    self.removed.discard(seq)
                else:
                    self.added[seq] = content[begin:end]
        self.runs = whole


class Changes:
    """Changes of the store, without its log."""

    def __init__(self, time_us: int, steady_us: int) -> None:
        self.time_us = time_us
        self.steady_us = steady_us
        self.queues: dict[int, QueueChanges] = {}
        self.created: dict[int, QueueCreated] = {}
        self.deleted: set[int] = set()
        """Queues that go, also those that the batch created before."""
        self.orphans: set[int] = set()
        """Subscriptions with copies of what was published to a deleted topic by this batch."""
        self.registered: dict[int, str] = {}
        self.forgotten: set[int] = set()
        self.numbers: dict[int, dict[int, bool]] = {}
        """Of each producer, the numbers that the batch decides; True for the refused ones."""
        self.batches: list[BatchPublished] = []
        self.committed: list[bytes] = []
        self.next_consumer = 0
        self.assignments: list[MessagesAssigned | AssignmentAcknowledged | AssignmentFenced] = []
        """What happens to assignments, in order, after everything else."""
        self.runs: list[tuple[RunStored, Sequence[Bytes]]] = []
        """Messages that are stored as blocks."""
        self.chunks: list[tuple[int, int, bytes]] = []
        self.ended: list[int] = []
        """Large messages of which no more comes."""

    def queue(self, queue: int) -> QueueChanges:
        """The changes of one queue, none yet when it is new here."""
        found = self.queues.get(queue)
        if found is None:
            found = self.queues[queue] = QueueChanges()
        return found

    def delete(self, queue: int) -> None:
        """A queue goes, and what the batch did to it before; of a topic, subscribers to what was published must go."""
        gone = self.queues.pop(queue, None)
        self.deleted.add(queue)
        for fact in gone.published if gone else ():
            self.orphans.update(fact.subscriptions)


def gather(batch: Batch) -> Changes:
    """One pass over a batch; the facts that nearly all batches are made of come first.

    Raises:
        StoreError: the bodies are not those of the facts, or a queue is changed after it was deleted.
    """
    changes = Changes(batch.time_us, batch.steady_us)
    changes.chunks, changes.ended = batch.chunks, batch.ended
    changes.runs = gather_runs(batch)
    bodies = iter(batch.bodies)
    number = -1
    queue = QueueChanges()
    added, removed = queue.added, queue.removed
    for fact in batch.facts:
        if isinstance(fact, MessageStored):
            if fact.queue != number:
                number = fact.queue
                queue = changes.queue(number)
                added, removed = queue.added, queue.removed
            body = next(bodies, None)
            seq = fact.seq
            if body is None or len(body) != fact.size:
                raise StoreError(f"the batch has no body of {fact.size} bytes for message {seq} of queue {number}")
            added[seq] = body
            queue.stored += 1
            if seq > queue.last_seq:
                if seq < LANE_SEQS:
                    queue.last_seq = seq
                else:
                    queue.note_last(seq)
            if fact.expires_us:
                queue.expiries[seq] = fact.expires_us
            if fact.producer:
                changes.numbers.setdefault(fact.producer, {})[fact.number] = False
        elif isinstance(fact, MessageConsumed):
            if fact.queue != number:
                number = fact.queue
                queue = changes.queue(number)
                added, removed = queue.added, queue.removed
            queue.consumed += 1
            seq = fact.seq
            if seq in added:
                del added[seq]
            else:
                removed.add(seq)
        elif isinstance(fact, MessagesStored):
            _gather_stored(changes, fact, next(bodies, None))
        elif isinstance(fact, MessagesConsumed):
            queue = changes.queue(number := fact.queue)
            added, removed = queue.added, queue.removed
            queue.consumed += fact.count
            places = range(fact.seq, fact.seq + fact.count)
            if added.keys().isdisjoint(places):
                removed.update(places)
            else:
                removed.update([seq for seq in places if added.pop(seq, None) is None])
        elif isinstance(fact, MessagePublished):
            body = next(bodies, None) if fact.subscriptions else None
            if fact.subscriptions and (body is None or len(body) != fact.size):
                raise StoreError(f"the batch has no body of {fact.size} bytes for message {fact.seq} of {fact.topic}")
            _gather_published(changes, fact, body)
        elif isinstance(fact, DuplicateIdKept):
            changes.queue(fact.queue).ids.append(fact)
        elif isinstance(fact, MessageOfFlow):
            pass
        else:
            _gather_rare(changes, fact)
            number = -1
    if next(bodies, None) is not None:
        raise StoreError("the batch has more bodies than stored messages")
    for queue in changes.queues.values():
        if queue.runs and queue.removed:
            queue.spread_runs()
    if not changes.deleted.isdisjoint(changes.queues):
        raise StoreError(f"the batch changes queues after it deleted them: {changes.deleted & changes.queues.keys()}")
    if not changes.deleted.issuperset(changes.orphans):
        raise StoreError(
            f"the batch deletes a topic to which it published, but not the subscriptions {changes.orphans}"
        )
    return changes


def gather_runs(batch: Batch) -> list[tuple[RunStored, Sequence[Bytes]]]:
    """The facts of stored runs, each with its blocks.

    Raises:
        StoreError: the blocks are not those of the facts.
    """
    facts = [fact for fact in batch.facts if isinstance(fact, RunStored)] if batch.runs else []
    if len(facts) != len(batch.runs):
        raise StoreError("the batch has blocks of other runs than those it stores")
    for fact, blocks in zip(facts, batch.runs, strict=True):
        raw = [raw_block(fact.queue, fact.seq, memoryview(block)) for block in blocks]
        rows = sum(0 if block is None else block.rows for block in raw)
        size = sum(0 if block is None else len(block.content) for block in raw)
        if None in raw or (rows, size) != (fact.count, fact.size):
            raise StoreError(f"the batch's blocks are not the {fact.count} messages at {fact.seq} of {fact.queue}")
    return list(zip(facts, batch.runs, strict=True))


def _gather_stored(changes: Changes, fact: MessagesStored, content: bytes | None) -> None:
    ends = ends_of(fact)
    if content is None or len(ends) != fact.count or ends[-1] != len(content):
        raise StoreError(f"the batch's bytes are not the {fact.count} messages at {fact.seq} of queue {fact.queue}")
    queue = changes.queue(fact.queue)
    queue.runs.append(StoredRun(fact.seq, ends, content))
    queue.stored += fact.count
    queue.note_last(fact.seq + fact.count - 1)
    if numbers := numbers_of(fact):
        changes.numbers.setdefault(fact.producer, {}).update(dict.fromkeys(numbers, False))


def _gather_published(changes: Changes, fact: MessagePublished, body: bytes | None) -> None:
    if not changes.deleted.isdisjoint(fact.subscriptions):
        raise StoreError(f"the batch publishes to subscriptions after it deleted them: {fact.subscriptions}")
    topic = changes.queue(fact.topic)
    topic.note_last(fact.seq)
    if body is not None:
        topic.added[fact.seq] = body
        topic.published.append(fact)
        topic.stored += 1
    if fact.producer:
        changes.numbers.setdefault(fact.producer, {})[fact.number] = False


def _gather_rare(changes: Changes, fact: AnyFact) -> None:
    match fact:
        case MessageMoved(number, seq) | MessageDeadLettered(number, seq):
            changes.queue(number).remove(seq)
        case MessageReturned(number, seq, count, flagged, consumer, cause):
            queue = changes.queue(number)
            queue.deliveries[seq] = (count, flagged)
            if cause not in NO_ATTEMPT:
                queue.attempts.setdefault(seq, []).append(Attempt(changes.time_us, consumer, cause))
        case MessagePresented(number, seq):
            deliveries = changes.queue(number).deliveries
            deliveries[seq] = (deliveries.get(seq, (KEEP_COUNT, True))[0], True)
        case MessageTaken(number, seq, container, link):
            changes.queue(number).taken.append(TakenMessage(seq, container, link))
        case DispatchMarked(number, seq):
            changes.queue(number).marks.append(seq)
        case DuplicateIdDropped(producer=producer, number=number) if producer:
            changes.numbers.setdefault(producer, {})[number] = False
        case NumberRefused(producer, number):
            changes.numbers.setdefault(producer, {})[number] = True
        case BatchPublished(producer, number):
            changes.numbers.setdefault(producer, {})[number] = False
            changes.batches.append(fact)
        case TransactionCommitted(txn):
            changes.committed.append(txn)
        case QueuePaused(number, paused):
            changes.queue(number).paused = paused
        case QueueGrouped(number):
            changes.queue(number).grouped = True
        case MessagesAssigned() | AssignmentAcknowledged() | AssignmentFenced():
            changes.assignments.append(fact)
        case RunStored(number, seq, count):
            queue = changes.queue(number)
            queue.stored += count
            queue.note_last(seq + count - 1)
            if fact.producer:
                changes.numbers.setdefault(fact.producer, {})[fact.number] = False
        case QueueCreated(number):
            changes.created[number] = fact
            changes.queue(number)
        case QueueDeleted(number):
            changes.delete(number)
        case ProducerRegistered(producer, name):
            changes.registered[producer] = name
        case ProducerForgotten(producer):
            changes.forgotten.add(producer)
        case ConsumerAttached(consumer):
            changes.next_consumer = max(changes.next_consumer, consumer + 1)
        case MessageStored() | MessagesStored() | MessageConsumed() | MessagesConsumed():
            raise AssertionError(f"`gather` has seen to {fact}")
        case MessagePublished() | DuplicateIdKept():
            raise AssertionError(f"`gather` has seen to {fact}")
        case DuplicateDropped() | DuplicateIdDropped() | TransactionRolledBack():
            pass  # What they say is on record already, or was no producer's.
        case EpochBegan() | ServingBegan() | EpochEnded() | QueueMarked() | ActionAudited():
            pass  # For those who read the log.
        case MessageOfFlow() | MessageDelivered() | MessageSeen() | MessageReleased():
            pass  # For those who read the log.
        case _:
            assert_never(fact)
