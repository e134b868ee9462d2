"""The broker's store: state and log in LMDB, one write transaction a commit, readable by other processes meanwhile.

A crash needs no recovery: LMDB never overwrites a page that the last commit can see. The database must be on a
local file system. LMDB's writer lock spans processes and the epoch is checked inside it, so that nobody can commit
a batch of an epoch that is over (promise 7).
"""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
import msgspec

from legato import limits
from legato.core.facts import AnyFact, EpochBegan, LogRecord, ProducerForgotten, encode_record
from legato.errors import FencedError, StoreCorruptError, StoreFullError
from legato.store import values
from legato.store.apply import apply_changes, forget_outcomes, forget_producers
from legato.store.base import Batch, Meta, ProducerRecord, QueueRecord, StoredMessage, Usage
from legato.store.blocks import messages_after
from legato.store.changes import gather
from legato.store.environment import STATE_KEY, disk_is_full, lmdb_errors, open_environment
from legato.store.keys import (
    name_key,
    number_key,
    place_key,
    position_key,
    read_place,
    read_position,
)

PRUNE_LIMIT = 1_000
"""Outcomes, and producers, that one call of `prune` looks at."""
QUEUES_PAGE = 1_000
"""Queues read in one transaction."""


class LmdbStore:
    """A `Store` in the directory `path`, created if there is none.

    Args:
        path: a directory on a local file system; `data.mdb` and `lock.mdb` in it are the store's.
        map_bytes: the store never becomes larger; costs address space only.
        sync: wait for the disk in every commit. False survives a killed process but not a power cut.
        read_only: for other processes than the broker, who look on; every change raises `StoreError`.
        log_facts: False keeps no log, so that nothing can be proved: exists to measure what the log costs.

    Raises:
        StoreFormatError: another version of Legato wrote it.
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
    ) -> None:
        self.path = Path(path)
        self._log_facts = log_facts
        self._map_bytes = map_bytes
        self._env, self._databases = open_environment(self.path, map_bytes=map_bytes, sync=sync, read_only=read_only)
        self._epoch: int | None = None
        self._prune_after = 0

    def begin_epoch(self, broker: str, now_us: int) -> Meta:
        """See `Store.begin_epoch`."""
        with self._writing() as txn:
            meta = self._meta(txn)
            meta.epoch += 1
            self._append(txn, meta, now_us, [EpochBegan(broker)])
        self._epoch = meta.epoch
        return meta

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

    def outcome(self, txn: bytes) -> bool:
        """See `Store.outcome`."""
        with self._reading() as reading:
            return len(txn) > 0 and reading.get(txn, db=self._databases.outcomes) is not None

    def messages(self, queue: int, after: int, limit: int, limit_bytes: int) -> Sequence[StoredMessage]:
        """See `Store.messages`."""
        found: list[StoredMessage] = []
        with self._reading() as txn:
            with txn.cursor(db=self._databases.messages) as cursor:
                for seq, body in messages_after(cursor, queue, after):
                    if limit_bytes < 0 or len(found) >= limit:
                        break
                    found.append(StoredMessage(seq, bytes(body)))
                    limit_bytes -= len(body)
            if found:
                self._add_deliveries(txn, queue, found)
        return found

    def commit(self, batch: Batch) -> int:
        """See `Store.commit`."""
        changes = gather(batch)
        with self._writing() as txn:
            meta = self._meta(txn)
            if batch.epoch != meta.epoch:
                raise FencedError(f"epoch {batch.epoch} is over: the store is in epoch {meta.epoch}")
            apply_changes(txn, self._databases, meta, changes, batch.time_us)
            self._append(txn, meta, batch.time_us, batch.facts)
        return meta.log_position

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
        """See `Store.prune`. Looks at the `PRUNE_LIMIT` oldest outcomes, and in turn at as many producers a call.

        Raises:
            FencedError: this object began an epoch that is over.
        """
        with self._writing() as txn:
            meta = self._meta(txn)
            self._refuse_fenced(meta)
            outcomes = forget_outcomes(
                txn, self._databases, now_us - limits.OUTCOME_RETENTION_S * 1_000_000, PRUNE_LIMIT
            )
            forgotten, self._prune_after = forget_producers(
                txn,
                self._databases,
                now_us - limits.PRODUCER_RETENTION_S * 1_000_000,
                self._prune_after,
                PRUNE_LIMIT,
            )
            if forgotten:
                self._append(txn, meta, now_us, [ProducerForgotten(p.producer, p.name) for p in forgotten])
        return outcomes + len(forgotten)

    def usage(self) -> Usage:
        """See `Store.usage`; bytes in use are those of live pages, not the size of the file."""
        with self._reading() as txn:
            stats = [txn.stat(database) for database in msgspec.structs.astuple(self._databases)]
        disk = os.statvfs(self.path)
        return Usage(sum(map(_bytes_of, stats)), self._map_bytes, disk.f_bavail * disk.f_frsize)

    def close(self) -> None:
        """Close the files; a commit under way ends first."""
        self._env.close()

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        with lmdb_errors(f"reading the store in {self.path}"), self._env.begin(buffers=True) as txn:
            yield txn

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        with lmdb_errors(f"writing the store in {self.path}"):
            try:
                with self._env.begin(write=True, buffers=True) as txn:
                    yield txn
            except lmdb.Error as error:
                if getattr(error, "code", 0) == errno.EIO and disk_is_full(self.path):
                    raise StoreFullError(f"the store in {self.path} has no room on its disk") from error
                raise

    def _meta(self, txn: Any) -> Meta:
        return values.decode_meta(txn.get(STATE_KEY, db=self._databases.meta))

    def _refuse_fenced(self, meta: Meta) -> None:
        if self._epoch not in (None, meta.epoch):
            raise FencedError(f"epoch {self._epoch} is over: the store is in epoch {meta.epoch}")

    def _append(self, txn: Any, meta: Meta, time_us: int, facts: list[AnyFact]) -> None:
        """Add a record to the log, and write the state that it leads to."""
        if self._log_facts:
            meta.log_position += 1
            record = encode_record(LogRecord(meta.epoch, time_us, facts))
            txn.put(position_key(meta.log_position), record, db=self._databases.log, append=True)
        txn.put(STATE_KEY, values.encode(meta), db=self._databases.meta)

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

    def _add_deliveries(self, txn: Any, queue: int, found: list[StoredMessage]) -> None:
        """Both are ascending, and most messages have none: jump from each delivery on record to its message."""
        by_seq = {message.seq: message for message in found}
        last = (queue, found[-1].seq)
        with txn.cursor(db=self._databases.deliveries) as cursor:
            there = cursor.set_range(place_key(queue, found[0].seq))
            while there and (place := read_place(cursor.key())) <= last:
                if (message := by_seq.get(place[1])) is not None:
                    message.count, message.flagged = values.decode_delivery(cursor.value())
                there = cursor.next()


def _bytes_of(stat: dict[str, int]) -> int:
    return (stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]) * stat["psize"]
