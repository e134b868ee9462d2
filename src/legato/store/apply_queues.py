"""Write a batch's changes of queues, topics and subscriptions to LMDB."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from legato.core.facts import AssignmentAcknowledged, AssignmentFenced, Kind, MessagesAssigned, QueueCreated, RunStored
from legato.core.records import Meta, QueueRecord, Run
from legato.errors import StoreError
from legato.store import values
from legato.store.base import NONE_KEPT, new_queue
from legato.store.block_reader import waiting_among
from legato.store.block_writer import BlockWriter, Packed, new_blocks, run_blocks
from legato.store.blocks import Block, Bytes, Entry, outline
from legato.store.changes import Changes, QueueChanges, StoredRun
from legato.store.deliveries import (
    forget_deliveries,
    forget_deliveries_through,
    move_deliveries,
    note_deliveries,
)
from legato.store.duplicates import forget_ids, keep_ids, kept_range
from legato.store.environment import Databases
from legato.store.expiries import ExpiryChanges
from legato.store.keys import name_key, number_key, pair_key, read_number
from legato.store.lanes import last_of, note_last, note_mark, split_by_last
from legato.store.larges import LargeCounts
from legato.store.publications import Publication, References
from legato.store.reassigned import forget_taken, note_taken
from legato.store.refcounts import Copies
from legato.store.runs import RunMover


def apply_queues(txn: Any, databases: Databases, meta: Meta, changes: Changes) -> None:
    """Write what `changes` says of queues; `meta` is brought up to date but not written.

    Raises:
        StoreError: a fact contradicts the state: a queue it names is not there, or is created again.
    """
    with QueueWriter(txn, databases, changes.time_us) as writer:
        for queue in changes.deleted:
            if queue in changes.created:
                meta.next_queue = max(meta.next_queue, queue + 1)
            else:
                writer.delete(queue)
        for fact in changes.created.values():
            if fact.queue not in changes.deleted:
                writer.create(fact)
                meta.next_queue = max(meta.next_queue, fact.queue + 1)
        copies: dict[int, list[References]] = {}
        for topic in [number for number, change in changes.queues.items() if change.published]:
            writer.publish(topic, changes, copies)
        for run, blocks in changes.runs:
            writer.store_run(run, blocks)
        for queue, change in changes.queues.items():
            writer.change(queue, change, copies.get(queue, []))
        if changes.assignments:
            writer.assign(changes.assignments)


def remove_deleted(txn: Any, databases: Databases, time_us: int, limit: int) -> int:
    """Remove what deleted queues held until `limit` messages are gone; returns how many, and queues that are done."""
    if txn.stat(databases.deleted)["entries"] == 0:
        return 0
    removed = 0
    with QueueWriter(txn, databases, time_us) as writer, txn.cursor(db=databases.deleted) as cursor:
        while removed < limit and cursor.first():
            queue = read_number(cursor.key())
            removed += writer.remove_blocks(queue, limit - removed)
            if removed < limit:
                removed += forget_ids(txn, databases, queue, limit - removed)
            if removed < limit:
                removed += writer.forget_taken(queue, limit - removed)
            if removed < limit:
                cursor.delete()
                removed += 1
    return removed


class QueueWriter:
    """Writes queues inside a write transaction; flushes its buffered writes on exit."""

    def __init__(self, txn: Any, databases: Databases, time_us: int) -> None:
        self._txn = txn
        self._databases = databases
        self._time_us = time_us
        self._records: dict[int, QueueRecord] = {}
        self._expiries = ExpiryChanges()
        self._larges = LargeCounts(txn, databases)
        self._cursor = txn.cursor(db=databases.messages)
        self._blocks = BlockWriter(self._cursor, self._expiries, self._larges)

    def __enter__(self) -> "QueueWriter":
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        try:
            if failed is None:
                self._release()
                self._expiries.write(self._txn, self._databases.expiries)
                self._larges.write()
                # That no more is consumed than was stored, the core asserts: what is not there is not taken twice here.
                for record in self._records.values():
                    assert record.bytes >= 0, f"{record.name} holds {record.bytes} bytes"
                with self._txn.cursor(db=self._databases.queues) as cursor:
                    items = [(number_key(queue), values.encode(r)) for queue, r in sorted(self._records.items())]
                    cursor.putmulti(items)
        finally:
            self._cursor.close()

    def create(self, fact: QueueCreated) -> None:
        """A queue comes to be."""
        databases, txn, key = self._databases, self._txn, number_key(fact.queue)
        record = values.encode(new_queue(fact))
        new_number = txn.put(key, record, db=databases.queues, overwrite=False)
        new_name = txn.put(name_key(fact.name), key, db=databases.queue_names, overwrite=False)
        if not (new_number and new_name):
            raise StoreError(f"the batch creates queue {fact.queue} ({fact.name}), which there is already")
        if fact.temporary:
            txn.put(key, b"", db=databases.temporaries)
        if fact.kind == Kind.SUBSCRIPTION:
            txn.put(pair_key(fact.topic, fact.queue), b"", db=databases.subscriptions)

    def delete(self, queue: int) -> None:
        """A queue goes; what it holds stays for `remove_blocks`."""
        databases, txn, key = self._databases, self._txn, number_key(queue)
        record = self._read(queue)
        txn.delete(key, db=databases.queues)
        txn.delete(name_key(record.name), db=databases.queue_names)
        txn.delete(key, db=databases.temporaries)
        txn.delete(pair_key(record.topic, queue), db=databases.subscriptions)
        if record.kind != Kind.TOPIC or self._has_ids(queue):
            txn.put(key, b"", db=databases.deleted)

    def remove_blocks(self, queue: int, limit: int) -> int:
        """Remove `limit` messages of a deleted queue, or a block more, and their deliveries; returns how many."""
        removed = self._blocks.remove_first_blocks(queue, limit)
        with self._txn.cursor(db=self._databases.deliveries) as deliveries:
            for seqs in removed:
                forget_deliveries(deliveries, queue, seqs)
        return sum(map(len, removed))

    def forget_taken(self, queue: int, limit: int) -> int:
        """Forget who took messages of a deleted queue, `limit` of them at most; returns how many."""
        with self._txn.cursor(db=self._databases.taken) as cursor:
            return forget_taken(cursor, queue, limit)

    def publish(self, topic: int, changes: Changes, copies: dict[int, list[References]]) -> None:
        """Count what was published to a topic, leave its bodies in its changes, and add to `copies` who has a copy."""
        record, change = self._record(topic), changes.queues[topic]
        publication = Publication(topic, change.published)
        with self._copies() as counts:
            there = {}
            if below := split_by_last(record, publication.seqs)[0]:
                there = counts.among(topic, below)
            publication.distribute(changes, copies)
            counts.add(record, {seq: n for seq, n in publication.counts.items() if n}, there)
        for seq in publication.seqs:
            if seq in there:
                change.stored -= 1
                del change.added[seq]
            elif not publication.counts[seq]:
                change.consumed += 1
                del change.added[seq]

    def change(self, queue: int, change: QueueChanges, copies: list[References]) -> None:
        """All but creation, deletion and publishing."""
        record = self._record(queue)
        if change.removed:
            self._remove(record, sorted(change.removed))
        for references in copies:
            self._add_references(record, references)
        if change.added:
            self._add_messages(record, change)
        for run in change.runs:
            self._add_run(record, run)
        if change.deliveries:
            self._note_deliveries(queue, change)
        if change.taken:
            with self._txn.cursor(db=self._databases.taken) as cursor:
                note_taken(cursor, record, change.taken)
        record.stored += change.stored
        record.consumed += change.consumed
        record.last_seq = max(record.last_seq, change.last_seq)
        for seq in change.last_seqs.values():
            note_last(record, seq)
        for seq in change.marks:
            note_mark(record, seq)
        if change.paused is not None:
            record.paused = change.paused
        record.grouped = record.grouped or change.grouped
        if change.ids:
            keep_ids(self._txn, self._databases, queue, change.ids)

    def assign(self, facts: Sequence[MessagesAssigned | AssignmentAcknowledged | AssignmentFenced]) -> None:
        """Write the assignments of pipelines: taken, acknowledged and held ranges of existing queues."""
        with (
            self._txn.cursor(db=self._databases.messages) as shared,
            self._txn.cursor(db=self._databases.deliveries) as deliveries,
        ):
            mover = RunMover(self._cursor, shared, self._blocks, self._larges)
            for fact in facts:
                match fact:
                    case MessagesAssigned(queue, seq, count, size, to, number):
                        self._move_run(mover, queue, Run(seq, count, size), to, number)
                        move_deliveries(deliveries, queue, seq, count, to, number)
                    case AssignmentAcknowledged(queue, through):
                        record = self._record(queue)
                        removed, size = mover.remove_through(queue, through)
                        record.acknowledged = through
                        record.consumed += removed
                        record.bytes -= size
                        forget_deliveries_through(deliveries, queue, through)
                    case AssignmentFenced(queue, fence, floors, source):
                        record = self._record(queue)
                        record.fence, record.floors = fence, floors
                        record.topic = source or record.topic

    def store_run(self, run: RunStored, blocks: Sequence[Bytes]) -> None:
        """Put a run behind all that its lane has had; what else it changes is among its queue's changes."""
        record = self._record(run.queue)
        seq = run.seq
        packed: Packed = []
        for value in blocks:
            view = memoryview(value)
            whole = outline(seq, view)
            if whole is None:
                block = Block(run.queue, seq, view)
                packed.append((seq, value, block.first_expiry_us()))
                seq += block.count
            else:
                packed.append((seq, value, 0))
                seq += whole.rows
        self._blocks.append(run.queue, packed)
        record.bytes += run.size

    def _move_run(self, mover: RunMover, queue: int, run: Run, to: int, number: int) -> None:
        source, target = self._record(queue), self._record(to)
        size = mover.move(queue, run, to, number)
        source.consumed += run.count
        source.bytes -= size
        target.stored += run.count
        target.bytes += size
        note_last(target, number + run.count - 1)

    def _remove(self, record: QueueRecord, removed: list[int]) -> None:
        record.bytes -= self._blocks.remove(record.queue, removed)
        if self._txn.stat(self._databases.deliveries)["entries"]:
            with self._txn.cursor(db=self._databases.deliveries) as cursor:
                forget_deliveries(cursor, record.queue, removed)

    def _add_messages(self, record: QueueRecord, change: QueueChanges) -> None:
        added, expiries = change.added, change.expiries
        if self._larges.active:
            self._larges.added(added.values())
        below, above = split_by_last(record, sorted(added))
        # Blocks never overlap: none of single messages reaches over a run.
        for seqs in _between(above, change.runs):
            self._blocks.append(record.queue, new_blocks(added, seqs, self._time_us, expiries))
        if below:
            entries = [Entry(seq, len(added[seq]), added[seq], expiries.get(seq, 0)) for seq in below]
            self._blocks.insert(record.queue, entries, self._time_us)
        record.bytes += sum(map(len, added.values()))

    def _add_run(self, record: QueueRecord, run: StoredRun) -> None:
        if self._larges.active:
            self._larges.added(run.content[b:e] for b, e in pairwise((0, *run.ends)))
        if run.seq > last_of(record, run.seq):
            self._blocks.append(record.queue, run_blocks(run.seq, run.ends, run.content, self._time_us))
        else:
            bounds = pairwise((0, *run.ends))
            entries = [Entry(seq, e - b, run.content[b:e]) for seq, (b, e) in enumerate(bounds, run.seq)]
            self._blocks.insert(record.queue, entries, self._time_us)
        record.bytes += len(run.content)

    def _add_references(self, record: QueueRecord, references: References) -> None:
        below, _ = split_by_last(record, references.seqs)
        if below:
            self._blocks.insert(record.queue, references.entries(), self._time_us)
        else:
            self._blocks.append(record.queue, references.blocks(self._time_us))
        record.stored += references.stored
        record.bytes += references.size
        for seq in references.last_seqs:
            note_last(record, seq)

    def _note_deliveries(self, queue: int, change: QueueChanges) -> None:
        waiting = waiting_among(self._cursor, queue, sorted(change.deliveries))
        deliveries = {seq: change.deliveries[seq] for seq in waiting}
        with self._txn.cursor(db=self._databases.deliveries) as cursor:
            note_deliveries(cursor, queue, deliveries, change.attempts)

    def _has_ids(self, topic: int) -> bool:
        with self._txn.cursor(db=self._databases.duplicate_places) as cursor:
            return kept_range(cursor, topic) != NONE_KEPT

    def _release(self) -> None:
        """Bodies whose last copies went go too; their topic may be gone already."""
        for topic, released in self._blocks.released.items():
            with self._copies() as copies:
                gone = copies.release(topic, Counter(released))
            size = self._blocks.remove(topic, gone)
            if topic in self._records or self._txn.get(number_key(topic), db=self._databases.queues) is not None:
                record = self._record(topic)
                record.consumed += len(gone)
                record.bytes -= size

    @contextmanager
    def _copies(self) -> Iterator[Copies]:
        with self._txn.cursor(db=self._databases.copies) as cursor:
            yield Copies(cursor, BlockWriter(cursor, self._expiries, self._larges), self._time_us)

    def _record(self, queue: int) -> QueueRecord:
        """The record of a queue, to be changed; it is written at the end."""
        found = self._records.get(queue)
        if found is None:
            found = self._records[queue] = self._read(queue)
        return found

    def _read(self, queue: int) -> QueueRecord:
        value = self._txn.get(number_key(queue), db=self._databases.queues)
        if value is None:
            raise StoreError(f"a fact names queue {queue}, which is not there")
        return values.decode_queue(value)


def _between(seqs: list[int], runs: Sequence[StoredRun]) -> Iterator[list[int]]:
    """`seqs` (ascending) in groups, between which the runs are."""
    begin = 0
    for first in sorted(run.seq for run in runs):
        end = bisect_left(seqs, first, begin)
        if end > begin:
            yield seqs[begin:end]
        begin = end
    if begin < len(seqs):
        yield seqs[begin:]
