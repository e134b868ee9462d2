"""Store readers that a drill kills or stops in mid-read, and their effect on the store's file.

Run as `python -m legato.drill.store_reader STORE` it begins to read, says so, and reads until its standard input ends.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import lmdb

from legato.limits import STORE_MAP_BYTES_DEFAULT
from legato.processes.child import Child
from legato.store.environment import Databases, lmdb_errors, used_bytes

READING = b"reading"


class FileUse(NamedTuple):
    """How far the content of a store's file reaches, and how much of it counts; bytes."""

    reach_bytes: int
    live_bytes: int


@contextmanager
def _looking(store: Path) -> Iterator[Any]:
    """LMDB's environment as it is: `LmdbStore` would tidy up what dead readers left when it opens."""
    with lmdb_errors(f"looking at the store in {store}"):
        environment = lmdb.open(
            str(store),
            readonly=True,
            create=False,
            max_dbs=len(Databases.__struct_fields__),
            # Beyond what it grows to while we look.
            map_size=STORE_MAP_BYTES_DEFAULT,
        )
        try:
            yield environment
        finally:
            environment.close()


def is_read_by(store: Path, pid: int) -> bool:
    """Whether pages are kept for a read of that process."""
    with _looking(store) as environment:
        lines = [line.split() for line in environment.readers().splitlines()]
    return any(words[0] == str(pid) and words[-1].isdecimal() for words in lines if words)


def file_use(store: Path) -> FileUse:
    """As of the last commit."""
    with _looking(store) as environment:
        databases = [environment.open_db(name.encode(), create=False) for name in Databases.__struct_fields__]
        with environment.begin() as txn:
            stats = [txn.stat(database) for database in databases]
        live = sum(
            (each["branch_pages"] + each["leaf_pages"] + each["overflow_pages"]) * each["psize"] for each in stats
        )
        return FileUse(used_bytes(environment), live)


class Reader:
    """A process in the middle of a read, once `began` is set."""

    def __init__(self, store: Path, logs: Path) -> None:
        self.began = threading.Event()
        self.child = Child(
            "reader",
            ["legato.drill.store_reader", str(store)],
            log_file=logs / "reader.log",
            on_line=self._say,
            on_end=lambda child: None,
        )

    def _say(self, child: Child, line: bytes) -> None:
        if line.startswith(READING):
            self.began.set()


def read(store: Path) -> None:
    """Begin a read, and end it with standard input."""
    with _looking(store) as environment, environment.begin():
        print(READING.decode(), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    read(Path(sys.argv[1]))
