"""The model of a store: what each fact means for state, one dictionary per thing; nothing survives the process."""

import copy
import threading
from collections.abc import Iterator, Sequence

from legato import limits
from legato.core.facts import (
    AnyFact,
    ConsumerAttached,
    DispatchMarked,
    EpochBegan,
    LogRecord,
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
    encode_record,
)
from legato.errors import FencedError, StoreError
from legato.store.base import Batch, Meta, ProducerRecord, QueueRecord, StoredMessage, Usage

QUEUE_FACTS = (
    MessageStored,
    MessageConsumed,
    MessageDeadLettered,
    MessageReturned,
    MessagePresented,
    DispatchMarked,
)
"""Facts that change a queue, which must be there."""


class MemoryStore:
    """A `Store` in the heap: a batch is checked as a whole, then applied fact by fact, in order."""

    def __init__(self) -> None:
        self._meta = Meta()
        self._queues: dict[int, QueueRecord] = {}
        self._messages: dict[int, dict[int, StoredMessage]] = {}
        self._producers: dict[int, ProducerRecord] = {}
        self._outcomes: dict[bytes, int] = {}
        self._log: dict[int, LogRecord] = {}
        self._lock = threading.Lock()

    def begin_epoch(self, broker: str, now_us: int) -> Meta:
        """See `Store.begin_epoch`."""
        with self._lock:
            self._meta.epoch += 1
            self._append(now_us, [EpochBegan(broker)])
            return copy.copy(self._meta)

    def meta(self) -> Meta:
        """See `Store.meta`."""
        with self._lock:
            return copy.copy(self._meta)

    def queue(self, name: str) -> QueueRecord | None:
        """See `Store.queue`."""
        return next((queue for queue in self.queues() if queue.name == name), None)

    def queues(self) -> Iterator[QueueRecord]:
        """See `Store.queues`."""
        with self._lock:
            return iter([copy.copy(queue) for queue in self._queues.values()])

    def producer(self, name: str) -> ProducerRecord | None:
        """See `Store.producer`."""
        with self._lock:
            found = [producer for producer in self._producers.values() if producer.name == name]
            return copy.deepcopy(found[0]) if found else None

    def outcome(self, txn: bytes) -> bool:
        """See `Store.outcome`."""
        with self._lock:
            return txn in self._outcomes

    def messages(self, queue: int, after: int, limit: int, limit_bytes: int) -> Sequence[StoredMessage]:
        """See `Store.messages`."""
        with self._lock:
            waiting = self._messages.get(queue, {})
            found: list[StoredMessage] = []
            for seq in sorted(seq for seq in waiting if seq > after)[:limit]:
                found.append(copy.copy(waiting[seq]))
                limit_bytes -= len(waiting[seq].body)
                if limit_bytes < 0:
                    break
            return found

    def commit(self, batch: Batch) -> int:
        """See `Store.commit`."""
        with self._lock:
            if batch.epoch != self._meta.epoch:
                raise FencedError(f"epoch {batch.epoch} is over: the store is in epoch {self._meta.epoch}")
            self._check(batch)
            bodies = iter(batch.bodies)
            for fact in batch.facts:
                self._apply(fact, bodies, batch.time_us)
            return self._append(batch.time_us, batch.facts)

    def log(self, after: int, limit: int) -> Sequence[tuple[int, LogRecord]]:
        """See `Store.log`."""
        with self._lock:
            return [(position, self._log[position]) for position in self._log if position > after][:limit]

    def log_range(self) -> tuple[int, int]:
        """See `Store.log_range`."""
        with self._lock:
            last = self._meta.log_position
            return min(self._log, default=last + 1), last

    def log_bytes(self) -> int:
        """See `Store.log_bytes`."""
        with self._lock:
            return sum(len(encode_record(record)) for record in self._log.values())

    def trim_log(self, through: int, limit: int) -> int:
        """See `Store.trim_log`."""
        with self._lock:
            oldest = [position for position in self._log if position <= through][:limit]
            for position in oldest:
                del self._log[position]
            return len(oldest)

    def prune(self, now_us: int) -> int:
        """See `Store.prune`."""
        with self._lock:
            outcomes_end_us = now_us - limits.OUTCOME_RETENTION_S * 1_000_000
            producers_end_us = now_us - limits.PRODUCER_RETENTION_S * 1_000_000
            outcomes = [txn for txn, time_us in self._outcomes.items() if time_us < outcomes_end_us]
            producers = [p for _, p in sorted(self._producers.items()) if p.seen_us < producers_end_us]
            for txn in outcomes:
                del self._outcomes[txn]
            for producer in producers:
                del self._producers[producer.producer]
            if producers:
                self._append(now_us, [ProducerForgotten(p.producer, p.name) for p in producers])
            return len(outcomes) + len(producers)

    def usage(self) -> Usage:
        """See `Store.usage`; the heap has no bound that one could name."""
        with self._lock:
            used = sum(len(message.body) for queue in self._messages.values() for message in queue.values())
        return Usage(used, limits.STORE_MAP_BYTES_DEFAULT, limits.STORE_MAP_BYTES_DEFAULT)

    def close(self) -> None:
        """See `Store.close`."""

    def _append(self, time_us: int, facts: list[AnyFact]) -> int:
        self._meta.log_position += 1
        self._log[self._meta.log_position] = LogRecord(self._meta.epoch, time_us, list(facts))
        return self._meta.log_position

    def _check(self, batch: Batch) -> None:
        """Refuse a batch that contradicts itself or the state, before any of it is applied."""
        stored = [fact for fact in batch.facts if isinstance(fact, MessageStored)]
        if [fact.size for fact in stored] != [len(body) for body in batch.bodies]:
            raise StoreError("the sizes of the batch's bodies are not those of its stored messages")
        created = [fact for fact in batch.facts if isinstance(fact, QueueCreated)]
        numbers = [*self._queues, *(fact.queue for fact in created)]
        names = [*(queue.name for queue in self._queues.values()), *(fact.name for fact in created)]
        if len(set(numbers)) < len(numbers) or len(set(names)) < len(names):
            raise StoreError("the batch creates a queue that there is already")
        for fact in batch.facts:
            if isinstance(fact, QUEUE_FACTS) and fact.queue not in numbers:
                raise StoreError(f"a fact names queue {fact.queue}, which was never created")

    def _apply(self, fact: AnyFact, bodies: Iterator[bytes], time_us: int) -> None:
        meta = self._meta
        match fact:
            case QueueCreated(queue, name):
                self._queues[queue] = QueueRecord(queue, name)
                self._messages[queue] = {}
                meta.next_queue = max(meta.next_queue, queue + 1)
            case ProducerRegistered(producer, name):
                self._producers.setdefault(producer, ProducerRecord(producer, name)).seen_us = time_us
                meta.next_producer = max(meta.next_producer, producer + 1)
            case ProducerForgotten(producer):
                self._producers.pop(producer, None)
            case ConsumerAttached(consumer):
                meta.next_consumer = max(meta.next_consumer, consumer + 1)
            case MessageStored(queue, seq):
                self._messages[queue][seq] = StoredMessage(seq, next(bodies))
                self._queues[queue].stored += 1
                self._queues[queue].last_seq = max(self._queues[queue].last_seq, seq)
                if fact.producer:
                    self._number(fact.producer, fact.number, time_us, refused=False)
            case MessageConsumed(queue, seq) | MessageDeadLettered(queue, seq):
                self._messages[queue].pop(seq, None)
                self._queues[queue].consumed += 1
            case MessageReturned(queue, seq, count, flagged):
                if message := self._messages[queue].get(seq):
                    message.count, message.flagged = count, flagged
            case MessagePresented(queue, seq):
                if message := self._messages[queue].get(seq):
                    message.flagged = True
            case DispatchMarked(queue, seq):
                self._queues[queue].dispatch_mark = max(self._queues[queue].dispatch_mark, seq)
            case NumberRefused(producer, number):
                self._number(producer, number, time_us, refused=True)
            case TransactionCommitted(txn):
                self._outcomes[txn] = time_us

    def _number(self, producer: int, number: int, time_us: int, *, refused: bool) -> None:
        """Remember what became of a producer's number; a producer forgotten meanwhile stays forgotten."""
        if record := self._producers.get(producer):
            record.last_number = max(record.last_number, number)
            record.refused = sorted({*record.refused, number} if refused else {*record.refused} - {number})
            record.seen_us = time_us
