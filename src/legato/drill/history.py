"""Audit of the broker's log of facts in plain Python, for machines without Spark and short drills."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

from legato.client import Queue
from legato.client.mapping.received import read_message
from legato.core.fact_runs import numbers_of
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
    Kind,
    LogRecord,
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
from legato.core.schedule import unwrap
from legato.drill.letters import DeadLetter, doomed_in, letter_of
from legato.store.lmdb import LmdbStore
from legato.store.settling import settle_store

PAGE = 1_000
PAGE_BYTES = 4 << 20
EXAMPLES_MAX = 5


@dataclass
class HistoryFinding:
    """Finding of the log: `lost` messages neither left their queue nor wait, `duplicated` were stored or left twice."""

    facts: int = 0
    stored: int = 0
    consumed: int = 0
    epochs: int = 0
    lost: int = 0
    duplicated: int = 0
    complaints: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong."""
        return not self.complaints


class History:
    """Adds up the records of a log, from the first one on."""

    def __init__(self) -> None:
        self.finding = HistoryFinding()
        self._position = 0
        self._epoch = 0
        self._stored: Counter[tuple[int, int]] = Counter()
        self._left: Counter[tuple[int, int]] = Counter()
        self._numbers: Counter[tuple[int, int]] = Counter()
        self._commits: Counter[bytes] = Counter()
        self._deleted: set[int] = set()

    def add(self, position: int, record: LogRecord) -> None:
        """The next record."""
        if position != self._position + 1:
            self._complain(f"The log goes from position {self._position} to {position}.")
        if record.epoch < self._epoch:
            self._complain(f"Epoch {record.epoch} wrote position {position} after epoch {self._epoch} had begun.")
        self._position, self._epoch = position, record.epoch
        self.finding.epochs = max(self.finding.epochs, record.epoch)
        self.finding.facts += len(record.facts)
        for fact in record.facts:
            self._apply(fact)

    def _apply(self, fact: AnyFact) -> None:
        match fact:
            case MessageStored(queue=queue, seq=seq, producer=producer, number=number):
                self._stored[queue, seq] += 1
                self._number(producer, number)
            case MessagePublished(seq=seq, subscriptions=subscriptions, producer=producer, number=number):
                self._stored.update((subscription, seq) for subscription in subscriptions)
                self._number(producer, number)
            case MessageConsumed(queue=queue, seq=seq):
                self.finding.consumed += 1
                self._left[queue, seq] += 1
            case MessagesStored(queue=queue, seq=seq, count=count):
                self._stored.update((queue, each) for each in range(seq, seq + count))
                self._numbers.update((fact.producer, number) for number in numbers_of(fact))
            case MessagesConsumed(queue=queue, seq=seq, count=count):
                self.finding.consumed += count
                self._left.update((queue, each) for each in range(seq, seq + count))
            case MessageDeadLettered(queue=queue, seq=seq) | MessageMoved(queue=queue, seq=seq):
                self._left[queue, seq] += 1
            case QueueDeleted(queue=queue):
                self._deleted.add(queue)
            case TransactionCommitted(txn=txn):
                self._commits[txn] += 1
            case RunStored(queue=queue, seq=seq, count=count):
                self._stored.update((queue, each) for each in range(seq, seq + count))
            case MessagesAssigned(queue=queue, seq=seq, count=count, to_queue=to, to_seq=number):
                self._left.update((queue, each) for each in range(seq, seq + count))
                self._stored.update((to, each) for each in range(number, number + count))
            case AssignmentAcknowledged(queue=queue, through=through, count=count):
                self.finding.consumed += count
                self._left.update((queue, each) for each in range(through - count + 1, through + 1))
            case EpochBegan() | ServingBegan() | EpochEnded() | QueueCreated() | QueuePaused() | QueueGrouped():
                pass  # Positions, epochs and queues are looked at by themselves.
            case ActionAudited():
                pass  # Nothing happened to messages.
            case QueueMarked() | DispatchMarked() | ConsumerAttached() | ProducerRegistered() | ProducerForgotten():
                pass  # What they say is for brokers, and for Spark's audit.
            case MessageReturned() | MessagePresented() | MessageDelivered() | MessageSeen() | MessageReleased():
                pass  # The message is where it was.
            case MessageTaken() | MessageOfFlow() | TransactionRolledBack() | AssignmentFenced() | BatchPublished():
                pass  # Said of what other facts tell.
            case NumberRefused() | DuplicateDropped() | DuplicateIdKept() | DuplicateIdDropped():
                pass  # Nothing was stored.
            case _:
                assert_never(fact)

    def _number(self, producer: int, number: int) -> None:
        if number:
            self._numbers[producer, number] += 1

    def judge(self, waiting: dict[int, int], names: dict[int, str]) -> HistoryFinding:
        """The finding, given how many messages wait in each queue now."""
        finding = self.finding
        finding.stored = len(self._stored)
        twice = {
            "was stored twice under one number": [key for key, times in self._numbers.items() if times > 1],
            "was stored twice at one place": [key for key, times in self._stored.items() if times > 1],
            "left its queue twice": [key for key, times in self._left.items() if times > 1],
            "left its queue without having been stored": [key for key in self._left if key not in self._stored],
        }
        for what, keys in twice.items():
            finding.duplicated += len(keys)
            for key in keys[:EXAMPLES_MAX]:
                self._complain(f"A message {what}: {names.get(key[0], key[0])}, {key[1]}.")
        if again := sum(times > 1 for times in self._commits.values()):
            self._complain(f"{again} transactions were committed twice.")
        unsettled = Counter(queue for queue, seq in self._stored if (queue, seq) not in self._left)
        for queue, number in unsettled.items():
            missing = number - waiting.get(queue, 0)
            if missing and queue not in self._deleted:
                finding.lost += max(missing, 0)
                self._complain(
                    f"By the log {number} messages wait in {names.get(queue, queue)}, and {number - missing} do."
                )
        return finding

    def _complain(self, sentence: str) -> None:
        self.finding.complaints.append(sentence)


def audit_log(store_dir: Path) -> HistoryFinding:
    """Audit the whole log of a store whose broker kept it whole (no ledger) and has stopped.

    Raises:
        StoreError: the store cannot be read.
    """
    settle_store(store_dir)
    store = LmdbStore(store_dir, read_only=True)
    try:
        history = History()
        after = 0
        while page := store.log(after, PAGE):
            for position, record in page:
                history.add(position, record)
            after = page[-1][0]
        queues = [queue for queue in store.queues() if queue.kind != Kind.TOPIC]
        waiting = {queue.queue: queue.stored - queue.consumed for queue in queues}
        return history.judge(waiting, {queue.queue: queue.name for queue in queues})
    finally:
        store.close()


def dead_letters(store_dir: Path) -> frozenset[DeadLetter]:
    """Messages in dead-letter queues.

    What is to be a dead letter, and waits for its next delivery, counts: it may not have come to its last one.

    Raises:
        StoreError: the store cannot be read.
    """
    settle_store(store_dir)
    store = LmdbStore(store_dir, read_only=True)
    found: set[DeadLetter] = set()
    try:
        for queue in (queue for queue in store.queues() if queue.kind == Kind.QUEUE):
            after = 0
            while page := store.messages(queue.queue, after, PAGE, PAGE_BYTES):
                after = page[-1].seq
                for stored in page:
                    message = read_message(stored.body, Queue(queue.name), lambda message: None)
                    if (letter := letter_of(message) or doomed_in(queue.name, message)) is not None:
                        found.add(letter)
        found |= _doomed(store)
    finally:
        store.close()
    return frozenset(found)


def _doomed(store: LmdbStore) -> set[DeadLetter]:
    """Messages that are to die, and have not yet because a wrong clock put their next deliveries off."""
    queues = {queue.queue: queue for queue in store.queues()}
    doomed: set[DeadLetter] = set()
    for schedule in (queue for queue in queues.values() if queue.kind == Kind.SCHEDULE):
        for stored in store.messages(schedule.queue, 0, PAGE, PAGE_BYTES):
            scheduled = unwrap(stored.body)
            flow = queues[scheduled.node].name
            letter = doomed_in(flow, read_message(scheduled.body, Queue(flow), lambda message: None))
            if letter is not None:
                doomed.add(letter)
    return doomed
