"""Stream of a broker's whole store, for a backup on another machine or a replica that lost its disk.

Its rows are pieces of files, one file after the other. The last row has the digests of all files: a copy without it is
not complete. Nothing is written to the broker's disk.
"""

from __future__ import annotations

import hashlib
import math
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from legato.bulk.arrays import binary_array, text_array
from legato.errors import StoreError
from legato.store.backup_files import USERS_NAME, VERSIONS_NAME
from legato.store.environment import DATA_NAME
from legato.store.lmdb import LmdbStore

SCHEMA = pa.schema([("file", pa.string()), ("data", pa.binary())])
END = ""
"""Names no file: the data is a `CopyEnd`."""
BEGINNING = "."
"""Names no file: the data is a `CopyBeginning`."""
BESIDE = (VERSIONS_NAME, USERS_NAME)
"""Files that are copied after the data, if they exist. The versions are written before the commits that need them, so
they must be read after these."""
PIECE_BYTES = 1 << 20
STALLED_S = 60.0
"""A copy of which nothing is taken for so long ends: while it lasts, LMDB reuses no page that it shows."""


class CopyBeginning(msgspec.Struct):
    """The first row.

    Args:
        bytes: about so many come.
    """

    bytes: int


class CopyEnd(msgspec.Struct):
    """The last row: the SHA-256 of each file, by name, in hexadecimal digits."""

    sha256: dict[str, str]


class StoreCopies:
    """Gives out copies of a store, one at a time.

    Args:
        store: opened read-only.
        stalled_s: for so long nothing may be taken of a copy.
    """

    def __init__(self, store: LmdbStore, *, stalled_s: float = STALLED_S) -> None:
        self._store = store
        self._stalled_s = stalled_s
        self._busy = threading.Lock()
        """Held while LMDB copies."""

    @property
    def is_copying(self) -> bool:
        """Whether LMDB copies now."""
        return self._busy.locked()

    def stream(self) -> Iterator[pa.RecordBatch]:
        """The rows of a copy as of the last commit. Commits go on meanwhile.

        Raises:
            ValueError: another copy is under way.
            StoreError: the store cannot be read, or nobody took the copy.
        """
        yield _row(BEGINNING, msgspec.msgpack.encode(CopyBeginning(self._store.usage().used_bytes)))
        digests: dict[str, str] = {}
        for name, pieces in self._files():
            digest = hashlib.sha256()
            for piece in pieces:
                digest.update(piece)
                yield _row(name, piece)
            digests[name] = digest.hexdigest()
        yield _row(END, msgspec.msgpack.encode(CopyEnd(digests)))

    def _files(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        yield DATA_NAME, self._data()
        for name in BESIDE:
            if (path := self._store.path / name).is_file():
                yield name, _pieces(path)

    def _data(self) -> Iterator[bytes]:
        if not self._busy.acquire(blocking=False):
            raise ValueError("Another copy of this store is being made: wait until that is done.")
        failures: list[Exception] = []
        try:
            reading = self._begin(failures)
        except BaseException as error:
            # No thread is there to do it.
            self._busy.release()
            if isinstance(error, (OSError, RuntimeError)):  # No more files, or no more threads.
                raise StoreError(f"a copy of the store in {self._store.path} cannot be begun: {error}") from error
            raise
        # Should nobody want it any more, LMDB's next write fails.
        with reading:
            while piece := reading.recv(PIECE_BYTES, socket.MSG_WAITALL):
                yield piece
        if failures:
            raise failures[0]

    def _begin(self, failures: list[Exception]) -> socket.socket:
        """Have a thread copy; `failures` gets why it failed.

        Returns:
            Where the bytes come. The thread gives `_busy` back.
        """
        reading, writing = socket.socketpair()

        def copy() -> None:
            with writing:
                try:
                    self._store.write_copy(writing.fileno())
                except Exception as error:
                    failures.append(error)
                finally:
                    self._busy.release()

        try:
            writing.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _time_value(self._stalled_s))
            threading.Thread(target=copy, name="legato-store-copy", daemon=True).start()
        except BaseException:
            reading.close()
            writing.close()
            raise
        return reading


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield file.read(PIECE_BYTES)  # of an empty file too
        while piece := file.read(PIECE_BYTES):
            yield piece


def _time_value(seconds: float) -> bytes:
    """As the system's `struct timeval`."""
    fraction, whole = math.modf(seconds)
    return struct.pack("ll", int(whole), int(fraction * 1e6))


def _row(name: str, data: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([text_array([name]), binary_array([data])], schema=SCHEMA)
