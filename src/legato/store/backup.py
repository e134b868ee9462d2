"""Backups of a store: copied while a broker serves, verified, and restored.

A copy is of one commit, whichever processes commit meanwhile, and compact: no free pages. Ledger segments go with it as
far as they tell of that commit and of earlier ones. Nothing here needs the store's lock.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from legato.core.facts import Kind
from legato.core.records import QueueRecord
from legato.errors import StoreCorruptError, StoreError
from legato.store.base import FORMAT_VERSION
from legato.store.directories import make_directory, sync_directory
from legato.store.environment import DATA_NAME, LOCK_TABLE_NAME, lmdb_errors
from legato.store.lanes import LANE_SHIFT
from legato.store.lmdb import LmdbStore
from legato.store.segment_locks import being_read
from legato.store.segment_names import spans

MANIFEST_NAME = "backup.json"
LEDGER_NAME = "ledger"
USERS_NAME = "users"
"""Without it a restored broker would let in whoever is on its machine."""
_PARTIAL = ".partial"
_READ_BYTES = 1 << 20
_MESSAGES_AT_ONCE = 1_000
_BYTES_AT_ONCE = 8 << 20
_RECORDS_AT_ONCE = 1_000
_COUNTED = (Kind.QUEUE, Kind.SUBSCRIPTION, Kind.SCHEDULE)


class Manifest(msgspec.Struct):
    """What a backup is of."""

    format: int
    epoch: int
    log_position: int
    """Of the last commit in it."""
    taken_us: int
    """When it was begun, microseconds since 1970."""
    data_bytes: int
    data_sha256: str
    segments: dict[str, str] = {}
    """Ledger segments that belong to it, by name, each with its SHA-256."""
    users_sha256: str = ""
    """Of the users file, if there is one in the store's directory."""


class Contents(msgspec.Struct):
    """What a store holds, as counted by `verify`."""

    epoch: int
    log_position: int
    queues: int = 0
    messages: int = 0
    message_bytes: int = 0
    log_records: int = 0


class _Snapshot(LmdbStore):
    """A store as of one commit, until it is closed: everything is read in one transaction."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, read_only=True)
        with lmdb_errors(f"reading the store in {path}"):
            self._txn = self._env.begin(buffers=True)

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        with lmdb_errors(f"reading the store in {self.path}"):
            yield self._txn

    def close(self) -> None:
        """End the transaction, and close the files."""
        self._txn.abort()
        super().close()


def take(store: Path, to: Path, *, ledger: Path | None = None) -> Manifest:
    """Copy the store in the directory `store` into the new directory `to`, durably; brokers may serve meanwhile.

    Args:
        ledger: the directory of its segments; None: they are not wanted.

    Raises:
        StoreError: there is something at `to` already, there is no room, or the store cannot be read.
    """
    taken_us = time.time_ns() // 1000
    # No compaction removes segments meanwhile: what it made of them may end after the last commit of the copy.
    with _new_directory(to) as partial, nullcontext() if ledger is None else being_read(ledger):
        source = LmdbStore(store, read_only=True)
        try:
            source.copy_to(partial)
        finally:
            source.close()
        copied = LmdbStore(partial, read_only=True)
        try:
            meta = copied.meta()
        finally:
            copied.close()
        _only_data(partial)
        data = partial / DATA_NAME
        manifest = Manifest(
            FORMAT_VERSION,
            meta.epoch,
            meta.log_position,
            taken_us,
            data.stat().st_size,
            _digest(data),
            {} if ledger is None else _copy_segments(ledger, partial / LEDGER_NAME, meta.log_position),
            _copy(users, partial / USERS_NAME) if (users := store / USERS_NAME).is_file() else "",
        )
        _write(partial / MANIFEST_NAME, msgspec.json.format(msgspec.json.encode(manifest)))
        _sync(data)
    return manifest


def restore(backup: Path, store: Path) -> Manifest:
    """Make the new store `store` of a backup, whose files are compared with their digests on the way.

    Raises:
        StoreError: there is something at `store` already, or no room.
        StoreCorruptError: the backup is not what was written.
    """
    manifest = read_manifest(backup)
    with _new_directory(store) as partial:
        _copy(backup / DATA_NAME, partial / DATA_NAME, manifest.data_sha256)
        if manifest.segments:
            (partial / LEDGER_NAME).mkdir()
            for name, digest in manifest.segments.items():
                _copy(backup / LEDGER_NAME / name, partial / LEDGER_NAME / name, digest)
            sync_directory(partial / LEDGER_NAME)
        if manifest.users_sha256:
            _copy(backup / USERS_NAME, partial / USERS_NAME, manifest.users_sha256)
        LmdbStore(partial, read_only=True).close()
        _only_data(partial)
    return manifest


def verify(path: Path) -> Contents:
    """Read all of a store or of a backup, as of one commit: each message, each record of the log.

    Of a backup, the files are compared with their digests first.

    Raises:
        StoreCorruptError: something is not as it was written; the message says what.
        StoreError: it cannot be read.
    """
    is_backup = (path / MANIFEST_NAME).exists()
    if is_backup:
        manifest = read_manifest(path)
        _compare(path / DATA_NAME, _digest(path / DATA_NAME), manifest.data_sha256)
        for name, digest in manifest.segments.items():
            _compare(path / LEDGER_NAME / name, _digest(path / LEDGER_NAME / name), digest)
        if manifest.users_sha256:
            _compare(path / USERS_NAME, _digest(path / USERS_NAME), manifest.users_sha256)
    snapshot = _Snapshot(path)
    try:
        meta = snapshot.meta()
        contents = Contents(meta.epoch, meta.log_position)
        for record in snapshot.queues():
            _read_queue(snapshot, record, contents)
        _read_log(snapshot, contents)
    finally:
        snapshot.close()
        if is_backup:
            _only_data(path)
    return contents


def read_manifest(backup: Path) -> Manifest:
    """The manifest of a backup.

    Raises:
        StoreError: there is none, or it is of another version.
    """
    try:
        manifest = msgspec.json.decode((backup / MANIFEST_NAME).read_bytes(), type=Manifest)
    except FileNotFoundError:
        raise StoreError(f"{backup} is no backup: it has no {MANIFEST_NAME}.") from None
    except (OSError, msgspec.DecodeError) as error:
        raise StoreCorruptError(f"{backup / MANIFEST_NAME} cannot be read: {error}.") from None
    if any(Path(name).name != name for name in manifest.segments):
        raise StoreCorruptError(f"{backup / MANIFEST_NAME} names files outside of the backup.")
    return manifest


def _read_queue(store: LmdbStore, record: QueueRecord, contents: Contents) -> None:
    contents.queues += 1
    if record.kind not in _COUNTED:
        return
    count = 0
    for lane in (0, *record.lanes):
        after = lane << LANE_SHIFT
        while found := store.messages(record.queue, after, _MESSAGES_AT_ONCE, _BYTES_AT_ONCE):
            after = found[-1].seq
            count += len(found)
            contents.message_bytes += sum(len(message.body) for message in found)
    contents.messages += count
    if count != record.stored - record.consumed:
        raise StoreCorruptError(
            f"{store.path}: {record.name} holds {count} messages; by its counters there are "
            f"{record.stored - record.consumed}."
        )


def _read_log(store: LmdbStore, contents: Contents) -> None:
    first, last = store.log_range()
    after = first - 1
    while after < last:
        found = store.log(after, _RECORDS_AT_ONCE)
        for position, _ in found:
            if position != after + 1:
                break
            after = position
            contents.log_records += 1
        else:
            if found:
                continue
        raise StoreCorruptError(f"{store.path}: its log lacks commit {after + 1}; it should reach to {last}.")


@contextmanager
def _new_directory(path: Path) -> Iterator[Path]:
    """A directory that gets the name `path` when all that belongs into it is there and durable; its owner's only."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise StoreError(f"There is something at {path} already: name a directory that is new or empty.")
    partial = path.with_name(path.name + _PARTIAL)
    others_may = os.umask(0o077)
    try:
        make_directory(partial.parent)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        yield partial
        sync_directory(partial)
        partial.rename(path)
        sync_directory(path.parent)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        os.umask(others_may)
        shutil.rmtree(partial, ignore_errors=True)


def _copy_segments(ledger: Path, to: Path, through: int) -> dict[str, str]:
    """Those that tell of commits up to `through`: a restored store numbers its next commits from there on."""
    names = sorted(span.file_name for span in spans(ledger) if span.last <= through)
    if not names:
        return {}
    to.mkdir()
    digests = {name: _copy(ledger / name, to / name) for name in names}
    sync_directory(to)
    return digests


def _copy(source: Path, to: Path, expected: str = "") -> str:
    """Copy a file durably; returns its digest."""
    digest = hashlib.sha256()
    try:
        with source.open("rb") as reading, to.open("xb") as writing:
            while data := reading.read(_READ_BYTES):
                digest.update(data)
                writing.write(data)
            writing.flush()
            os.fsync(writing.fileno())
    except FileNotFoundError as error:
        raise StoreCorruptError(f"{error.filename} is missing.") from None
    if expected:
        _compare(source, digest.hexdigest(), expected)
    return digest.hexdigest()


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise StoreCorruptError(f"{path} is missing.") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.") from error


def _compare(path: Path, found: str, expected: str) -> None:
    if found != expected:
        raise StoreCorruptError(f"{path} is not what was written: use another backup.")


def _only_data(directory: Path) -> None:
    """Without the table of readers that LMDB made when it was opened: nobody else uses what is there."""
    (directory / LOCK_TABLE_NAME).unlink(missing_ok=True)


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
