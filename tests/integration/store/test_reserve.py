"""The reserve of a store: on a disk that is really full an epoch begins, and consumers drain, whatever readers hold."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from legato.core.facts import QueueCreated
from legato.errors import StoreFullError
from legato.store.environment import used_bytes
from legato.store.lmdb import LmdbStore
from legato.store.reserve import RESERVE_BYTES, RESERVE_NAME
from tests.conformance.store import batch_of, consumed, stored, waiting
from tests.support.small_disk import SmallDisk, small_disk

SIZE = 10_000
COUNT = 500


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A disk for the store alone."""
    with small_disk(tmp_path / "store", 24 << 20) as disk:
        yield disk


def fill(disk: SmallDisk, store: LmdbStore) -> None:
    """Nothing is free any more, at the end of the store's file neither."""
    os.truncate(disk.path / "data.mdb", used_bytes(store._env))
    disk.fill()


def test_an_epoch_begins_and_consumers_drain_with_the_reserve_and_producers_are_refused(disk: SmallDisk) -> None:
    """CORRECTNESS D2: here a living reader holds all free pages, so everything that is written needs new ones."""
    store = LmdbStore(disk.path, sync=False)
    epoch = store.begin_epoch("first", 0).epoch
    assert (disk.path / RESERVE_NAME).stat().st_blocks * 512 >= RESERVE_BYTES
    store.commit(batch_of(epoch, QueueCreated(1, "q")))
    with store._env.begin():
        for first in range(1, COUNT, 10):
            store.commit(batch_of(epoch, *[stored(seq, size=SIZE) for seq in range(first, first + 10)]))
        fill(disk, store)
        with pytest.raises(StoreFullError):
            store.commit(batch_of(epoch, stored(COUNT + 1, size=SIZE)))
        assert (disk.path / RESERVE_NAME).exists(), "producers do not get it"
        epoch = store.begin_epoch("second", 0).epoch
        assert epoch == 2
        assert not (disk.path / RESERVE_NAME).exists()
        assert not store.keep_reserve()
        assert not store.usage().reserved
        with pytest.raises(StoreFullError, match="for consuming"):
            store.commit(batch_of(epoch, stored(COUNT + 1, size=SIZE)))
        for first in range(1, COUNT, 10):
            store.commit(batch_of(epoch, *[consumed(seq) for seq in range(first, first + 10)]))
    assert waiting(store) == []
    assert store.usage().reserved, "there is as much room in its own file"
    store.commit(batch_of(epoch, stored(COUNT + 1, size=SIZE)))
    disk.empty()
    assert store.keep_reserve()
    assert (disk.path / RESERVE_NAME).exists()
    store.close()


def test_a_reserve_that_somebody_deleted_is_made_again(disk: SmallDisk) -> None:
    store = LmdbStore(disk.path, sync=False)
    store.begin_epoch("b", 0)
    (disk.path / RESERVE_NAME).unlink()
    disk.fill()
    assert not store.keep_reserve()
    disk.empty()
    assert store.keep_reserve()
    assert (disk.path / RESERVE_NAME).stat().st_blocks * 512 >= RESERVE_BYTES
    store.close()


def test_the_table_of_readers_has_no_holes(disk: SmallDisk) -> None:
    """A first write to a hole of a mapped file on a full disk ends the process with SIGBUS."""
    store = LmdbStore(disk.path, sync=False)
    table = (disk.path / "lock.mdb").stat()
    assert table.st_blocks * 512 >= table.st_size
    disk.fill()
    readers = [store._env.begin() for _ in range(400)]
    assert len(store._env.readers().splitlines()) > 400
    for reader in readers:
        reader.abort()
    store.close()
