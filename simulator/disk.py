"""A disk that several brokers share: commits are atomic, and a power cut loses all that was not synced."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from legato.core.records import Batch, CommitRecord, Meta
from legato.errors import StoreError, StoreFullError
from legato.store.commit_records import decode, encode_commit
from legato.store.memory import MemoryStore
from simulator.history import History
from simulator.kernel import Kernel, Process

WRITE_US = (20, 2_000)
SYNC_US = (50, 10_000)


class Disk(MemoryStore):
    """The store; the lock that decides who may use it is `owner`."""

    def __init__(self, kernel: Kernel, history: History) -> None:
        super().__init__()
        self.owner: Process | None = None
        self.calm = False
        self.full_until_us = 0
        """It has no room for messages before that time."""
        self._kernel = kernel
        self._history = history

    def begin_epoch(self, broker: str, now_us: int) -> Meta:
        """See `Store.begin_epoch`."""
        meta = super().begin_epoch(broker, now_us)
        self._history.epoch_began(meta.epoch)
        return meta

    @property
    def committed_upto(self) -> int:
        """The position of the last commit."""
        return self._state.meta.log_position

    def commit(self, batch: Batch) -> int:
        """See `Store.commit`."""
        if batch.bodies and not self.calm and self._has_no_room():
            self._history.counts["commits without room"] += 1
            raise StoreFullError("no room, for once")
        # What is stored is what a journal's record of it says: the next primary has nothing else after a power cut.
        record = decode(encode_commit(batch, self.committed_upto + 1)[1])
        assert isinstance(record, CommitRecord)
        position = super().commit(record.batch)
        self._history.committed(batch)
        return position

    @property
    def is_full(self) -> bool:
        """Whether there is no room for anything."""
        return not self.calm and self._kernel.now_us < self.full_until_us

    def _has_no_room(self) -> bool:
        return self._kernel.now_us < self.full_until_us or self._kernel.chance(0.0005)


class Writer:
    """Takes the place of `GroupWriter`: a batch is written, then synced, then `on_done` is told.

    A process that dies before its batch is written never wrote it. One that dies before it is synced has written it if
    only the process died, and lost it if the power went.
    """

    kernel: ClassVar[Kernel]
    writers: ClassVar[dict[Process, Writer]]

    def __init__(self, store: Disk, on_done: Callable[[Batch, int | None, StoreError | None], None]) -> None:
        assert self.kernel.process is not None
        self._store = store
        self._on_done = on_done
        self._process = self.kernel.process
        self._submitted: Batch | None = None
        self._written = False
        self._closed = False
        self.writers[self._process] = self

    @property
    def idle(self) -> bool:
        """See `GroupWriter.idle`."""
        return self._submitted is None and not self._closed

    def submit(self, batch: Batch) -> None:
        """See `GroupWriter.submit`."""
        if not self.idle:
            raise StoreError("the writer is closed or a batch is in flight already")
        self._submitted = batch
        self._written = False
        self.kernel.after_for(self._process, self.kernel.between_us(*WRITE_US), self._write, batch)

    def close(self) -> None:
        """See `GroupWriter.close`: it waits for the batch in flight."""
        self._closed = True
        if self._submitted is not None:
            self._sync(self._submitted)

    def died(self, *, power: bool) -> None:
        """The process is dead."""
        batch, self._submitted = self._submitted, None
        if batch is not None and self._written and not power:
            self._commit(batch)

    def _write(self, batch: Batch) -> None:
        self._written = True
        self.kernel.after_for(self._process, self.kernel.between_us(*SYNC_US), self._sync, batch)

    def _sync(self, batch: Batch) -> None:
        if self._submitted is not batch:
            return
        position, error = self._commit(batch)
        self._submitted = None
        self._on_done(batch, position, error)

    def _commit(self, batch: Batch) -> tuple[int | None, StoreError | None]:
        try:
            return self._store.commit(batch), None
        except StoreError as error:
            return None, error
