"""What a batch changes, gathered per queue and per producer before the store is touched."""

from legato.core.facts import (
    AnyFact,
    ConsumerAttached,
    DispatchMarked,
    MessageConsumed,
    MessageDeadLettered,
    MessagePresented,
    MessageReturned,
    MessageStored,
    NumberRefused,
    ProducerForgotten,
    ProducerRegistered,
    QueueCreated,
    TransactionCommitted,
)
from legato.errors import StoreError
from legato.store.base import Batch

KEEP_COUNT = -1
"""In place of a delivery count: the one on record stays."""


class QueueChanges:
    """What a batch does to one queue."""

    __slots__ = ("added", "consumed", "deliveries", "last_seq", "mark", "removed", "stored")

    def __init__(self) -> None:
        self.added: dict[int, bytes] = {}
        """Bodies of messages stored and still there at the end of the batch."""
        self.removed: set[int] = set()
        """Messages of earlier batches that go."""
        self.deliveries: dict[int, tuple[int, bool]] = {}
        self.stored = 0
        self.consumed = 0
        self.last_seq = 0
        self.mark = 0


class Changes:
    """What a batch does to the store, apart from its log."""

    def __init__(self) -> None:
        self.queues: dict[int, QueueChanges] = {}
        self.created: dict[int, str] = {}
        self.registered: dict[int, str] = {}
        self.forgotten: set[int] = set()
        self.numbers: dict[int, dict[int, bool]] = {}
        """Of each producer, the numbers that the batch decides; True for the refused ones."""
        self.committed: list[bytes] = []
        self.next_consumer = 0

    def queue(self, queue: int) -> QueueChanges:
        """The changes of one queue, none yet when it is new here."""
        found = self.queues.get(queue)
        if found is None:
            found = self.queues[queue] = QueueChanges()
        return found


def gather(batch: Batch) -> Changes:
    """One pass over a batch; the facts that nearly all batches are made of come first.

    Raises:
        StoreError: the bodies are not those of the facts.
    """
    changes = Changes()
    bodies = iter(batch.bodies)
    number = -1
    queue = QueueChanges()
    for fact in batch.facts:
        if isinstance(fact, MessageStored):
            if fact.queue != number:
                number = fact.queue
                queue = changes.queue(number)
            body = next(bodies, None)
            seq = fact.seq
            if body is None or len(body) != fact.size:
                raise StoreError(f"the batch has no body of {fact.size} bytes for message {seq} of queue {number}")
            queue.added[seq] = body
            queue.stored += 1
            if seq > queue.last_seq:
                queue.last_seq = seq
            if fact.producer:
                changes.numbers.setdefault(fact.producer, {})[fact.number] = False
        elif isinstance(fact, MessageConsumed):
            if fact.queue != number:
                number = fact.queue
                queue = changes.queue(number)
            queue.consumed += 1
            seq = fact.seq
            if seq in queue.added:
                del queue.added[seq]
            else:
                queue.removed.add(seq)
        else:
            _gather_rare(changes, fact)
    if next(bodies, None) is not None:
        raise StoreError("the batch has more bodies than stored messages")
    return changes


def _gather_rare(changes: Changes, fact: AnyFact) -> None:
    match fact:
        case MessageReturned(number, seq, count, flagged):
            changes.queue(number).deliveries[seq] = (count, flagged)
        case MessagePresented(number, seq):
            deliveries = changes.queue(number).deliveries
            deliveries[seq] = (deliveries.get(seq, (KEEP_COUNT, True))[0], True)
        case MessageDeadLettered(number, seq):
            queue = changes.queue(number)
            queue.consumed += 1
            if queue.added.pop(seq, None) is None:
                queue.removed.add(seq)
        case DispatchMarked(number, seq):
            queue = changes.queue(number)
            queue.mark = max(queue.mark, seq)
        case NumberRefused(producer, number):
            changes.numbers.setdefault(producer, {})[number] = True
        case TransactionCommitted(txn):
            changes.committed.append(txn)
        case QueueCreated(number, name):
            changes.created[number] = name
            changes.queue(number)
        case ProducerRegistered(producer, name):
            changes.registered[producer] = name
        case ProducerForgotten(producer):
            changes.forgotten.add(producer)
        case ConsumerAttached(consumer):
            changes.next_consumer = max(changes.next_consumer, consumer + 1)
