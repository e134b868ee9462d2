"""Disks of simulated replicas: each broker has one, and `Truth` is what a replica has that never lacks anything."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from greenlet import GreenletExit

from legato.core.records import Applied, Batch, CommitRecord, EpochRecord
from legato.errors import FencedError, StoreError, StoreFullError
from legato.replication.chain import Chain
from legato.replication.engine import Message
from legato.replication.envelopes import group_key
from legato.replication.log import BEGINNING, Record
from legato.store.commit_records import decode, encode_commit
from legato.store.memory import MemoryStore
from simulator.history import History
from simulator.kernel import Kernel
from simulator.replicas.threads import wait_here

WRITE_US = (20, 10_000)
SLOW_US = (50_000, 600_000)
PARTS_AT_ONCE = 4
"""A record of more parts, which are appended one after the other, takes as long as many commits."""


class Kept(msgspec.Struct, frozen=True):
    """A transaction on a disk; without records it only says where the replica is in the log."""

    records: list[bytes | EpochRecord]
    applied: Applied


class ReplicaDisk(MemoryStore):
    """The store of one broker, of which a power cut may undo the last commit, and nothing else (R10).

    Args:
        kernel: of the run.
        kept: what is on the disk.

    Attributes:
        kept: the same, as it grows.
        full_until_us: it has no room for messages before that time.
        stuck_until_us: nor for anything.
        slow_until_us: it takes long before that time.
    """

    def __init__(self, kernel: Kernel, kept: list[Kept]) -> None:
        super().__init__()
        self.kept = kept
        self.full_until_us = self.stuck_until_us = self.slow_until_us = 0
        self.power_fails = False
        self._kernel = kernel
        self._several: list[CommitRecord | EpochRecord] = []
        """What is prepared; all but the last are applied."""
        self._restore()

    def _restore(self) -> None:
        """The state that the disk holds."""
        empty = MemoryStore()
        self._state, self._log, self._log_bytes = empty._state, empty._log, empty._log_bytes
        self._prepared = None
        self._several = []
        for kept in self.kept:
            for data in kept.records:
                record = decode(data) if isinstance(data, bytes) else data
                assert isinstance(record, CommitRecord | EpochRecord)
                super().prepare(record)
                super().finish(kept.applied)
            super().place(kept.applied)

    def prepare(self, record: CommitRecord | EpochRecord, *, forced: bool = False) -> int:
        """See `Store.prepare`."""
        now_us = self._kernel.now_us
        stores_messages = isinstance(record, CommitRecord) and record.batch.bodies
        if now_us < self.stuck_until_us or (stores_messages and not forced and now_us < self.full_until_us):
            self.abandon()
            raise StoreFullError("no room, for once")
        if self._several and not forced:
            raise StoreError("a commit is prepared already")
        if self._prepared is not None:
            super().finish(Applied(0, b""))
        position = super().prepare(_as_read(record))
        self._several.append(record)
        return position

    def finish(self, applied: Applied) -> None:
        """See `Store.finish`; it takes time, in which the machine may die."""
        if not self._several:
            raise StoreError("no commit is prepared")
        kept = Kept([_bytes_of(record) for record in self._several], applied)
        try:
            self._write()
        except GreenletExit:
            if not self.power_fails and self._kernel.chance(0.5):
                self.kept.append(kept)
            raise
        super().finish(applied)
        self.kept.append(kept)
        self._several = []

    def abandon(self) -> None:
        """See `Store.abandon`."""
        if len(self._several) > 1:
            self._restore()
        super().abandon()
        self._several = []

    def place(self, applied: Applied) -> None:
        """See `Store.place`."""
        self._write()
        super().place(applied)
        self.kept.append(Kept([], applied))

    def commit(self, batch: Batch) -> int:
        """See `Store.commit`: a replica commits what is in the log."""
        raise StoreError("a replica's store commits nothing by itself")

    def died(self) -> None:
        """The power went: the last commit may be undone, the log has it."""
        if self.power_fails and self.kept and self._kernel.chance(0.5):
            self.kept.pop()

    def _write(self) -> None:
        bounds = SLOW_US if self._kernel.now_us < self.slow_until_us else WRITE_US
        wait_here(self._kernel.between_us(*bounds) / 1_000_000)


class Truth(MemoryStore):
    """What the log holds, applied when a majority has it: the durable history.

    Args:
        history: is told of each commit and each epoch.
        group: whose log it is.
    """

    def __init__(self, history: History, group: str) -> None:
        super().__init__()
        self.calm = False
        self.sequence = 0
        """Of the last message."""
        self.voided = 0
        self.records: list[bytes] = []
        """Those that changed something."""
        self.is_full = False
        self._parts = 0
        """Of a record that is not there whole yet."""
        self._history = history
        self._chain = Chain(None, group_key(group), BEGINNING, anchored=True)  # type: ignore[arg-type]

    @property
    def voided_messages(self) -> int:
        """Messages and records that count for nothing: their writer had been fenced."""
        return self.voided + self._chain.voided

    @property
    def committed_upto(self) -> int:
        """The position of the last commit."""
        return self._state.meta.log_position

    def on_message(self, sequence: int, data: bytes) -> None:
        """The log's servers acknowledge a message."""
        self.sequence = sequence
        records = self._chain.feed([Message(sequence, data)])
        for record in records:
            self._apply_record(record)
        self._parts = 0 if records else self._parts + 1
        if self._parts > PARTS_AT_ONCE:
            self._history.slow_us = self._history.now_us()

    def _apply_record(self, record: Record) -> None:
        decoded = decode(record.data)
        if not isinstance(decoded, CommitRecord | EpochRecord):
            return
        try:
            self.prepare(decoded)
        except FencedError:
            self.voided += 1
            return
        self.finish(Applied(record.position.sequence, record.position.digest))
        self.records.append(record.data)
        if isinstance(decoded, EpochRecord):
            self._history.epoch_began(decoded.epoch)
        else:
            self._history.committed(decoded.batch)


def content(store: MemoryStore) -> str:
    """A digest of all that a store holds, but where it is in the log and what it may forget by itself."""
    while store.prune(0):
        pass
    state = store._state
    meta = msgspec.structs.replace(state.meta, applied=None, outcomes_forgotten_us=0)
    held: list[Any] = [
        meta,
        sorted(state.queues.items()),
        [(queue, sorted(waiting.items())) for queue, waiting in sorted(state.messages.items())],
        [(place, shared.body, sorted(shared.holders)) for place, shared in sorted(state.shared.items())],
        sorted(state.taken.items()),
        sorted(state.producers.items()),
        [(queue, ids.first, ids.last, sorted(ids.kept.items())) for queue, ids in sorted(state.ids.items())],
        sorted(state.outcomes.items()),
        sorted(state.chunks.items()),
        sorted(state.uploading),
        list(store.log(max(meta.log_position - 1000, 0), 1000)),
    ]
    return hashlib.blake2b(repr(held).encode(), digest_size=16).hexdigest()


def _as_read(record: CommitRecord | EpochRecord) -> CommitRecord | EpochRecord:
    """The record as whoever reads its bytes has it: nothing of it is the broker's."""
    data = _bytes_of(record)
    if isinstance(data, EpochRecord):
        return data
    read = decode(data)
    assert isinstance(read, CommitRecord)
    return read


def _bytes_of(record: CommitRecord | EpochRecord) -> bytes | EpochRecord:
    return encode_commit(record.batch, record.position)[1] if isinstance(record, CommitRecord) else record
