"""The LMDB store: state and log, one write transaction for each commit, readable by other processes.

A crash needs no recovery: LMDB never overwrites a page that the last commit can see. The database must be on a
local file system. LMDB's writer lock spans processes and the epoch is checked inside it, so that nobody can commit
a batch of an epoch that is over (promise 7).
"""

import logging
import os
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import lmdb
import msgspec

from legato import limits
from legato.core.facts import Kind, LogRecord
from legato.core.records import Applied, ExpiryPlace, KeptId, Run, StoredRun, TakenMessage
from legato.errors import FencedError, StoreCorruptError, StoreError, StoreFormatError, StoreFullError
from legato.store import values
from legato.store.apply import apply_changes, forget_outcomes
from legato.store.apply_queues import remove_deleted
from legato.store.base import Batch, Meta, ProducerRecord, QueueRecord, ReadingsFound, StoredMessage, Usage
from legato.store.block_reader import SharedBodies, find_messages, read_messages, read_messages_in_runs
from legato.store.blocks import RawBlock
from legato.store.changes import gather
from legato.store.commit_records import (
    CommitRecord,
    EpochRecord,
    decode,
    encode_commit,
    encode_epoch,
    encode_log_bytes,
    refuse_unless_next,
)
from legato.store.deliveries import with_deliveries
from legato.store.duplicates import find_id, kept_range
from legato.store.environment import (
    DATA_NAME,
    STATE_KEY,
    Databases,
    lmdb_errors,
    open_environment,
    used_bytes,
)
from legato.store.expiries import expired_places
from legato.store.jobs import JobThread
from legato.store.keys import (
    chunk_key,
    name_key,
    number_key,
    pair_key,
    position_key,
    read_name,
    read_number,
    read_pair,
    read_position,
)
from legato.store.larges import has_larges, remove_loose
from legato.store.migration import migrate
from legato.store.preallocation import Preallocation
from legato.store.readers import holding_readings
from legato.store.reassigned import read_taken
from legato.store.reserve import RESERVE_BYTES, Reserve
from legato.store.runs import find_runs, raw_blocks
from legato.store.transactions import Keeping, Transactions

log = logging.getLogger("legato.store")

T = TypeVar("T")

PRUNE_LIMIT = 1_000
"""Outcomes that one call of `prune` forgets."""
PRUNE_MESSAGES = 4_000
"""Messages of deleted queues that one call of `prune` removes: some milliseconds for which a commit has to wait."""
PRUNE_CHUNKS = 200
"""Parts of large messages that one call of `prune` removes."""
QUEUES_PAGE = 250
"""Queues read in one transaction."""


class LmdbStore:
    """A `Store` in the directory `path`, created if there is none.

    Args:
        path: a directory on a local file system; `data.mdb` and `lock.mdb` in it are the store's.
        map_bytes: the store never becomes larger; costs address space only.
        sync: wait for the disk in every commit. False survives a killed process but not a power cut.
        read_only: for other processes than the broker, who look on; every change raises `StoreError`.
        log_facts: False keeps no log, so that nothing can be proved: exists to measure what the log costs.
        migrates: whether a store of a former format is brought to the present one (`migration`), which takes as long
            as a copy of it; never if `read_only`.
        keeping: when what is durable by a journal is written to the store's file; None: there is no journal, and each
            commit is. Also without the log of facts there is none.
        metasync: False spares a commit the second wait for the disk: a power cut may undo the last one. For replicas,
            whose log has it.

    Attributes:
        jobs: the thread that alone changes the store, if there is a journal.

    Raises:
        StoreFormatError: it has another format.
        StoreCorruptError: it is not a store, or damaged.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        map_bytes: int = limits.STORE_MAP_BYTES_DEFAULT,
        sync: bool = True,
        read_only: bool = False,
        log_facts: bool = True,
        migrates: bool = True,
        keeping: Keeping | None = None,
        metasync: bool = True,
    ) -> None:
        self.path = Path(path)
        self._log_facts = log_facts
        self._map_bytes = map_bytes
        opening = partial(
            open_environment, self.path, map_bytes=map_bytes, sync=sync, read_only=read_only, metasync=metasync
        )
        try:
            self._env, self._databases = opening()
        except StoreFormatError as error:
            if read_only or not migrates or not error.former:
                raise
            migrate(self.path, map_bytes=map_bytes)
            self._env, self._databases = opening()
        self._room = Preallocation(self.path / DATA_NAME, map_bytes)
        self._reserve = Reserve(self.path / DATA_NAME)
        self._epoch: int | None = None
        self._keeping = keeping if log_facts else None
        self._transactions = Transactions(
            self._env, self._databases.meta, self.path, map_bytes, self._apply_again, sync=sync
        )
        self.jobs: JobThread | None = None
        if self._keeping is not None:
            self.jobs = JobThread("legato-writer", self._between)
        elif not read_only:
            try:
                self._transactions.settle()
            except BaseException:
                self._env.close()
                raise
        self._prepared: _Prepared | None = None

    def begin_epoch(self, broker: str, now_us: int) -> Meta:
        """See `Store.begin_epoch`; on a full disk it uses the reserve."""
        meta = self._in_writer(lambda: self._with_reserve(lambda: self._begin_epoch(broker, now_us)))
        self._epoch = meta.epoch
        self._reserve.make()
        return meta

    def _begin_epoch(self, broker: str, now_us: int) -> Meta:
        with self._transactions.journaling(self._keeping) as txn:
            meta = self._meta(txn)
            record, _ = encode_epoch(meta.epoch + 1, meta.log_position + 1, broker, now_us)
            self._apply(txn, meta, record)
            self._put_state(txn, meta, None)
        return meta

    def has_open_journal(self) -> bool:
        """Whether there may be commits that the store's file does not hold."""
        return self._transactions.has_open_journal()

    def _apply_again(self, txn: Any, payload: bytes) -> None:
        """Do what a record of the journal says."""
        record = decode(payload)
        if not isinstance(record, CommitRecord):
            raise StoreCorruptError(f"the journal of the store in {self.path} holds what is no commit")
        meta = self._meta(txn)
        refuse_unless_next(record, meta)
        self._apply(txn, meta, record)
        self._put_state(txn, meta, None)

    def meta(self) -> Meta:
        """See `Store.meta`."""
        with self._reading() as txn:
            return self._meta(txn)

    def queue(self, name: str) -> QueueRecord | None:
        """See `Store.queue`."""
        databases = self._databases
        value = self._get_by_name(name, databases.queue_names, databases.queues)
        return None if value is None else values.decode_queue(value)

    def queues(self) -> Iterator[QueueRecord]:
        """See `Store.queues`; each page of them is as of one commit, as no reader should hold LMDB's pages for long."""
        after = 0
        while page := self._queues_after(after):
            yield from page
            after = page[-1].queue

    def producer(self, name: str) -> ProducerRecord | None:
        """See `Store.producer`."""
        databases = self._databases
        value = self._get_by_name(name, databases.producer_names, databases.producers)
        return None if value is None else values.decode_producer(value)

    def producers(self, after: int, limit: int) -> Sequence[ProducerRecord]:
        """See `Store.producers`."""
        found: list[ProducerRecord] = []
        with self._reading() as txn, txn.cursor(db=self._databases.producers) as cursor:
            there = cursor.set_range(number_key(after + 1))
            while there and len(found) < limit:
                found.append(values.decode_producer(cursor.value()))
                there = cursor.next()
        return found

    def producers_count(self) -> int:
        """See `Store.producers_count`."""
        with self._reading() as txn:
            return int(txn.stat(self._databases.producers)["entries"])

    def producer_names(self, prefix: str, limit: int) -> Sequence[str]:
        """See `Store.producer_names`."""
        begin = name_key(prefix)
        found: list[str] = []
        with self._reading() as txn, txn.cursor(db=self._databases.producer_names) as cursor:
            there = cursor.set_range(begin)
            while there and len(found) < limit and (key := bytes(cursor.key())).startswith(begin):
                found.append(read_name(key))
                there = cursor.next()
        return found

    def outcome(self, txn: bytes) -> bool:
        """See `Store.outcome`."""
        with self._reading() as reading:
            return len(txn) > 0 and reading.get(txn, db=self._databases.outcomes) is not None

    def outcomes_forgotten_us(self) -> int:
        """See `Store.outcomes_forgotten_us`."""
        return self.meta().outcomes_forgotten_us

    def queue_by_number(self, queue: int) -> QueueRecord | None:
        """See `Store.queue_by_number`."""
        with self._reading() as txn:
            return self._record(txn, queue)

    def subscriptions(self, topic: int) -> Sequence[QueueRecord]:
        """See `Store.subscriptions`."""
        with self._reading() as txn, txn.cursor(db=self._databases.subscriptions) as cursor:
            numbers: list[int] = []
            there = cursor.set_range(pair_key(topic, 0))
            while there and (pair := read_pair(cursor.key()))[0] == topic:
                numbers.append(pair[1])
                there = cursor.next()
            return self._records_of(txn, numbers)

    def temporaries(self, limit: int) -> Sequence[QueueRecord]:
        """See `Store.temporaries`."""
        with self._reading() as txn, txn.cursor(db=self._databases.temporaries) as cursor:
            numbers: list[int] = []
            there = cursor.first()
            while there and len(numbers) < limit:
                numbers.append(read_number(cursor.key()))
                there = cursor.next()
            return self._records_of(txn, numbers)

    def messages(self, queue: int, after: int, limit: int, limit_bytes: int) -> Sequence[StoredMessage]:
        """See `Store.messages`."""
        return self._read_queue(
            queue, lambda cursor, bodies: read_messages(cursor, bodies, queue, after, limit, limit_bytes)
        )

    def messages_in_runs(
        self, queue: int, after: int, limit: int, limit_bytes: int
    ) -> Sequence[StoredMessage | StoredRun]:
        """See `Store.messages_in_runs`."""
        return self._read_queue(
            queue, lambda cursor, bodies: read_messages_in_runs(cursor, bodies, queue, after, limit, limit_bytes)
        )

    def unread_messages(self, queue: int, seqs: Sequence[int]) -> Sequence[StoredMessage]:
        """See `Store.unread_messages`."""
        return self._read_queue(queue, lambda cursor, _: find_messages(cursor, queue, seqs))

    def _read_queue(self, queue: int, read: Callable[[Any, SharedBodies], list[Any]]) -> list[Any]:
        """What `read` finds in a queue, with what is remembered of deliveries; nothing in a topic."""
        databases = self._databases
        with self._reading() as txn:
            record = self._record(txn, queue)
            if record is None or record.kind == Kind.TOPIC:
                return []
            with txn.cursor(db=databases.messages) as cursor, txn.cursor(db=databases.messages) as shared:
                found = read(cursor, SharedBodies(shared))
            if found and txn.stat(databases.deliveries)["entries"]:
                with txn.cursor(db=databases.deliveries) as cursor:
                    found = with_deliveries(cursor, queue, found)
        return found

    def taken(self, queue: int) -> Sequence[TakenMessage]:
        """See `Store.taken`."""
        with self._reading() as txn, txn.cursor(db=self._databases.taken) as cursor:
            record = self._record(txn, queue)
            return [] if record is None else read_taken(cursor, record)

    def expired(self, after: ExpiryPlace, now_us: int, limit: int) -> Sequence[ExpiryPlace]:
        """See `Store.expired`."""
        databases = self._databases
        with (
            self._reading() as txn,
            txn.cursor(db=databases.expiries) as index,
            txn.cursor(db=databases.messages) as messages,
        ):

            @cache
            def is_there(queue: int) -> bool:
                return txn.get(number_key(queue), db=databases.queues) is not None

            return expired_places(index, messages, is_there, after, now_us, limit)

    def duplicate(self, queue: int, duplicate_id: bytes) -> KeptId | None:
        """See `Store.duplicate`; this runs for each message with an id, so it does without `_reading` if it can."""
        if self.jobs is not None:
            with self._reading() as txn:
                return find_id(txn, self._databases, queue, duplicate_id)
        try:
            with self._env.begin(buffers=True) as txn:
                return find_id(txn, self._databases, queue, duplicate_id)
        except lmdb.Error:
            with lmdb_errors(f"reading the store in {self.path}"):
                raise

    def duplicates(self, queue: int) -> tuple[int, int]:
        """See `Store.duplicates`."""
        with self._reading() as txn, txn.cursor(db=self._databases.duplicate_places) as cursor:
            return kept_range(cursor, queue)

    def runs(self, queue: int, after: int, limit: int, limit_bytes: int, without: Set[int]) -> Sequence[Run]:
        """See `Store.runs`."""
        with self._reading() as txn, txn.cursor(db=self._databases.messages) as cursor:
            return find_runs(cursor, queue, after, limit, limit_bytes, without)

    def read_blocks(
        self, queue: int, after: int, through: int, limit_bytes: int, use: Callable[[list[RawBlock]], T]
    ) -> T | None:
        """Result of `use` for the blocks that hold a range of a queue; see `raw_blocks`.

        The first may begin before the range and the last end behind it. They are there until `use` returns.

        Returns:
            None if blocks do not say everything of the messages in the range.
        """
        databases = self._databases
        with (
            self._reading() as txn,
            txn.cursor(db=databases.messages) as cursor,
            txn.cursor(db=databases.deliveries) as deliveries,
        ):
            blocks = raw_blocks(cursor, deliveries, queue, after, through, limit_bytes)
            return None if blocks is None else use(blocks)

    def chunk(self, large: int, index: int) -> bytes | None:
        """See `Store.chunk`."""
        with self._reading() as txn:
            value = txn.get(chunk_key(large, index), db=self._databases.chunks)
            return None if value is None else bytes(value)

    def has_larges(self) -> bool:
        """See `Store.has_larges`."""
        with self._reading() as txn:
            return has_larges(txn, self._databases)

    def commit(self, batch: Batch) -> int:
        """See `Store.commit`."""
        return self._in_writer(lambda: self._commit_with_room(batch))

    def _commit_with_room(self, batch: Batch) -> int:
        if not _grows(batch):
            return self._with_reserve(lambda: self._commit(batch))
        if self._reserve.spent:
            self._refuse_to_grow(batch)
        return self._with_freed(lambda: self._commit(batch))

    def _commit(self, batch: Batch) -> int:
        with self._transactions.writing() as unit:
            txn = unit.txn
            meta = self._meta(txn)
            if batch.epoch != meta.epoch:
                raise _over(batch.epoch, meta)
            if _grows(batch):
                self._refuse_to_fill(txn, batch)
            if self._transactions.journals(batch, _stored_bytes(batch)):
                record, unit.record = encode_commit(batch, meta.log_position + 1)
            else:
                record = CommitRecord(meta.log_position + 1, batch, encode_log_bytes(batch))
            unit.epoch, unit.changed = batch.epoch, True
            used_before = self._apply(txn, meta, record)
            self._put_state(txn, meta, None)
        self._note_growth(batch, used_before)
        return meta.log_position

    def prepare(self, record: CommitRecord | EpochRecord, *, forced: bool = False) -> int:
        """See `Store.prepare`."""
        if self._prepared is not None:
            if not forced:
                raise StoreError("a commit is prepared already")
            return self._prepare_more(self._prepared, record)
        if isinstance(record, EpochRecord) or forced or not _grows(record.batch):
            return self._with_reserve(lambda: self._prepare(record, grows=False))
        self._refuse_what_finds_no_room(record.batch)
        return self._with_freed(lambda: self._prepare(record, grows=True))

    def _prepare(self, record: CommitRecord | EpochRecord, *, grows: bool) -> int:
        with ExitStack() as stack:
            txn = stack.enter_context(self._writing())
            meta = self._meta(txn)
            refuse_unless_next(record, meta)
            if grows and isinstance(record, CommitRecord):
                self._refuse_to_fill(txn, record.batch)
            used_before = self._apply(txn, meta, record)
            began = isinstance(record, EpochRecord)
            self._prepared = _Prepared(record, txn, meta, used_before, stack.pop_all(), began)
        return record.position

    def _prepare_more(self, before: "_Prepared", record: CommitRecord | EpochRecord) -> int:
        refuse_unless_next(record, before.meta)
        try:
            with lmdb_errors(f"writing the store in {self.path}"):
                self._apply(before.txn, before.meta, record)
        except BaseException:
            self.abandon()
            raise
        began = before.began or isinstance(record, EpochRecord)
        self._prepared = before._replace(record=record, began=began)
        return record.position

    def finish(self, applied: Applied) -> None:
        """See `Store.finish`."""
        prepared, self._prepared = self._prepared, None
        if prepared is None:
            raise StoreError("no commit is prepared")
        try:
            with prepared.writing:
                self._put_state(prepared.txn, prepared.meta, applied)
        except StoreFullError as error:
            # LMDB writes its pages only now. Whoever carries the records has this one already, and tries again.
            if not isinstance(error.__cause__, lmdb.MapFullError):
                self._spend_reserve()
            raise
        if isinstance(prepared.record, CommitRecord):
            self._note_growth(prepared.record.batch, prepared.used_before)
        if prepared.began:
            self._epoch = prepared.meta.epoch
            self._reserve.make()

    def abandon(self) -> None:
        """See `Store.abandon`."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            # To the transaction this is any error: it is undone.
            with suppress(_Abandoned), prepared.writing:
                raise _Abandoned

    def place(self, applied: Applied | None) -> None:
        """See `Store.place`; None: its last commit counts as one that came from no log."""
        self._with_reserve(lambda: self._place(applied))

    def _place(self, applied: Applied | None) -> None:
        with self._writing() as txn:
            meta = self._meta(txn)
            self._refuse_fenced(meta)
            self._put_state(txn, meta, applied)

    def _apply(self, txn: Any, meta: Meta, record: CommitRecord | EpochRecord) -> int:
        """Everything that a record does, but for the state; returns how far the pages reached before."""
        used_before = 0
        if isinstance(record, CommitRecord):
            changes = gather(record.batch)
            if record.batch.runs:
                used_before = used_bytes(self._env)
            apply_changes(txn, self._databases, meta, changes)
        else:
            meta.begin(record.now_us)
        if self._log_facts:
            meta.log_position += 1
            txn.put(position_key(meta.log_position), record.log_bytes, db=self._databases.log, append=True)
        return used_before

    def _put_state(self, txn: Any, meta: Meta, applied: Applied | None) -> None:
        meta.applied = applied
        txn.put(STATE_KEY, values.encode(meta), db=self._databases.meta)

    def _note_growth(self, batch: Batch, used_before: int) -> None:
        if batch.runs:
            self._room.note_growth(used_bytes(self._env) - used_before)

    def make_room(self) -> bool:
        """See `Store.make_room`."""
        return bool(self._room.wanted) and self._in_writer(self._lengthen)

    def _lengthen(self) -> bool:
        with self._transactions.locked():
            return self._room.lengthen(used_bytes(self._env))

    def checkpoint(self) -> None:
        """See `Store.checkpoint`."""
        self._in_writer(self._transactions.checkpoint)

    def _between(self) -> float | None:
        """The thread of the store has no other job: returns after how many seconds it is to look again."""
        try:
            if self._transactions.due_in_s == 0:
                self._transactions.checkpoint()
            if self.make_room():
                return 0.0
        except StoreError as error:
            log.warning("! %s", error)
        return self._transactions.due_in_s

    def log(self, after: int, limit: int) -> Sequence[tuple[int, LogRecord]]:
        """See `Store.log`."""
        records: list[tuple[int, LogRecord]] = []
        with self._reading() as txn, txn.cursor(db=self._databases.log) as cursor:
            there = cursor.set_range(position_key(after + 1))
            while there and len(records) < limit:
                position = read_position(cursor.key())
                records.append((position, values.decode_log(cursor.value(), position)))
                there = cursor.next()
        return records

    def log_range(self) -> tuple[int, int]:
        """See `Store.log_range`."""
        with self._reading() as txn, txn.cursor(db=self._databases.log) as cursor:
            last = self._meta(txn).log_position
            return (read_position(cursor.key()) if cursor.first() else last + 1), last

    def log_bytes(self) -> int:
        """See `Store.log_bytes`; whole pages."""
        with self._reading() as txn:
            return _bytes_of(txn.stat(self._databases.log))

    def trim_log(self, through: int, limit: int) -> int:
        """See `Store.trim_log`.

        Raises:
            FencedError: this object began an epoch that is over.
        """
        return self._in_writer(lambda: self._with_reserve(lambda: self._trim_log(through, limit)))

    def _trim_log(self, through: int, limit: int) -> int:
        trimmed = 0
        with self._writing() as txn:
            self._refuse_fenced(self._meta(txn))
            with txn.cursor(db=self._databases.log) as cursor:
                there = cursor.first()
                while there and trimmed < limit and read_position(cursor.key()) <= through:
                    cursor.delete()
                    trimmed += 1
                    there = cursor.first()
        return trimmed

    def prune(self, now_us: int) -> int:
        """See `Store.prune`. Looks at the `PRUNE_LIMIT` oldest outcomes a call.

        Of deleted queues it removes `PRUNE_MESSAGES` messages, or a block more; of large messages `PRUNE_CHUNKS` parts.

        Raises:
            FencedError: this object began an epoch that is over.
        """
        return self._in_writer(lambda: self._with_reserve(lambda: self._prune(now_us)))

    def _prune(self, now_us: int) -> int:
        with self._writing() as txn:
            meta = self._meta(txn)
            self._refuse_fenced(meta)
            outcomes = forget_outcomes(txn, self._databases, meta, PRUNE_LIMIT)
            if outcomes:
                txn.put(STATE_KEY, values.encode(meta), db=self._databases.meta)
            removed = remove_deleted(txn, self._databases, now_us, PRUNE_MESSAGES)
            removed += remove_loose(txn, self._databases, meta.epoch, PRUNE_CHUNKS)
        return outcomes + removed

    def usage(self) -> Usage:
        """See `Store.usage`; bytes in use are those of live pages, not the size of the file."""
        with self._reading() as txn:
            live_bytes = self._live_bytes(txn)
        disk = os.statvfs(self.path)
        room_bytes = self._room_bytes(live_bytes)
        reserved = not self._reserve.spent or room_bytes >= RESERVE_BYTES
        return Usage(live_bytes, self._map_bytes, disk.f_bavail * disk.f_frsize, room_bytes, reserved)

    def check_readers(self) -> ReadingsFound:
        """See `Store.check_readers`."""
        with lmdb_errors(f"looking at the readers of {self.path}"), self._transactions.changing:
            cleared = int(self._env.reader_check())
            return ReadingsFound(cleared, holding_readings(self._env), used_bytes(self._env))

    def write_copy(self, file_descriptor: int) -> None:
        """Write the store's file to a pipe or socket, as of the last commit and without free pages; commits go on.

        Raises:
            StoreError: it cannot be read, or not be written there.
        """
        with lmdb_errors(f"copying the store in {self.path}"):
            self._env.copyfd(file_descriptor, compact=True)

    def keep_reserve(self) -> bool:
        """See `Store.keep_reserve`."""
        return self._reserve.make()

    def _room_bytes(self, live_bytes: int) -> int:
        """How much of the file can be written to; what readers hold cannot."""
        held = holding_readings(self._env)
        return (self.path / DATA_NAME).stat().st_size - (used_bytes(self._env) if held else live_bytes)

    def _live_bytes(self, txn: Any) -> int:
        return sum(_bytes_of(txn.stat(database)) for database in msgspec.structs.astuple(self._databases))

    def _with_reserve(self, write: Callable[[], T]) -> T:
        """Do what must not fail for lack of room, if need be with the reserve."""
        try:
            return self._with_freed(write)
        except StoreFullError as error:
            if isinstance(error.__cause__, lmdb.MapFullError) or not self._spend_reserve():
                raise
        return write()

    def _with_freed(self, write: Callable[[], T]) -> T:
        """Do what finds the map full once more, when the pages are released that the last commits freed."""
        try:
            return write()
        except StoreFullError as error:
            if not isinstance(error.__cause__, lmdb.MapFullError):
                raise
        self._release_freed()
        return write()

    def _release_freed(self) -> None:
        """Have LMDB use what the last commits freed: it does so two commits later, and what fails is no commit."""
        for _ in range(2):
            with self._writing() as txn:
                txn.put(STATE_KEY, values.encode(self._meta(txn)), db=self._databases.meta)

    def _spend_reserve(self) -> bool:
        """Whether there is more room now."""
        with self._transactions.locked():
            freed = self._env.reader_check() > 0
            return self._reserve.spend() or freed

    def _refuse_what_finds_no_room(self, batch: Batch) -> None:
        """Refuse what `finish` could not write: what is prepared is committed elsewhere before that.

        Raises:
            StoreFullError: neither the disk nor the file is certain to have room for the batch.
        """
        disk = os.statvfs(self.path)
        free_bytes = disk.f_bavail * disk.f_frsize
        # As a rule the disk has room, and nobody counts pages.
        if self._reserve.spent or free_bytes < RESERVE_BYTES + 2 * _stored_bytes(batch):
            self._refuse_to_grow(batch, 0 if self._reserve.spent else free_bytes)

    def _refuse_to_grow(self, batch: Batch, free_bytes: int = 0) -> None:
        """Without its reserve the store keeps as much room within its file.

        Args:
            free_bytes: of the disk, which count, too.

        Raises:
            StoreFullError: there would not be as much.
        """
        wanted_bytes = RESERVE_BYTES + 2 * _stored_bytes(batch)
        with self._reading() as txn:
            live_bytes = self._live_bytes(txn)
        if self._room_bytes(live_bytes) + free_bytes < wanted_bytes:
            raise StoreFullError(
                f"the disk of the store in {self.path} is full, what room is left is for consuming; "
                "free some of the disk, or move the store to a larger one"
            )

    def _refuse_to_fill(self, txn: Any, batch: Batch) -> None:
        """Keep the last part of the map for batches that store no message.

        Raises:
            StoreFullError: the batch would use some of it.
        """
        bytes_max = int(self._map_bytes * limits.STORE_FULL_SHARE)
        wanted_bytes = _stored_bytes(batch)
        if used_bytes(self._env) + wanted_bytes > bytes_max and self._live_bytes(txn) + wanted_bytes > bytes_max:
            raise StoreFullError(
                f"the map of the store in {self.path} is full, what room is left is for consuming; "
                "enlarge store.map_bytes"
            )

    def entries(self) -> dict[str, int]:
        """How many entries each database has, by its name."""
        names = Databases.__struct_fields__
        with self._reading() as txn:
            return {name: txn.stat(getattr(self._databases, name))["entries"] for name in names}

    def close(self) -> None:
        """Close the files; a change under way in another thread ends first, what begins later raises `StoreError`.

        What is in the journal is written to the store's file, if there is room for it.
        """
        if self.jobs is not None:
            with suppress(StoreError):  # It was closed before.
                self.jobs.run(lambda: self._transactions.close(self._is_ours))
            self.jobs.close()
        with self._transactions.changing:
            self._env.close()

    def _is_ours(self, txn: Any) -> bool:
        return self._meta(txn).epoch == self._epoch

    def _in_writer(self, change: Callable[[], T]) -> T:
        return change() if self.jobs is None else self.jobs.run(change)

    def _reading(self) -> AbstractContextManager[Any]:
        return self._transactions.reading()

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        """A change that is in the store's file when it ends."""
        with self._transactions.writing() as unit:
            unit.changed = True
            yield unit.txn

    def _meta(self, txn: Any) -> Meta:
        return values.decode_meta(txn.get(STATE_KEY, db=self._databases.meta))

    def _refuse_fenced(self, meta: Meta) -> None:
        if self._epoch not in (None, meta.epoch):
            raise FencedError(f"epoch {self._epoch} is over: the store is in epoch {meta.epoch}")

    def _get_by_name(self, name: str, numbers: Any, records: Any) -> bytes | None:
        with self._reading() as txn:
            number = txn.get(name_key(name), db=numbers)
            if number is None:
                return None
            record = txn.get(number, db=records)
            if record is None:
                raise StoreCorruptError(f"the store in {self.path} has a number but no record for {name}")
            return bytes(record)

    def _queues_after(self, queue: int) -> list[QueueRecord]:
        page: list[QueueRecord] = []
        with self._reading() as txn, txn.cursor(db=self._databases.queues) as cursor:
            there = cursor.set_range(number_key(queue + 1))
            while there and len(page) < QUEUES_PAGE:
                page.append(values.decode_queue(cursor.value()))
                there = cursor.next()
        return page

    def _record(self, txn: Any, queue: int) -> QueueRecord | None:
        value = txn.get(number_key(queue), db=self._databases.queues)
        return None if value is None else values.decode_queue(value)

    def _records_of(self, txn: Any, queues: Sequence[int]) -> list[QueueRecord]:
        """Raises `StoreCorruptError` if there is one that an index has and the store has not."""
        found: list[QueueRecord] = []
        for queue in queues:
            record = self._record(txn, queue)
            if record is None:
                raise StoreCorruptError(f"the store in {self.path} has an index entry but no record for queue {queue}")
            found.append(record)
        return found


class _Abandoned(Exception):
    """A prepared commit is undone."""


class _Prepared(NamedTuple):
    """A commit that is applied, in a transaction that is open, or several: then it is the last."""

    record: CommitRecord | EpochRecord
    txn: Any
    meta: Meta
    used_before: int
    writing: ExitStack
    began: bool
    """Whether an epoch begins with it."""


def _over(epoch: int, meta: Meta) -> FencedError:
    return FencedError(f"epoch {epoch} is over: the store is in epoch {meta.epoch}")


def _grows(batch: Batch) -> bool:
    """Whether it stores messages, or parts of them."""
    return bool(batch.bodies or batch.chunks or batch.runs)


def _stored_bytes(batch: Batch) -> int:
    """How many bytes of messages it stores."""
    bodies = sum(map(len, batch.bodies)) + sum(len(data) for _, _, data in batch.chunks)
    return bodies + sum(len(block) for run in batch.runs for block in run)


def _bytes_of(stat: dict[str, int]) -> int:
    return (stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]) * stat["psize"]
