"""A power cut leaves what was confirmed: the store's writes are recorded, and cut at any of them in many ways.

Of what was written and not synced any part may be on the disk, each sector by itself and in any order. Names, and how
long files are, are taken to be there.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from legato.store.lmdb import LmdbStore
from tests.integration.store import committer
from tests.integration.store.test_crash import check
from tests.support.examples import examples

SOURCE = Path(__file__).with_name("record_writes.c")
SECTOR = 512
HEAD = struct.Struct("<cHQI")
BATCHES = 40
IMAGES = examples(200)
"""Of each recording."""

RECORDINGS = {
    "no journal": (0.0, 0),
    "no checkpoint": (1000.0, 8 << 20),
    "some checkpoints": (1000.0, 300_000),
    "segments are used again and again": (0.004, 150_000),
}


class Call(NamedTuple):
    """A recorded call: a write (W), a durable one (D), a sync (S), a new length (L, T), or what was told (C)."""

    kind: str
    path: str
    offset: int
    data: bytes


class Disk:
    """Files as they are durably, and what was written to them since."""

    def __init__(self) -> None:
        self.durable: dict[str, bytearray] = {}
        self.pending: dict[str, list[tuple[int, bytes]]] = {}
        self.told = 0

    def apply(self, call: Call) -> None:
        """One more call has returned."""
        if call.kind == "C":
            self.told = int(call.data)
            return
        if call.kind == "S" and call.path not in self.durable:
            return  # A directory.
        content = self.durable.setdefault(call.path, bytearray())
        pending = self.pending.setdefault(call.path, [])
        match call.kind:
            case "W":
                _lengthen(content, call.offset + len(call.data))
                pending.append((call.offset, call.data))
            case "D":
                _put(content, call.offset, call.data)
            case "S":
                for offset, data in pending:
                    _put(content, offset, data)
                pending.clear()
            case "L":
                _lengthen(content, call.offset)
            case "T":
                del content[call.offset :]
                _lengthen(content, call.offset)

    def cut(self, chance: random.Random, directory: Path) -> None:
        """What is there when the power comes back."""
        how = chance.choice(["nothing", "everything", "some", "sectors"])
        for path, content in self.durable.items():
            image = bytearray(content)
            for offset, data in self.pending[path]:
                for begin, part in _sectors(offset, data) if how == "sectors" else [(offset, data)]:
                    if how == "everything" or (how != "nothing" and chance.random() < 0.5):
                        _put(image, begin, part)
            to = directory / path
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(image)


def _lengthen(content: bytearray, size: int) -> None:
    content.extend(bytes(max(size - len(content), 0)))


def _put(content: bytearray, offset: int, data: bytes) -> None:
    _lengthen(content, offset + len(data))
    content[offset : offset + len(data)] = data


def _sectors(offset: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position < len(data):
        size = SECTOR - (offset + position) % SECTOR
        yield offset + position, data[position : position + size]
        position += size


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("library") / "record_writes.so"
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl", "-pthread"], check=True)
    return library


def recorded(library: Path, directory: Path, checkpoint_s: float, journal_bytes: int) -> list[Call]:
    """The calls of a process that commits and then ends."""
    log, store = directory / "log", directory / "store"
    command = [sys.executable, "-m", committer.__name__, str(store), str(checkpoint_s), str(journal_bytes)]
    environment = os.environ | {"LD_PRELOAD": str(library), "WRITES_LOG": str(log), "WRITES_BELOW": str(store)}
    subprocess.run([*command, str(BATCHES)], env=environment, check=True, stdout=subprocess.DEVNULL)
    return list(_calls(log.read_bytes(), store))


def _calls(log: bytes, store: Path) -> Iterator[Call]:
    position = 0
    while position < len(log):
        kind, path_size, offset, size = HEAD.unpack_from(log, position)
        position += HEAD.size
        path = log[position : position + path_size].decode()
        position += path_size
        stored = size if kind in b"WDC" else 0
        data = log[position : position + stored]
        position += stored
        name = os.path.relpath(path, store) if path else ""
        if name != "lock.mdb":  # It holds nothing that is stored, and the next process makes it anew.
            yield Call(kind.decode(), name, offset, data)


@pytest.mark.parametrize("how", RECORDINGS)
def test_whatever_a_power_cut_leaves_holds_what_was_confirmed_and_no_part_of_a_commit(
    tmp_path: Path, library: Path, how: str
) -> None:
    calls = recorded(library, tmp_path, *RECORDINGS[how])
    assert [int(call.data) for call in calls if call.kind == "C"] == list(range(1, BATCHES + 1))
    made = next(index for index, call in enumerate(calls) if call.kind == "C")
    chance = random.Random(how)
    cuts = sorted(chance.randrange(made, len(calls) + 1) for _ in range(IMAGES))
    disk = Disk()
    done = 0
    for number, cut in enumerate(cuts):
        for call in calls[done:cut]:
            disk.apply(call)
        done = cut
        image = tmp_path / f"image-{number}"
        disk.cut(chance, image)
        store = LmdbStore(image, sync=False)
        try:
            check(store, disk.told)
        finally:
            store.close()
        shutil.rmtree(image)


def test_a_store_that_confirms_before_it_syncs_is_found_out(tmp_path: Path, library: Path) -> None:
    """Else the test above shows nothing: here the syncs of the journal are left out of the recording."""
    calls = recorded(library, tmp_path, 1000.0, 8 << 20)
    kept = [call for call in calls if not (call.kind == "S" and call.path.startswith("journal"))]
    assert len(kept) < len(calls)
    disk = Disk()
    for call in kept:
        disk.apply(call)
    for number in range(20):
        image = tmp_path / f"image-{number}"
        disk.cut(random.Random(number), image)
        try:
            store = LmdbStore(image, sync=False)
        except Exception:
            return
        try:
            if committer.last_batch(store) < disk.told:
                return
        finally:
            store.close()
    raise AssertionError("nothing was lost")
