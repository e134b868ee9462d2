"""A copy that is not whole, not what was sent, or that nobody takes."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from legato.bulk.store_copy import BEGINNING, END, SCHEMA, CopyBeginning, CopyEnd, StoreCopies
from legato.bulk.store_fetch import write_files
from legato.core.facts import QueueCreated
from legato.errors import StoreCorruptError, StoreError
from legato.store.environment import DATA_NAME
from legato.store.lmdb import LmdbStore
from tests.conformance.store import NOW_US, batch_of, stored

WAIT_S = 60.0
MESSAGES = 3000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LmdbStore]:
    """One of several megabytes."""
    store = LmdbStore(tmp_path / "store", sync=False)
    epoch = store.begin_epoch("broker", NOW_US).epoch
    store.commit(batch_of(epoch, QueueCreated(1, "q"), *[stored(seq, size=2000) for seq in range(1, MESSAGES)]))
    yield store
    store.close()


def rows(batches: Iterable[pa.RecordBatch]) -> list[tuple[str, bytes]]:
    return [(batch.column(0)[0].as_py(), batch.column(1)[0].as_py()) for batch in batches]


def write(found: Iterable[tuple[str, bytes]], directory: Path) -> dict[str, str]:
    directory.mkdir()
    return write_files(((name, memoryview(data)) for name, data in found), directory, lambda done, total: None)


def test_a_copy_is_of_pieces_and_a_store(store: LmdbStore, tmp_path: Path) -> None:
    found = rows(StoreCopies(store).stream())
    assert (found[0][0], found[-1][0]) == (BEGINNING, END)
    assert [name for name, _ in found[1:-1]].count(DATA_NAME) > 3
    write(found, tmp_path / "copy")
    copied = LmdbStore(tmp_path / "copy", read_only=True)
    assert list(copied.queues()) == list(store.queues())
    copied.close()


Changed = Callable[[list[tuple[str, bytes]]], list[tuple[str, bytes]]]


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda found: found[:-1], StoreError, "broke off"),
        (lambda found: found[:3], StoreError, "broke off"),
        (lambda found: [*found[:2], *found[3:]], StoreCorruptError, "not what was sent"),
        (lambda found: [found[0], found[-1]], StoreCorruptError, "not what was sent"),
        (lambda found: [found[0], ("../outside", b"x"), *found[1:]], StoreCorruptError, "no copy of a store"),
        (lambda found: [*found[:-1], ("/tmp/outside", b"x"), found[-1]], StoreCorruptError, "no copy of a store"),
        (lambda found: [found[0], found[1], ("users", b""), *found[2:]], StoreCorruptError, "no copy of a store"),
        (lambda found: [(BEGINNING, b"\xc1"), *found[1:]], StoreCorruptError, "no copy of a store"),
        (lambda found: [*found[:-1], (END, b"")], StoreCorruptError, "no copy of a store"),
    ],
)
def test_what_is_not_a_whole_copy_is_refused(
    store: LmdbStore, tmp_path: Path, change: Changed, error: type[StoreError], said: str
) -> None:
    with pytest.raises(error, match=said):
        write(change(rows(StoreCopies(store).stream())), tmp_path / "copy")
    assert not (tmp_path / "outside").exists()


def test_files_beside_the_data_come_too_even_empty_ones(store: LmdbStore, tmp_path: Path) -> None:
    (store.path / "users").write_text("")
    (store.path / "versions.json").write_text("[]")
    digests = write(rows(StoreCopies(store).stream()), tmp_path / "copy")
    assert list(digests) == [DATA_NAME, "versions.json", "users"]
    assert [(tmp_path / "copy" / name).read_text() for name in ("users", "versions.json")] == ["", "[]"]


def test_a_copy_that_nobody_takes_ends_and_lets_pages_go(store: LmdbStore) -> None:
    """While it lasted no page could be used again that it shows: the store's file grew."""
    copies = StoreCopies(store, stalled_s=0.2)
    stream = copies.stream()
    next(stream), next(stream)
    with pytest.raises(ValueError, match="Another copy"):
        rows(copies.stream())
    deadline = time.monotonic() + WAIT_S
    while copies.is_copying:
        assert time.monotonic() < deadline, "the copy goes on"
        time.sleep(0.01)
    assert not store.check_readers().holding
    with pytest.raises(StoreError, match="copying the store"):
        list(stream)
    assert rows(copies.stream())[-1][0] == END


def test_a_copy_whose_taker_is_gone_ends(store: LmdbStore) -> None:
    copies = StoreCopies(store)
    stream: Any = copies.stream()
    next(stream), next(stream)
    stream.close()
    deadline = time.monotonic() + WAIT_S
    while copies.is_copying:
        assert time.monotonic() < deadline, "the copy goes on"
        time.sleep(0.01)


@pytest.mark.parametrize(("module", "name"), [(socket, "socketpair"), (threading.Thread, "start")])
def test_a_copy_that_cannot_be_begun_leaves_the_next_one_alone(
    store: LmdbStore, monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    """Without files or threads for a moment, another copy was said to be under way until the broker ended."""
    copies = StoreCopies(store)

    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    made: list[socket.socket] = []

    def pair() -> tuple[socket.socket, ...]:
        made.extend(socketpair())
        return tuple(made)

    socketpair = socket.socketpair
    with monkeypatch.context() as patch:
        patch.setattr(socket, "socketpair", pair)
        patch.setattr(module, name, fail)
        with pytest.raises(StoreError, match=r"cannot be begun: .*Too many open files"):
            rows(copies.stream())
    assert not copies.is_copying
    assert [each.fileno() for each in made] == [-1] * len(made)
    assert rows(copies.stream())[-1][0] == END


def test_rows_are_of_one_schema(store: LmdbStore) -> None:
    assert {batch.schema for batch in StoreCopies(store).stream()} == {SCHEMA}
    end = CopyEnd({"a": "b"})
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(end), type=CopyEnd) == end
    assert CopyBeginning(7).bytes == 7
