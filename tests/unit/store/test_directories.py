"""Names of files and directories are on the disk, too, before anything depends on them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from legato.bulk.stage_files import path_of, write_stage
from legato.store.lmdb import LmdbStore


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What Python had written to the disk, in order."""
    found: list[Path] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        found.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return found


def test_a_new_stores_name_is_on_the_disk_when_it_is_open(tmp_path: Path, synced: list[Path]) -> None:
    path = tmp_path / "deep" / "store"
    LmdbStore(path).close()
    assert synced == [tmp_path, tmp_path / "deep", path, tmp_path / "deep"]
    synced.clear()
    LmdbStore(path).close()
    assert synced == [path, tmp_path / "deep"], "whoever made it may have died before"
    synced.clear()
    LmdbStore(path, read_only=True).close()
    LmdbStore(path, sync=False).close()
    assert synced == []


def test_a_sinks_directory_is_on_the_disk_when_its_first_stage_is(tmp_path: Path, synced: list[Path]) -> None:
    stages = tmp_path / "stages"
    for stage in ("a", "b"):
        path = path_of(tmp_path, "sink", 0, stage)
        write_stage(path, iter([]))
        names = [tmp_path, stages] if stage == "a" else []
        temporary = synced.pop(len(names))
        assert (temporary.parent, temporary.suffix) == (path.parent, ".tmp")
        assert synced == [*names, stages / "sink"]
        synced.clear()
