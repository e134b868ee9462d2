"""Copies that become a broker's store, and what there was before, without a log."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from legato.core.facts import QueueCreated
from legato.replication.seeding import look_at, seed
from legato.store.backup import take, verify
from legato.store.lmdb import LmdbStore
from tests.conformance.store import NOW_US, batch_of, stored
from tests.support.small_disk import small_disk


def made(path: Path, messages: int = 1) -> Path:
    """A store."""
    store = LmdbStore(path, sync=False)
    epoch = store.begin_epoch("broker", NOW_US).epoch
    store.commit(batch_of(epoch, QueueCreated(1, "q"), *map(stored, range(1, messages + 1))))
    store.close()
    return path


def messages_in(path: Path) -> int:
    return verify(path).messages


def test_a_backup_on_a_disk_that_nobody_may_write_is_verified_and_seeds(tmp_path: Path) -> None:
    """LMDB opens it, but removing the table of readers that was never made was refused."""
    made(tmp_path / "a", messages=3)
    with small_disk(tmp_path / "disk", 8 << 20):
        backup = tmp_path / "disk" / "one"
        take(tmp_path / "a", backup)
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path / "disk")], check=True)
        with pytest.raises(OSError, match="Read-only"):
            (backup / "other").touch()
        assert messages_in(backup) == 3
        seed(tmp_path / "b", look_at(backup))
    assert messages_in(tmp_path / "b") == 3
