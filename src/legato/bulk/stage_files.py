"""Stage files: a task's staged rows, in a file of its own until their batch is published or aborted.

A file is a sequence of records, each four bytes of size and msgpack; behind a run are its blocks, the last one is the
digest of the rows, and at the end is a size of 0. It is there as a whole or not at all.

Files of batches that are published are kept for the next ones and written over, as databases do with their logs: the
system need not find memory and room on the disk for them again, which costs several times what writing does. What is
in such a file behind the end is of a former stage.
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from legato.errors import StoreCorruptError, StoreError
from legato.store.directories import make_directory, sync_directory

DIRECTORY = "stages"
"""Inside a store's directory, which primary and backup share."""
SPARE_DIRECTORY = "spare-stages"
"""Beside it: files to be written over."""
SPARE_BYTES_MAX = 512 << 20
SUFFIX = ".stage"
_UNFINISHED_SUFFIX = ".tmp"
"""Of a stage that is being written, or that a process was killed over."""
_ATTEMPT = "+"
"""Between its name and what tells attempts apart; no name has it."""
_SIZE = struct.Struct(">I")


class StageTicket(msgspec.Struct, frozen=True, array_like=True, tag="stage"):
    """A ticket to stage rows, once: sink, batch, file name, expiry."""

    transactional_id: str
    batch: int
    stage: str
    until_s: float
    holder: bytes = b""
    """See `tickets.Ticket`."""
    id: bytes = b""
    """Of this ticket alone."""


class RunRecord(msgspec.Struct, array_like=True, tag="run"):
    """The head of a run of neighbours for a queue."""

    destination: str
    priority: int
    count: int
    size: int
    grouped: bool
    block_bytes: list[int]


class BlockRun(NamedTuple):
    """A run of neighbours for a queue, as packed blocks.

    `pieces` are the blocks; to be staged, they may be in more pieces than these.
    """

    record: RunRecord
    pieces: Sequence[bytes | memoryview]


class MessageRecord(msgspec.Struct, array_like=True, tag="message"):
    """A message that is published by itself: for a topic, for later, or with a duplicate id."""

    destination: str
    topic: bool
    priority: int
    deliver_us: int
    expires_us: int
    duplicate_id: bytes
    group: str
    message_id: str
    body: bytes


class DigestRecord(msgspec.Struct, array_like=True, tag="digest"):
    """The digest of a stage's rows: their number, and 16 bytes (`bulk.digest`)."""

    count: int
    digest: bytes


Record = BlockRun | MessageRecord | DigestRecord

_END = _SIZE.pack(0)
_PIECES_AT_ONCE = 1000
"""In one call of the system, which takes 1,024."""
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(RunRecord | MessageRecord | DigestRecord)
_WORDS = struct.Struct(">QQ")


NAME_BYTES_MAX = 200
"""Of a sink or a stage, as it is spelled in a file's name, which may have 255: numbers and a suffix come to it."""


def directory_of(store: Path, transactional_id: str) -> Path:
    """Directory of one sink's stages.

    Raises:
        ValueError: no directory can have that name.
    """
    return store / DIRECTORY / _spelled(transactional_id)


def _spelled(name: str) -> str:
    """A name that stays inside of its directory, whatever is in it."""
    try:
        # `quote` leaves dots as they are, and `..` would be the directory above.
        spelled = quote(name, safe="").replace(".", "%2E") if not name.strip(".") else quote(name, safe="")
    except UnicodeEncodeError:
        raise ValueError("a name of a sink or stage is no text") from None
    if len(spelled) > NAME_BYTES_MAX:
        raise ValueError(f"a name of a sink or stage has more than {NAME_BYTES_MAX} bytes")
    return spelled or "_"


def path_of(store: Path, transactional_id: str, batch: int, stage: str) -> Path:
    """The file of one stage.

    Raises:
        ValueError: no file can have that name.
    """
    return directory_of(store, transactional_id) / f"{batch:012d}-{_spelled(stage)}{SUFFIX}"


def write_stage(path: Path, records: Iterator[Record]) -> int:
    """Write a stage; it is durable when this returns. Returns how many messages it has."""
    # Of this attempt alone: one before it, which has lost its connection, may not be over yet.
    temporary = path.with_name(f"{path.stem}{_ATTEMPT}{secrets.token_hex(4)}{_UNFINISHED_SUFFIX}")
    count = 0
    try:
        with _open_new(path.parents[2], temporary) as file:
            for record in records:
                said, pieces = (record.record, record.pieces) if isinstance(record, BlockRun) else (record, ())
                spelled = _encoder.encode(said)
                _write_all(file, [_SIZE.pack(len(spelled)), spelled, *pieces])
                count += said.count if isinstance(said, RunRecord) else isinstance(said, MessageRecord)
            _write_all(file, [_END])
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)
    return count


def _open_new(store: Path, path: Path) -> FileIO:
    """A file to write to, and the directory that it is in."""
    make_directory(path.parent)
    try:
        return _open_spare(store, path) or path.open("wb", buffering=0)
    except FileNotFoundError:
        # The directory of a sink that was away for long was swept just now; this one is not old.
        make_directory(path.parent)
        return path.open("wb", buffering=0)


def _open_spare(store: Path, path: Path) -> FileIO | None:
    """A file to be written over, under another name from now on; None if there is none."""
    for spare in (store / SPARE_DIRECTORY).glob(f"*{SUFFIX}"):
        # Another one may take it first, or sweep it: once it is a stage's it is not old.
        with suppress(FileNotFoundError):
            os.utime(spare)
            spare.rename(path)
            return path.open("r+b", buffering=0)
    return None


def _spare(path: Path, store: Path) -> None:
    """Keep a file for another stage if it is wanted and can be kept; else it goes."""
    spares = store / SPARE_DIRECTORY
    # On a full disk, or while others take files, there are better things to do.
    with suppress(OSError):
        spares.mkdir(exist_ok=True)
        if sum(spare.stat().st_size for spare in (path, *spares.iterdir())) <= SPARE_BYTES_MAX:
            path.rename(spares / f"{uuid.uuid4()}{SUFFIX}")
    path.unlink(missing_ok=True)


def _write_all(file: FileIO, pieces: Sequence[bytes | memoryview]) -> None:
    for begin in range(0, len(pieces), _PIECES_AT_ONCE):
        some = pieces[begin : begin + _PIECES_AT_ONCE]
        written = os.writev(file.fileno(), some)
        if written < sum(map(len, some)):
            rest = memoryview(b"".join(some))[written:]
            while rest:
                rest = rest[file.write(rest) :]


def read_stage(path: Path) -> list[Record]:
    """Read a stage's records. Blocks are views of the file, which is not reused before its batch is published.

    Raises:
        StoreError: there is no such stage, or it cannot be read.
    """
    try:
        data = _view(path)
    except OSError as error:
        raise StoreError(f"The stage {path.name} cannot be read: {error.strerror}.") from error
    try:
        return list(_records(data))
    except (struct.error, msgspec.DecodeError) as error:
        raise StoreCorruptError(f"the stage {path.name} is not what was written: {error}") from error


def _records(data: memoryview) -> Iterator[Record]:
    at = 0

    def next_bytes(count: int) -> memoryview:
        nonlocal at
        if count < 0:
            raise msgspec.DecodeError("it goes back")
        found = data[at : at + count]
        at += count
        if len(found) < count:
            raise msgspec.DecodeError("it breaks off")
        return found

    while size := _SIZE.unpack(next_bytes(_SIZE.size))[0]:
        said = _decoder.decode(next_bytes(size))
        yield BlockRun(said, [next_bytes(each) for each in said.block_bytes]) if isinstance(said, RunRecord) else said


def digest_of(records: Sequence[DigestRecord]) -> bytes:
    """The digest of the rows of several stages; it is a sum, so it does not matter which row is in which."""
    parts = [_WORDS.unpack(record.digest) for record in records]
    return _WORDS.pack(*[sum(part[lane] for part in parts) % (1 << 64) for lane in range(2)])


def _view(path: Path) -> memoryview:
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def stages_through(store: Path, transactional_id: str, batch: int) -> list[Path]:
    """The files of what was staged until now for batches up to this one, or was to be."""
    found = []
    for path in directory_of(store, transactional_id).glob("*"):
        number = path.name.partition("-")[0]
        if number.isdecimal() and int(number) <= batch and path.suffix in (SUFFIX, _UNFINISHED_SUFFIX):
            found.append(path)
    return found


def remove_stages(store: Path, paths: Sequence[Path]) -> None:
    """Remove files of `stages_through`: their batches are published, or never will be."""
    for path in paths:
        if path.suffix == _UNFINISHED_SUFFIX:
            # Somebody may be writing to it: nobody else is to write over it.
            path.unlink(missing_ok=True)
        # It may have become whole meanwhile.
        if (whole := path.with_name(path.stem.partition(_ATTEMPT)[0] + SUFFIX)).exists():
            _spare(whole, store)


def discard_stages(store: Path, transactional_id: str, batch: int, stages: Sequence[str]) -> None:
    """Remove single stages."""
    for stage in stages:
        path_of(store, transactional_id, batch, stage).unlink(missing_ok=True)


def sweep(store: Path, older_than_s: float) -> int:
    """Remove stages that nobody has written to for so long, and files to be written over that nobody wanted.

    Returns:
        How many files that were.
    """
    before_s = time.time() - older_than_s
    return sum(
        _sweep(directory, before_s) for directory in (*(store / DIRECTORY).glob("*"), *store.glob(SPARE_DIRECTORY))
    )


def _sweep(directory: Path, before_s: float) -> int:
    """Remove the old files of a directory, and itself if it is empty then and no file has come to it."""
    swept = 0
    is_old = _is_old(directory, before_s)
    for path in directory.glob("*"):
        # A stage that becomes whole, or is published, has another name from one moment to the next.
        with suppress(FileNotFoundError):
            if _is_old(path, before_s):
                path.unlink()
                swept += 1
    if is_old:
        with suppress(OSError):
            directory.rmdir()
    return swept


def _is_old(path: Path, before_s: float) -> bool:
    try:
        return path.stat().st_mtime < before_s
    except FileNotFoundError:
        return False
