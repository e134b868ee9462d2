"""Apply recorded commits to a store, in a process of its own: `python -m tests.integration.store.replayer`.

Arguments: the file of records, the directory for the store, and a number that says when the store is pruned meanwhile.
"""

import sys
from pathlib import Path
from random import Random

import msgspec

from legato import limits
from legato.core.records import Applied
from legato.store.commit_records import Beat, decode
from legato.store.lmdb import LmdbStore


def drain(store: LmdbStore, now_us: int) -> None:
    """Prune until there is nothing more to do."""
    while store.prune(now_us):
        pass


def replay(records: list[bytes], directory: Path, seed: int) -> None:
    """Apply `records`, and prune at random times, at last completely."""
    limits.OUTCOMES_KEPT = 5
    random = Random(seed)
    store = LmdbStore(directory, sync=False)
    for number, data in enumerate(records, 1):
        record = decode(data)
        assert not isinstance(record, Beat)
        store.prepare(record, forced=True)
        store.finish(Applied(number, b""))
        if random.random() < 0.1:
            store.prune(number)
        if random.random() < 0.01:
            store.close()
            store = LmdbStore(directory, sync=False)
    drain(store, len(records))
    store.close()


if __name__ == "__main__":
    replay(msgspec.msgpack.decode(Path(sys.argv[1]).read_bytes()), Path(sys.argv[2]), int(sys.argv[3]))
