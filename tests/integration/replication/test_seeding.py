"""Copies that become a broker's store, and what there was before, without a log."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from legato.core.facts import QueueCreated
from legato.errors import StoreError
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


@pytest.mark.parametrize("fails", ["users", "versions.json", "data.mdb.replaced-at-2"])
def test_a_copy_that_fails_leaves_the_store_as_it_was(tmp_path: Path, fails: str) -> None:
    """Half of the users stayed, which the next copy kept: the broker refused to start. And the versions were gone."""
    store = made(tmp_path / "b")
    (store / "versions.json").write_text("[]")
    made(tmp_path / "a", messages=3)
    for name in ("users", "versions.json"):
        (tmp_path / "a" / name).write_text(name)
        (tmp_path / "a" / name).chmod(0o600)
    take(tmp_path / "a", tmp_path / "copy")
    if fails == "users":
        (tmp_path / "copy" / fails).write_text("use")  # damaged
    elif fails == "versions.json":
        (tmp_path / "copy" / fails).unlink()
        (tmp_path / "copy" / fails).symlink_to("/proc/self/mem")  # cannot be read
    else:
        (store / fails).mkdir()  # in the way
    before = {path.name for path in store.iterdir()}
    with pytest.raises(StoreError):
        seed(store, look_at(tmp_path / "copy"))
    assert {path.name for path in store.iterdir()} == before
    assert (store / "versions.json").read_text() == "[]"
    assert messages_in(store) == 1

    take(tmp_path / "a", tmp_path / "another")
    if fails.startswith("data"):
        (store / fails).rmdir()
    seed(store, look_at(tmp_path / "another"))
    assert messages_in(store) == 3
    for name in ("users", "versions.json", "data.mdb"):
        assert (store / name).stat().st_mode & 0o077 == 0
    assert [(store / name).read_text() for name in ("users", "versions.json")] == ["users", "versions.json"]


def test_a_copy_without_versions_takes_those_of_the_former_store_away(tmp_path: Path) -> None:
    store = made(tmp_path / "b")
    (store / "versions.json").write_text("[]")
    seed(store, look_at(made(tmp_path / "a", messages=3)))
    assert not (store / "versions.json").exists()
    assert messages_in(store) == 3
