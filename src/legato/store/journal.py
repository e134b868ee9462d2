"""The journal: a few files, written one record a commit, with which a commit is durable before its store's file is.

It takes bytes and gives them back; it knows neither LMDB nor what is committed. One process at a time writes it, who
holds the lock of the store's writers. A record goes behind the one before, with one `fdatasync`; when what it says is
in the store's file, its place is used again (`release`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from legato.errors import StoreCorruptError, StoreError
from legato.store.directories import make_directory, sync_directory
from legato.store.journal_records import (
    DIGEST_BYTES,
    HEADER_BYTES,
    Bytes,
    Layout,
    Place,
    encode_head,
    encode_header,
    needed_records,
    read_header,
    record_size,
    segment_path,
)

__all__ = ["SEGMENTS", "Journal", "Place", "create_journal", "remove_journal"]

SEGMENTS = 3
"""Enough to go on in one while the others wait for the store's file."""
_ZEROES = bytes(1 << 20)


def create_journal(directory: Path, identity: bytes, segment_bytes: int, *, sync: bool = True) -> None:
    """Make a journal whose segments take their place on the disk when they are first used.

    Args:
        directory: there is nothing in it, or it is not there.
        identity: 16 bytes that no other journal has, and that no client knows.
        segment_bytes: of each segment; no record may be larger.
        sync: whether it survives a power cut.

    Raises:
        OSError: there is no room, or it cannot be written.
    """
    make_directory(directory)
    for index in range(1, SEGMENTS + 1):
        header = encode_header(identity, index, SEGMENTS, segment_bytes)
        with segment_path(directory, index).open("xb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(header.ljust(HEADER_BYTES, b"\0"))
            file.flush()
            if sync:
                os.fsync(file.fileno())
    if sync:
        sync_directory(directory)
        sync_directory(directory.parent)


def remove_journal(directory: Path) -> None:
    """Remove a journal that is not needed, or what there is of one.

    Raises:
        OSError: it cannot be removed.
    """
    if directory.is_dir():
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()
        sync_directory(directory.parent)


class _Segment:
    """A segment that can be written to."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.size = size
        self.last_number = 0
        """Highest number of a record in it that may be needed."""
        self.end = HEADER_BYTES
        self._file = -1

    @property
    def file(self) -> int:
        """It is written full of zeroes when it is opened first.

        Raises:
            OSError: there is no room, or it cannot be written.
        """
        if self._file < 0:
            file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                self._fill(file)
            except BaseException:
                os.close(file)
                raise
            self._file = file
        return self._file

    def _fill(self, file: int) -> None:
        """Before its last byte is there a segment holds nothing, whoever was killed when it was made."""
        if os.fstat(file).st_size == self.size:
            return
        try:
            # First the place, so that a full disk is found before anything is written.
            os.posix_fallocate(file, HEADER_BYTES, self.size - HEADER_BYTES - 1)
            position = HEADER_BYTES
            while position < self.size - 1:
                position += os.pwrite(file, _ZEROES[: self.size - 1 - position], position)
            os.fsync(file)
            os.pwrite(file, b"\0", self.size - 1)
            os.fsync(file)
        except OSError:
            # What it has of the disk others may need more.
            with suppress(OSError):
                os.ftruncate(file, HEADER_BYTES)
            raise

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class Journal:
    """A journal that is there, opened to be written.

    Args:
        directory: its own.
        identity: the one it was made with.
        after: the last commit that the store's file holds.
        sync: whether `append` waits for the disk. False survives a killed process but not a power cut.

    Attributes:
        identity: the one it was made with.
        last: the last commit that was appended, or that the store's file holds.
        failed: an append failed, and it could not be undone; nothing more is appended. Its place is `last` then: when
            the store's file holds everything up to there, it does not matter whether it can be read.

    Raises:
        StoreCorruptError: it is damaged, in part missing, or another store's; the message says what is lost.
        OSError: it cannot be read.
    """

    def __init__(self, directory: Path, identity: bytes, after: Place, *, sync: bool = True) -> None:
        self.directory = directory
        self.failed = False
        self.identity = identity
        self._sync = sync
        layout = read_header(segment_path(directory, 1), 1, identity)
        self._segments = [
            _Segment(segment_path(directory, i + 1), layout.segment_bytes) for i in range(layout.segments)
        ]
        self._layout = layout
        self._released = after.number
        self.last = after
        self._current = self._segments[0]
        for record in needed_records(directory, identity, after):
            self._current = self._segments[record.segment - 1]
            self._current.last_number = record.place.number
            self._current.end = record.offset + record.size
            self.last = record.place

    @property
    def layout(self) -> Layout:
        """How many segments it has, and of which size."""
        return self._layout

    @property
    def released(self) -> int:
        """The number up to which commits are in the store's file."""
        return self._released

    def fits(self, payload_bytes: int) -> bool:
        """Whether a record of so many bytes can be appended now."""
        return not self.failed and self._segment_for(record_size(payload_bytes)) is not None

    def append(self, epoch: int, payload: Bytes) -> Place:
        """Append the next commit, durably; returns its place.

        Args:
            epoch: at least that of the last commit.
            payload: for which it `fits`.

        Raises:
            OSError: it is not durable, and it is not there; if that is not certain either, the journal has `failed`.
            StoreError: the journal had failed before.
        """
        size = record_size(len(payload))
        segment = None if self.failed else self._segment_for(size)
        if segment is None:
            raise StoreError(f"the journal in {self.directory} has no room for {len(payload)} bytes")
        number = self.last.number + 1
        head = encode_head(self.identity, self.last.digest, epoch, number, payload)
        place = Place(epoch, number, head[-DIGEST_BYTES:])
        begin = segment.end if segment is self._current and segment.end + size <= segment.size else HEADER_BYTES
        file = segment.file
        try:
            self._write(file, [head, payload], begin)
        except OSError:
            if not self._erase(file, len(head), begin):
                self.failed = True
                self.last = place
            raise
        segment.end = begin + size
        segment.last_number = number
        self._current = segment
        self.last = place
        return place

    def release(self, through: int) -> None:
        """The store's file holds, durably, all commits up to the number `through`: their records are not needed."""
        self._released = max(self._released, through)

    def replay(self, after: Place) -> Iterator[tuple[Place, bytes]]:
        """Places and payloads of all commits behind `after`, as they are in the files, oldest first.

        Raises:
            StoreCorruptError: they are not what was appended.
            OSError: they cannot be read.
        """
        found = needed_records(self.directory, self.identity, after)
        last = found[-1].place if found else after
        if last != self.last:
            raise StoreCorruptError(
                f"the journal in {self.directory} is damaged: it ends with commit {last.number}, "
                f"and commit {self.last.number} was appended to it"
            )
        for record in found:
            yield record.place, record.payload

    def close(self) -> None:
        """Close its files."""
        for segment in self._segments:
            segment.close()

    def _segment_for(self, size: int) -> _Segment | None:
        """Where a record of so many bytes goes: behind the last one, else to a segment that is not needed any more."""
        if self._current.end + size <= self._current.size:
            return self._current
        for segment in self._segments:
            if segment.last_number <= self._released and HEADER_BYTES + size <= segment.size:
                return segment
        return None

    def _write(self, file: int, parts: list[Bytes], begin: int) -> None:
        written = os.pwritev(file, parts, begin)
        wanted = sum(map(len, parts))
        while written < wanted:
            rest = b"".join(parts)[written:]
            written += os.pwrite(file, rest, begin + written)
        if self._sync:
            os.fdatasync(file)

    def _erase(self, file: int, size: int, begin: int) -> bool:
        """A record whose append failed must not be found by who opens the journal next; returns whether it is gone."""
        try:
            self._write(file, [bytes(size)], begin)
        except OSError:
            return False
        return True
