"""Transactions of a store: where readers read, and when what was changed becomes durable.

Without a journal each change is one LMDB transaction. With one (`Keeping`) the transaction of a change stays open: the
change is durable by a record in the journal, and LMDB's commit, which writes many pages and flushes twice, comes after
many changes, or after some time (a checkpoint). All readers of this process read through the open transaction; other
processes see the last checkpoint. LMDB's lock of writers is held meanwhile, so nobody appends to the journal but who
may change the store.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import lmdb
import msgspec

from legato import limits
from legato.errors import StoreError, StoreFullError
from legato.store.base import Batch
from legato.store.environment import disk_is_full, lmdb_errors, used_bytes
from legato.store.journal import Journal
from legato.store.journal_state import (
    close_journal,
    journal_layout,
    open_journal,
    read_journal_state,
    settle,
    write_journal_state,
)

log = logging.getLogger("legato.store")

PAGES_FOR_EACH_BYTE = 8
"""So many bytes of pages, at most, a byte of a record leads to; small messages of many queues come near that."""
RETRY_S = 1.0
"""After so long a checkpoint that failed is tried again."""


class Keeping(msgspec.Struct, frozen=True):
    """When a store with a journal has its checkpoints."""

    checkpoint_s: float
    """A change is in the store's file after so long."""
    journal_bytes: int
    """... or when the journal holds so much that is not."""
    stored_bytes: int = limits.JOURNALED_BYTES
    """A commit that stores so many bytes of messages is in the store's file at once."""

    @property
    def segment_bytes(self) -> int:
        """Bytes of each of the journal's files."""
        return self.journal_bytes // 2

    @property
    def record_bytes_max(self) -> int:
        """What is larger is written once, to the store's file."""
        return min(self.journal_bytes // 4, self.stored_bytes)


class Unit:
    """A change under way.

    Attributes:
        txn: LMDB's transaction.
        epoch: in which it is made.
        record: bytes from which it can be done again; None if there are none, and it is durable by a checkpoint.
        changed: whether something was written to the transaction.
    """

    __slots__ = ("changed", "epoch", "record", "txn")

    def __init__(self, txn: Any) -> None:
        self.txn = txn
        self.epoch = 0
        self.record: bytes | None = None
        self.changed = False


class Transactions:
    """Transactions of one LMDB environment in this process.

    Args:
        environment: LMDB's.
        meta: its database of that name.
        path: the store's directory.
        map_bytes: the store never becomes larger.
        apply: does again, in a transaction, what a record says.
        sync: whether changes survive a power cut.

    Attributes:
        changing: held by whoever changes the store, and by who reads what is not in its file.
    """

    def __init__(
        self,
        environment: Any,
        meta: Any,
        path: Path,
        map_bytes: int,
        apply: Callable[[Any, bytes], object],
        *,
        sync: bool,
    ) -> None:
        self.changing = threading.RLock()
        self._env = environment
        self._meta = meta
        self._path = path
        self._map_bytes = map_bytes
        self._apply = apply
        self._sync = sync
        self._keeping: Keeping | None = None
        self._journal: Journal | None = None
        self._open: Any = None
        """The transaction of changes that are in the journal, and not yet in the store's file."""
        self._open_bytes = 0
        self._due_s = 0.0
        self._lost: StoreError | None = None

    def has_open_journal(self) -> bool:
        """Whether there may be changes that are not in the store's file, of this process or of one that was killed."""
        with self.reading() as txn:
            return read_journal_state(txn, self._meta).is_open

    def settle(self) -> None:
        """Apply what the journal of a process that was killed has more than the file."""
        if self.has_open_journal():
            with self.writing() as unit:
                unit.changed = True
                settle(unit.txn, self._meta, self._path, self._apply)

    @contextmanager
    def journaling(self, keeping: Keeping | None) -> Iterator[Any]:
        """The transaction that begins an epoch: behind it nobody appends to the journal in an earlier one.

        What the journal holds is applied before the block. When the transaction is in the store's file, changes are
        durable by the journal, if there is to be one, and room for it.
        """
        self._give_up_journal()
        if keeping is not None and self._has_journal_of_another_size(keeping):
            with self.writing() as unit:
                unit.changed = True
                settle(unit.txn, self._meta, self._path, self._apply)
                close_journal(unit.txn, self._meta)
        journal: Journal | None = None
        try:
            with self.writing() as unit:
                unit.changed = True
                settle(unit.txn, self._meta, self._path, self._apply)
                yield unit.txn
                journal = self._open_journal(unit.txn, keeping)
        except BaseException:
            if journal is not None:
                journal.close()
            raise
        with self.changing:
            self._journal, self._keeping = journal, keeping

    def _give_up_journal(self) -> None:
        """Have everything in the store's file; from now on each change is."""
        with self.changing:
            self.checkpoint()
            journal, self._journal = self._journal, None
            if journal is not None:
                journal.close()

    def _has_journal_of_another_size(self, keeping: Keeping) -> bool:
        """Whether there is one that may be needed, and that is not as large as it should be."""
        with self.reading() as txn:
            state = read_journal_state(txn, self._meta)
        return state.is_open and journal_layout(self._path, state).segment_bytes != keeping.segment_bytes

    def _open_journal(self, txn: Any, keeping: Keeping | None) -> Journal | None:
        """The journal, to be used when the transaction is committed; None if there is to be none, or no room."""
        if keeping is not None:
            try:
                return open_journal(txn, self._meta, self._path, keeping.segment_bytes, sync=self._sync)
            except OSError as error:
                log.warning("! the store in %s goes without its journal, and is slower: %s", self._path, error)
        close_journal(txn, self._meta)
        return None

    def journals(self, batch: Batch, stored_bytes: int) -> bool:
        """Whether the commit of a batch may be durable by a record, so that it has to be encoded.

        Args:
            stored_bytes: of the messages in it.
        """
        keeping = self._keeping
        return (
            self._journal is not None
            and keeping is not None
            and not batch.runs
            and stored_bytes < keeping.record_bytes_max
        )

    @property
    def due_in_s(self) -> float | None:
        """Seconds until there should be a checkpoint, 0 if it is due; None if there is nothing for it."""
        return None if self._open is None else max(self._due_s - time.monotonic(), 0.0)

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """A transaction that sees all changes of this process, and the last checkpoint of others."""
        with lmdb_errors(f"reading the store in {self._path}"):
            if self._journal is None:
                with self._env.begin(buffers=True) as txn:
                    yield txn
                return
            with self.changing:
                self._refuse_lost()
                if self._open is not None:
                    yield self._open
                    return
                snapshot = self._env.begin(buffers=True)
            with snapshot as txn:
                yield txn

    @contextmanager
    def writing(self) -> Iterator[Unit]:
        """A change: durable at the end of the block, and undone if that raises; what was durable before stays."""
        with lmdb_errors(f"writing the store in {self._path}"), self.changing:
            try:
                self._refuse_lost()
                unit = Unit(self._env.begin(write=True, buffers=True) if self._open is None else self._open)
                try:
                    yield unit
                except BaseException:
                    self._undo(unit)
                    raise
                self._end(unit)
            except lmdb.Error as error:
                if getattr(error, "code", 0) == errno.EIO and disk_is_full(self._path):
                    raise StoreFullError(f"the store in {self._path} has no room on its disk") from error
                raise

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody, of any process, changes the store or makes its file longer meanwhile."""
        with lmdb_errors(f"making room in {self._path}"), self.changing:
            if self._open is not None:
                yield
                return
            txn = self._env.begin(write=True)
            try:
                yield
            finally:
                txn.abort()

    def checkpoint(self) -> None:
        """Have everything in the store's file.

        Raises:
            StoreFullError: there is no room; what is in the journal stays there.
        """
        if self._open is not None:
            with self.writing():
                pass

    def close(self, is_ours: Callable[[Any], bool]) -> None:
        """Have everything in the store's file, if that can be, and give up the journal.

        Args:
            is_ours: whether no other process has begun an epoch since, as a transaction sees it.
        """
        with self.changing:
            journal, self._journal = self._journal, None
            if journal is None:
                return
            try:
                with lmdb_errors(f"closing the store in {self._path}"):
                    self._close(journal, is_ours)
            except StoreError as error:
                log.warning("! the journal of the store in %s keeps what its file does not hold: %s", self._path, error)
            finally:
                self._open = None
                journal.close()

    def _close(self, journal: Journal, is_ours: Callable[[Any], bool]) -> None:
        if self._lost is not None:
            return
        txn = self._env.begin(write=True, buffers=True) if self._open is None else self._open
        try:
            if not is_ours(txn):
                txn.abort()
                return
            self._move(txn, journal)
            close_journal(txn, self._meta)
            txn.commit()
        except BaseException:
            _abort(txn)
            raise

    def _undo(self, unit: Unit) -> None:
        if unit.txn is not self._open:
            unit.txn.abort()
        elif unit.changed:
            self._restore()

    def _end(self, unit: Unit) -> None:
        journal = self._journal
        if unit.record is not None and journal is not None and self._keeps(journal, len(unit.record)):
            try:
                journal.append(unit.epoch, unit.record)
            except OSError as error:
                log.warning("! the journal in %s cannot be written, so the store's file is: %s", self._path, error)
            else:
                if self._open is None and self._keeping is not None:
                    self._due_s = time.monotonic() + self._keeping.checkpoint_s
                self._open = unit.txn
                self._open_bytes += len(unit.record)
                return
        self._commit(unit.txn, journal)

    def _commit(self, txn: Any, journal: Journal | None) -> None:
        try:
            if journal is not None:
                self._move(txn, journal)
            txn.commit()
        except BaseException:
            if txn is self._open:
                self._restore()
                self._due_s = time.monotonic() + RETRY_S
            else:
                _abort(txn)
            raise
        if journal is not None:
            journal.release(journal.last.number)
        self._open, self._open_bytes = None, 0

    def _move(self, txn: Any, journal: Journal) -> None:
        state = read_journal_state(txn, self._meta)
        # Never back, should the journal be another process's by now.
        if state.identity == journal.identity and state.number < journal.last.number:
            state.move(journal.last)
            write_journal_state(txn, self._meta, state)

    def _restore(self) -> None:
        """Undo what is not in the journal: give up the open transaction, and do again what is."""
        _abort(self._open)
        self._open = None
        txn: Any = None
        try:
            assert self._journal is not None
            txn = self._env.begin(write=True, buffers=True)
            place = read_journal_state(txn, self._meta).place
            for _, payload in self._journal.replay(place):
                self._apply(txn, payload)
        except BaseException as error:
            _abort(txn)
            self._lost = StoreError(
                f"what the journal of the store in {self._path} holds cannot be applied again: {error}; it is kept"
            )
            raise self._lost from error
        self._open = txn
        # A checkpoint with the next change: that one's refusal will not cost as much.
        self._due_s = 0.0

    def _keeps(self, journal: Journal, size: int) -> bool:
        """Whether a change may be durable by the journal alone: when it is certain that the file can take it later."""
        keeping, open_bytes = self._keeping, self._open_bytes + size
        if keeping is None or size > keeping.record_bytes_max or open_bytes > keeping.journal_bytes:
            return False
        if self._open is not None and time.monotonic() >= self._due_s:
            return False
        wanted_bytes = PAGES_FOR_EACH_BYTE * open_bytes + keeping.journal_bytes
        if used_bytes(self._env) + wanted_bytes > self._map_bytes * limits.STORE_FULL_SHARE:
            return False
        try:
            disk = os.statvfs(self._path)
        except OSError:
            return False  # The directory was removed: who holds the lock finds that.
        return disk.f_bavail * disk.f_frsize >= wanted_bytes and journal.fits(size)

    def _refuse_lost(self) -> None:
        if self._lost is not None:
            raise StoreError(str(self._lost)) from self._lost


def _abort(txn: Any) -> None:
    """End a transaction, if LMDB has not done so."""
    if txn is not None:
        with suppress(lmdb.Error):
            txn.abort()
