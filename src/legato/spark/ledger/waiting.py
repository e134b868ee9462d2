"""The messages that wait in a store, read so that an audit can tell them from lost ones."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from legato.core.facts import Kind
from legato.core.lanes import LANE_SHIFT
from legato.core.records import Archive, QueueRecord
from legato.store.lmdb import LmdbStore
from legato.store.segment_names import exported_through
from legato.store.settling import settle_store

_BATCH_MESSAGES = 1_000
_BATCH_BYTES = 8 << 20


class _Queues(Archive, Protocol):
    """The part of a `Store` that is read here."""

    def queues(self) -> Iterator[QueueRecord]: ...


def read_waiting(store_dir: Path, ledger_dir: Path) -> pa.Table | None:
    """`waiting_in` a store on disk, if the ledger reaches to the end of the store's log.

    Returns:
        None if the store moved on meanwhile, also if the ledger followed: then its messages are not those of one
        moment.
    """
    settle_store(store_dir)
    store = LmdbStore(store_dir, read_only=True)
    try:
        last = store.log_range()[1]
        waiting = waiting_in(store)
        return waiting if last == store.log_range()[1] == exported_through(ledger_dir) else None
    finally:
        store.close()


def waiting_in(store: _Queues) -> pa.Table:
    """`queue` and `seq` of every message that waits in a queue or subscription; what a topic keeps are bodies only."""
    queues: list[int] = []
    seqs: list[int] = []
    for record in store.queues():
        for lane in () if record.kind == Kind.TOPIC else (0, *record.lanes):
            after = lane << LANE_SHIFT
            while messages := store.messages(record.queue, after, _BATCH_MESSAGES, _BATCH_BYTES):
                seqs.extend(message.seq for message in messages)
                queues.extend(record.queue for _ in messages)
                after = messages[-1].seq
    return pa.table({"queue": pa.array(queues, pa.int32()), "seq": pa.array(seqs, pa.int64())})
