"""The in-memory store: the model that every other store is compared with. Nothing survives the process."""

import copy
import threading
from array import array
from collections.abc import Iterator, Sequence, Set
from itertools import accumulate

from msgspec.structs import replace

from legato import limits
from legato.core.facts import AnyFact, EpochBegan, Kind, LogRecord, encode_record
from legato.core.records import Applied, ExpiryPlace, KeptId, Run, StoredRun, TakenMessage
from legato.errors import FencedError, StoreError
from legato.store.base import NONE_KEPT, Batch, Meta, ProducerRecord, QueueRecord, ReadingsFound, StoredMessage, Usage
from legato.store.commit_records import CommitRecord, EpochRecord, refuse_unless_next
from legato.store.lanes import lane_of
from legato.store.model import Model


class MemoryStore:
    """A `Store` in memory."""

    def __init__(self) -> None:
        self._state = Model()
        self._log: dict[int, LogRecord] = {}
        self._log_bytes = 0
        self._lock = threading.Lock()
        self._prepared: CommitRecord | EpochRecord | None = None

    @property
    def jobs(self) -> None:
        """See `Store.jobs`."""
        return None

    def checkpoint(self) -> None:
        """See `Store.checkpoint`: there are no other processes."""

    def begin_epoch(self, broker: str, now_us: int) -> Meta:
        """See `Store.begin_epoch`."""
        with self._lock:
            self._begin(broker, now_us)
            return copy.copy(self._state.meta)

    def _begin(self, broker: str, now_us: int) -> None:
        self._state.meta.begin(now_us)
        self._state.uploading.clear()
        self._append(now_us, [EpochBegan(broker)])

    def meta(self) -> Meta:
        """See `Store.meta`."""
        with self._lock:
            return copy.copy(self._state.meta)

    def queue(self, name: str) -> QueueRecord | None:
        """See `Store.queue`."""
        with self._lock:
            found = (queue for queue in self._state.queues.values() if queue.name == name)
            return next((_copy_queue(queue) for queue in found), None)

    def queue_by_number(self, queue: int) -> QueueRecord | None:
        """See `Store.queue_by_number`."""
        with self._lock:
            record = self._state.queues.get(queue)
            return None if record is None else _copy_queue(record)

    def queues(self) -> Iterator[QueueRecord]:
        """See `Store.queues`."""
        with self._lock:
            return iter([_copy_queue(queue) for _, queue in sorted(self._state.queues.items())])

    def subscriptions(self, topic: int) -> Sequence[QueueRecord]:
        """See `Store.subscriptions`."""
        return [queue for queue in self.queues() if queue.kind == Kind.SUBSCRIPTION and queue.topic == topic]

    def temporaries(self, limit: int) -> Sequence[QueueRecord]:
        """See `Store.temporaries`."""
        return [queue for queue in self.queues() if queue.temporary][:limit]

    def producer(self, name: str) -> ProducerRecord | None:
        """See `Store.producer`."""
        with self._lock:
            found = [producer for producer in self._state.producers.values() if producer.name == name]
            return replace(found[0], refused=list(found[0].refused)) if found else None

    def producers(self, after: int, limit: int) -> Sequence[ProducerRecord]:
        """See `Store.producers`."""
        with self._lock:
            found = [record for number, record in sorted(self._state.producers.items()) if number > after]
            return copy.deepcopy(found[:limit])

    def producers_count(self) -> int:
        """See `Store.producers_count`."""
        with self._lock:
            return len(self._state.producers)

    def producer_names(self, prefix: str, limit: int) -> Sequence[str]:
        """See `Store.producer_names`."""
        with self._lock:
            names = {record.name for record in self._state.producers.values()}
            return sorted(name for name in names if name.startswith(prefix))[:limit]

    def outcome(self, txn: bytes) -> bool:
        """See `Store.outcome`."""
        with self._lock:
            return txn in self._state.outcomes

    def outcomes_forgotten_us(self) -> int:
        """See `Store.outcomes_forgotten_us`."""
        return self.meta().outcomes_forgotten_us

    def messages(self, queue: int, after: int, limit: int, limit_bytes: int) -> Sequence[StoredMessage]:
        """See `Store.messages`."""
        with self._lock:
            waiting = self._state.messages.get(queue, {})
            found: list[StoredMessage] = []
            lane = lane_of(after)
            for seq in sorted(seq for seq in waiting if seq > after and lane_of(seq) == lane)[:limit]:
                found.append(_copy_message(waiting[seq]))
                limit_bytes -= len(waiting[seq].body)
                if limit_bytes < 0:
                    break
            return found

    def messages_in_runs(
        self, queue: int, after: int, limit: int, limit_bytes: int
    ) -> Sequence[StoredMessage | StoredRun]:
        """See `Store.messages_in_runs`."""
        found: list[StoredMessage | StoredRun] = []
        neighbours: list[StoredMessage] = []
        for message in self.messages(queue, after, limit, limit_bytes):
            last = neighbours[-1] if neighbours else message
            if not message.is_plain or (last.seq + 1, last.stored_us) != (message.seq, message.stored_us):
                found += _run_of(neighbours)
                neighbours.clear()
            if message.is_plain:
                neighbours.append(message)
            else:
                found.append(message)
        return found + _run_of(neighbours)

    def unread_messages(self, queue: int, seqs: Sequence[int]) -> Sequence[StoredMessage]:
        """See `Store.unread_messages`."""
        with self._lock:
            waiting = self._state.messages.get(queue, {})
            found = [_copy_message(waiting[seq]) for seq in seqs if seq in waiting]
            return [replace(message, body=b"", unread_bytes=len(message.body)) for message in found]

    def taken(self, queue: int) -> Sequence[TakenMessage]:
        """See `Store.taken`."""
        with self._lock:
            return list(self._state.taken.get(queue, ()))

    def expired(self, after: ExpiryPlace, now_us: int, limit: int) -> Sequence[ExpiryPlace]:
        """See `Store.expired`."""
        with self._lock:
            places = [
                ExpiryPlace(message.expires_us, queue, message.seq)
                for queue, waiting in self._state.messages.items()
                for message in waiting.values()
                if 0 < message.expires_us <= now_us
            ]
            return sorted(place for place in places if place > after)[:limit]

    def duplicate(self, queue: int, duplicate_id: bytes) -> KeptId | None:
        """See `Store.duplicate`."""
        with self._lock:
            ids = self._state.ids.get(queue)
            position = None if ids is None else ids.positions.get(duplicate_id)
            return None if ids is None or position is None else ids.kept[position][1]

    def duplicates(self, queue: int) -> tuple[int, int]:
        """See `Store.duplicates`."""
        with self._lock:
            ids = self._state.ids.get(queue)
            return NONE_KEPT if ids is None else (ids.first, ids.last)

    def runs(self, queue: int, after: int, limit: int, limit_bytes: int, without: Set[int]) -> Sequence[Run]:
        """See `Store.runs`."""
        runs: list[Run] = []
        waiting = self._state.messages.get(queue, {})
        with self._lock:
            for seq in sorted(seq for seq in waiting if seq > after and lane_of(seq) == lane_of(after)):
                if limit <= 0 or limit_bytes < 0:
                    break
                if seq in without:
                    continue
                size = len(waiting[seq].body)
                limit -= 1
                limit_bytes -= size
                if runs and runs[-1].seq + runs[-1].count == seq:
                    runs[-1] = Run(runs[-1].seq, runs[-1].count + 1, runs[-1].size + size)
                else:
                    runs.append(Run(seq, 1, size))
        return runs

    def chunk(self, large: int, index: int) -> bytes | None:
        """See `Store.chunk`."""
        with self._lock:
            return self._state.chunks.get((large, index))

    def has_larges(self) -> bool:
        """See `Store.has_larges`."""
        with self._lock:
            return bool(self._state.chunks)

    def commit(self, batch: Batch) -> int:
        """See `Store.commit`."""
        with self._lock:
            if batch.epoch != self._state.meta.epoch:
                raise FencedError(f"epoch {batch.epoch} is over: the store is in epoch {self._state.meta.epoch}")
            return self._apply(batch)

    def _apply(self, batch: Batch) -> int:
        self._state.apply(batch)
        return self._append(batch.time_us, batch.facts)

    def prepare(self, record: CommitRecord | EpochRecord, *, forced: bool = False) -> int:
        """See `Store.prepare`: it is checked, and applied when it is finished."""
        with self._lock:
            if self._prepared is not None:
                raise StoreError("a commit is prepared already")
            refuse_unless_next(record, self._state.meta)
            if isinstance(record, CommitRecord):
                self._state.check(record.batch)
            self._prepared = record
            return record.position

    def finish(self, applied: Applied) -> None:
        """See `Store.finish`."""
        with self._lock:
            record, self._prepared = self._prepared, None
            if record is None:
                raise StoreError("no commit is prepared")
            if isinstance(record, CommitRecord):
                self._apply(record.batch)
            else:
                self._begin(record.broker, record.now_us)
            self._state.meta.applied = applied

    def abandon(self) -> None:
        """See `Store.abandon`."""
        with self._lock:
            self._prepared = None

    def place(self, applied: Applied) -> None:
        """See `Store.place`."""
        with self._lock:
            self._state.meta.applied = applied

    def log(self, after: int, limit: int) -> Sequence[tuple[int, LogRecord]]:
        """See `Store.log`."""
        with self._lock:
            return [(position, self._log[position]) for position in self._log if position > after][:limit]

    def log_range(self) -> tuple[int, int]:
        """See `Store.log_range`."""
        with self._lock:
            last = self._state.meta.log_position
            return min(self._log, default=last + 1), last

    def log_bytes(self) -> int:
        """See `Store.log_bytes`."""
        with self._lock:
            return self._log_bytes

    def trim_log(self, through: int, limit: int) -> int:
        """See `Store.trim_log`."""
        with self._lock:
            oldest = [position for position in self._log if position <= through][:limit]
            for position in oldest:
                self._log_bytes -= len(encode_record(self._log.pop(position)))
            return len(oldest)

    def prune(self, now_us: int) -> int:
        """See `Store.prune`."""
        with self._lock:
            return self._state.forget_outcomes() + self._state.remove_loose()

    def check_readers(self) -> ReadingsFound:
        """See `Store.check_readers`: nobody else can read the heap."""
        return ReadingsFound(0, [], 0)

    def keep_reserve(self) -> bool:
        """See `Store.keep_reserve`: the heap needs none."""
        return True

    def make_room(self) -> bool:
        """See `Store.make_room`: the heap has it."""
        return False

    def usage(self) -> Usage:
        """See `Store.usage`; the heap has no bound that one could name."""
        with self._lock:
            used = sum(len(message.body) for queue in self._state.messages.values() for message in queue.values())
        return Usage(used, limits.STORE_MAP_BYTES_DEFAULT, limits.STORE_MAP_BYTES_DEFAULT)

    def close(self) -> None:
        """See `Store.close`."""

    def _append(self, time_us: int, facts: list[AnyFact]) -> int:
        self._state.meta.log_position += 1
        self._state.meta.applied = None
        record = LogRecord(self._state.meta.epoch, time_us, list(facts))
        self._log[self._state.meta.log_position] = record
        self._log_bytes += len(encode_record(record))
        return self._state.meta.log_position


def _copy_queue(queue: QueueRecord) -> QueueRecord:
    return replace(queue, lanes=dict(queue.lanes), floors=list(queue.floors))


def _run_of(neighbours: Sequence[StoredMessage]) -> list[StoredMessage | StoredRun]:
    """Their run; nothing if there are none."""
    if not neighbours:
        return []
    bodies = [message.body for message in neighbours]
    first = neighbours[0]
    return [StoredRun(first.seq, b"".join(bodies), array("I", accumulate(map(len, bodies))), first.stored_us)]


def _copy_message(message: StoredMessage) -> StoredMessage:
    return replace(message, history=list(message.history))
