"""A full map or a full disk refuses a batch as a whole, and the store goes on (issue: producers get an error)."""

import subprocess
import sys
from pathlib import Path

import pytest

from legato.core.facts import QueueCreated
from legato.errors import StoreFullError
from legato.store.lmdb import LmdbStore
from tests.conformance.store import batch_of, consumed, stored, waiting

SIZE = 10_000


def fill(store: LmdbStore) -> int:
    """Store messages, ten a commit, until there is no room; returns the last that fitted in."""
    epoch = store.begin_epoch("b", 0).epoch
    store.commit(batch_of(epoch, QueueCreated(1, "q")))
    for first in range(1, 10_000, 10):
        before = store.meta()
        try:
            store.commit(batch_of(epoch, *[stored(seq, size=SIZE) for seq in range(first, first + 10)]))
        except StoreFullError:
            assert store.meta() == before
            return first - 1
    raise AssertionError("the store took everything")


def store_while_there_is_room(store: LmdbStore, last: int, in_a_batch: int, size: int) -> int:
    """Store messages after the `last` one until a batch is refused; returns the last that fitted in."""
    epoch = store.meta().epoch
    while True:
        try:
            store.commit(batch_of(epoch, *[stored(last + number, size=size) for number in range(1, in_a_batch + 1)]))
        except StoreFullError:
            return last
        last += in_a_batch


def empty_and_fill_again(store: LmdbStore, last: int) -> None:
    """Consuming makes room for as many again."""
    epoch = store.meta().epoch
    assert waiting(store) == list(range(1, last + 1))
    for seq in range(1, last + 1):
        store.commit(batch_of(epoch, consumed(seq)))
    for first in range(last + 1, last * 2 - 100, 10):
        store.commit(batch_of(epoch, *[stored(seq, size=SIZE) for seq in range(first, first + 10)]))
        store.trim_log(store.meta().log_position, 1_000)


def test_a_full_map_refuses_the_batch_and_consuming_makes_room_again(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, map_bytes=8 << 20, sync=False)
    last = fill(store)
    assert last >= 500
    assert store.usage().used_bytes > 6 << 20
    empty_and_fill_again(store, last)
    store.close()


@pytest.mark.parametrize("map_bytes", [2 << 20, 4 << 20])
@pytest.mark.parametrize("in_a_batch", range(1, 41, 3))
def test_a_map_filled_by_batches_of_any_size_leaves_room_to_consume_all_at_once(
    tmp_path: Path, map_bytes: int, in_a_batch: int
) -> None:
    store = LmdbStore(tmp_path, map_bytes=map_bytes, sync=False)
    epoch = store.begin_epoch("b", 0).epoch
    store.commit(batch_of(epoch, QueueCreated(1, "q")))
    last = 0
    # One after the other takes less and less, until nothing fits.
    for size in (20_000, 3_000, 100):
        last = store_while_there_is_room(store, last, in_a_batch, size)
    store.commit(batch_of(epoch, *map(consumed, range(1, last + 1))))
    store.commit(batch_of(epoch, stored(last + 1, size=20_000)))
    assert waiting(store) == [last + 1]
    store.close()


def test_a_full_map_can_be_enlarged_by_opening_the_store_again(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, map_bytes=1 << 20, sync=False)
    last = fill(store)
    store.close()
    store = LmdbStore(tmp_path, map_bytes=2 << 20, sync=False)
    store.commit(batch_of(1, *[stored(seq, size=SIZE) for seq in range(last + 1, last + 11)]))
    assert waiting(store) == list(range(1, last + 11))
    store.close()


FILL_THE_DISK = """
import resource, sys
from legato.store.lmdb import LmdbStore
from tests.integration.store.test_full import empty_and_fill_again, fill

resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, 8 << 20))
store = LmdbStore(sys.argv[1])
last = fill(store)
assert last >= 500, last
empty_and_fill_again(store, last)
store.close()
print(last)
"""


def test_a_disk_that_takes_no_more_refuses_the_batch_and_consuming_makes_room_again(tmp_path: Path) -> None:
    # A limit on the size of files gives the same short write and EFBIG as a disk gives a short write and ENOSPC.
    done = subprocess.run(
        [sys.executable, "-c", FILL_THE_DISK, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    store = LmdbStore(tmp_path)
    assert waiting(store)
    store.close()


def test_a_batch_larger_than_the_room_leaves_smaller_ones_possible(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, map_bytes=4 << 20, sync=False)
    epoch = store.begin_epoch("b", 0).epoch
    store.commit(batch_of(epoch, QueueCreated(1, "q")))
    with pytest.raises(StoreFullError):
        store.commit(batch_of(epoch, stored(1, size=5 << 20)))
    store.commit(batch_of(epoch, stored(1, size=1 << 20)))
    assert waiting(store) == [1]
    store.close()
