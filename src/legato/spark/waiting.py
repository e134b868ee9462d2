"""The messages that wait in a store, for the audit to tell them from lost ones."""

from pathlib import Path

import pyarrow as pa

from legato.core.facts import Kind
from legato.spark.table import LANE_BITS
from legato.store.lmdb import LmdbStore
from legato.store.segment_names import exported_through

_BATCH_MESSAGES = 1_000
_BATCH_BYTES = 8 << 20


def read_waiting(store_dir: Path, ledger_dir: Path) -> pa.Table | None:
    """`queue` and `seq` of every waiting message, if the ledger reaches to the end of the store's log.

    Returns:
        None if the store moved on meanwhile: then its messages are not those of the ledger.
    """
    store = LmdbStore(store_dir, read_only=True)
    try:
        queues: list[int] = []
        seqs: list[int] = []
        for record in store.queues():
            if record.kind == Kind.TOPIC:
                continue
            for lane in (0, *record.lanes):
                after = lane << LANE_BITS
                while messages := store.messages(record.queue, after, _BATCH_MESSAGES, _BATCH_BYTES):
                    seqs.extend(message.seq for message in messages)
                    queues.extend(record.queue for _ in messages)
                    after = messages[-1].seq
        if store.log_range()[1] != exported_through(ledger_dir):
            return None
    finally:
        store.close()
    return pa.table({"queue": pa.array(queues, pa.int32()), "seq": pa.array(seqs, pa.int64())})
