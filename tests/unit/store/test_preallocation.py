"""Room is made ahead of large commits, within bounds, and nothing of the store is touched by it."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from legato.core.facts import QueueCreated, RunStored
from legato.store.base import Batch
from legato.store.blocks import pack_bodies
from legato.store.lmdb import LmdbStore
from legato.store.preallocation import DISK_RESERVE, ROOM_BYTES_MAX, STEP_BYTES, Preallocation
from tests.conformance.store import NO_LIMIT

BODIES = [bytes([number]) * 100_000 for number in range(40)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(b"x" * 5000)
    return path


def lengthen(room: Preallocation, used_bytes: int) -> int:
    """Make all the room that is wanted; returns in how many steps."""
    steps = 1
    while room.lengthen(used_bytes):
        steps += 1
    return steps


def test_nothing_is_made_before_anybody_has_wanted_it(file: Path) -> None:
    assert not Preallocation(file, 1 << 40).lengthen(5000)
    assert file.stat().st_size == 5000


def test_the_file_has_as_much_room_as_the_largest_commit_took(file: Path) -> None:
    room = Preallocation(file, 1 << 40)
    room.note_growth(3 * STEP_BYTES)
    room.note_growth(10)
    assert lengthen(room, 5000) == 3
    assert file.stat().st_size == 5000 + 3 * STEP_BYTES
    assert file.read_bytes()[:5001] == b"x" * 5000 + b"\0"
    assert lengthen(room, 5000 + STEP_BYTES) == 1
    assert file.stat().st_size == 5000 + 4 * STEP_BYTES


def test_room_is_bounded_by_what_is_sensible_and_by_what_the_store_may_have(file: Path) -> None:
    room = Preallocation(file, 5000 + 100)
    room.note_growth(ROOM_BYTES_MAX * 2)
    assert room.wanted == ROOM_BYTES_MAX
    assert lengthen(room, 5000) == 1
    assert file.stat().st_size == 5100


def test_a_disk_that_is_nearly_full_is_left_alone(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = Preallocation(file, 1 << 40)
    room.note_growth(STEP_BYTES)
    monkeypatch.setattr(os, "fstatvfs", lambda _: SimpleNamespace(f_bavail=DISK_RESERVE * STEP_BYTES - 1, f_frsize=1))
    assert not room.lengthen(5000)
    assert file.stat().st_size == 5000
    monkeypatch.setattr(os, "fstatvfs", lambda _: SimpleNamespace(f_bavail=DISK_RESERVE * STEP_BYTES, f_frsize=1))
    lengthen(room, 5000)
    assert file.stat().st_size == 5000 + STEP_BYTES


def test_where_the_file_cannot_grow_no_more_is_tried(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no room")

    room = Preallocation(file, 1 << 40)
    room.note_growth(STEP_BYTES)
    monkeypatch.setattr(os, "pwrite", refuse)
    assert not room.lengthen(5000)
    assert room.wanted == 0


def test_a_store_has_room_after_a_run_and_all_that_it_had(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path)
    store.begin_epoch("here", 0)
    store.commit(Batch(1, 1, [QueueCreated(1, "q")], []))
    assert not store.make_room(), "nothing large was committed"
    file = tmp_path / "data.mdb"
    sizes = []
    for seq in (1, 1 + len(BODIES)):
        block = pack_bodies(seq, range(seq, seq + len(BODIES)), BODIES, 1)
        run = RunStored(1, seq, len(BODIES), len(b"".join(BODIES)), 0, 0)
        store.commit(Batch(1, 2, [run], [], runs=[[block]]))
        sizes.append(file.stat().st_size)
        while store.make_room():
            pass
        sizes.append(file.stat().st_size)
    assert sizes[0] + 3 * STEP_BYTES < sizes[1]
    assert sizes[2] == sizes[1], "the second run went into the room that the first had made"
    assert bodies(store) == BODIES * 2
    store.close()
    store = LmdbStore(tmp_path)
    assert bodies(store) == BODIES * 2
    store.close()


def bodies(store: LmdbStore) -> list[bytes]:
    return [message.body for message in store.messages(1, 0, NO_LIMIT, NO_LIMIT)]
