"""Format of a journal's segments: their headers, their records, and which records of them are still needed.

A segment is a file of a fixed size that was written full of zeroes before its first use, so that a record changes
neither its size nor where it is on the disk. It is used again and again; what earlier rounds left behind stays behind
the newest records, and is told from them by its number.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from legato.errors import StoreCorruptError

Bytes = bytes | memoryview

DIGEST_BYTES = 16
IDENTITY_BYTES = 16
NO_DIGEST = bytes(DIGEST_BYTES)

HEADER_BYTES = 4096
"""A segment's header has a page for itself: no record is written to it."""
ALIGNMENT = 8
"""Records begin at multiples of this, where they are looked for in a damaged segment."""

_SEGMENT_MAGIC = b"LegatoJ1"
_HEADER = struct.Struct(">8sIIQ16s16s")
"""Magic, index of the segment, how many there are, bytes of each, identity; then the digest of these."""

RECORD_MAGIC = b"\xf5Lj\x01"
_HEAD = struct.Struct(">4sIQQ16s")
"""Magic, bytes of the payload, epoch, number, digest of the record before; then the digest of these and the payload."""
HEAD_BYTES = _HEAD.size + DIGEST_BYTES


class Place(NamedTuple):
    """A commit: its epoch, its number, and the digest that chains it to all before it."""

    epoch: int
    number: int
    digest: bytes


class Found(NamedTuple):
    """A whole record in a segment."""

    place: Place
    before: bytes
    """Digest of the record before it."""
    segment: int
    offset: int
    size: int
    """Bytes from one record to the next."""
    payload: bytes


def segment_path(directory: Path, index: int) -> Path:
    """The file of the segment `index`, from 1."""
    return directory / f"{index:06}"


def record_size(payload_bytes: int) -> int:
    """How many bytes of a segment a record takes up."""
    return -(-(HEAD_BYTES + payload_bytes) // ALIGNMENT) * ALIGNMENT


def encode_head(identity: bytes, before: bytes, epoch: int, number: int, payload: Bytes) -> bytes:
    """The head of a record, which ends with its digest."""
    fixed = _HEAD.pack(RECORD_MAGIC, len(payload), epoch, number, before)
    return fixed + _digest(identity, fixed, payload)


def encode_header(identity: bytes, index: int, count: int, size: int) -> bytes:
    """The first bytes of a segment."""
    # The digest's place is kept free; without the identity as its key, so that a foreign one can be told.
    fixed = _HEADER.pack(_SEGMENT_MAGIC, index, count, size, identity, NO_DIGEST)[:-DIGEST_BYTES]
    return fixed + hashlib.blake2b(fixed, digest_size=DIGEST_BYTES).digest()


class Layout(NamedTuple):
    """How many segments a journal has, and of which size."""

    segments: int
    segment_bytes: int


def read_header(path: Path, index: int, identity: bytes) -> Layout:
    """What the header of the segment `index` says.

    Raises:
        StoreCorruptError: it is missing, damaged, out of its place, or of another store's journal.
        OSError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER.size)
    except FileNotFoundError:
        raise StoreCorruptError(
            f"{path} is missing; it may hold commits that were confirmed: put it back beside the others"
        ) from None
    fixed, digest = header[:-DIGEST_BYTES], header[-DIGEST_BYTES:]
    if len(header) < _HEADER.size or hashlib.blake2b(fixed, digest_size=DIGEST_BYTES).digest() != digest:
        raise StoreCorruptError(f"{path} is no segment of a journal, or its header is damaged")
    magic, found_index, count, size, found_identity, _ = _HEADER.unpack(header)
    if magic != _SEGMENT_MAGIC:
        raise StoreCorruptError(f"{path} was written by a version of Legato that this one does not know")
    if found_identity != identity:
        raise StoreCorruptError(
            f"{path} is of another store's journal, or of an older copy of this store's: a store's file and its "
            "journal belong together"
        )
    if found_index != index:
        raise StoreCorruptError(f"{path} is segment {found_index} of its journal: it is not under its own name")
    return Layout(count, size)


def needed_records(directory: Path, identity: bytes, after: Place) -> list[Found]:
    """The records of a journal with higher numbers than `after`, which follow it without a gap, oldest first.

    What is behind the last whole record is what a crash left of one that was never confirmed.

    Raises:
        StoreCorruptError: whole records are there, but not those before them; the message says what is lost.
        OSError: it cannot be read.
    """
    layout = read_header(segment_path(directory, 1), 1, identity)
    found: list[Found] = []
    for index in range(1, layout.segments + 1):
        path = segment_path(directory, index)
        if read_header(path, index, identity) != layout:
            raise StoreCorruptError(f"{path} is not of the same journal as {segment_path(directory, 1).name}")
        found += _whole_records(path, index, identity, after.number)
    found.sort(key=lambda record: record.place.number)
    _refuse_gaps(directory, found, after)
    return found


def _refuse_gaps(directory: Path, found: Sequence[Found], after: Place) -> None:
    previous = after
    for position, record in enumerate(found):
        place = record.place
        expected = previous.number + 1
        if place.number == expected and record.before == previous.digest and place.epoch >= previous.epoch:
            previous = place
            continue
        behind = len(found) - position
        if place.number > expected:
            numbers = _numbers(expected, place.number - 1)
            what = f"{numbers} cannot be read, though {_count(behind)} behind can"
        else:
            what = f"commit {place.number} does not continue what was committed before it"
        raise StoreCorruptError(
            f"the journal in {directory} is damaged: {what}. The store's file holds everything up to commit "
            f"{after.number}; {_numbers(expected, found[-1].place.number)}, which may have been confirmed, would be "
            "lost. Restore the journal's files from where they are whole, or a backup of the store "
            "(legato store restore)"
        )


def _numbers(first: int, last: int) -> str:
    return f"commit {first}" if first == last else f"commits {first} to {last}"


def _count(records: int) -> str:
    return "1 commit" if records == 1 else f"{records} commits"


def _whole_records(path: Path, segment: int, identity: bytes, after: int) -> Iterator[Found]:
    """Whole records of a segment with higher numbers than `after`, wherever they are.

    The identity is the key of the digests: bytes of a message that look like a record are none.
    """
    with path.open("rb") as file:
        if file.seek(0, 2) <= HEADER_BYTES:
            return  # It was never used.
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            begin = HEADER_BYTES
            while (begin := mapped.find(RECORD_MAGIC, begin)) >= 0:
                record = None if begin % ALIGNMENT else _record_at(mapped, segment, begin, identity, after)
                if record is None:
                    begin += 1
                else:
                    yield record
                    begin += record.size


def _record_at(mapped: mmap.mmap, segment: int, begin: int, identity: bytes, after: int) -> Found | None:
    fixed = mapped[begin : begin + _HEAD.size]
    if len(fixed) < _HEAD.size:
        return None
    _, length, epoch, number, before = _HEAD.unpack(fixed)
    end = begin + HEAD_BYTES + length
    if number <= after or end > len(mapped):
        return None
    digest = mapped[begin + _HEAD.size : begin + HEAD_BYTES]
    payload = mapped[begin + HEAD_BYTES : end]
    if _digest(identity, fixed, payload) != digest:
        return None
    return Found(Place(epoch, number, digest), before, segment, begin, record_size(length), payload)


def _digest(identity: bytes, fixed: bytes, payload: Bytes) -> bytes:
    hashing = hashlib.blake2b(fixed, digest_size=DIGEST_BYTES, key=identity)
    hashing.update(payload)
    return hashing.digest()
