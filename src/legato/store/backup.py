"""Backups of a store: copied while a broker serves, verified, and restored.

A copy is of one commit, whichever processes commit meanwhile, and compact: no free pages. Ledger segments go with it as
far as they tell of that commit and of earlier ones. Nothing here needs the store's lock.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import msgspec

from legato import limits
from legato.amqp.codec.stubs import whole_size
from legato.core.facts import Kind
from legato.core.records import QueueRecord
from legato.errors import StoreCorruptError, StoreError, StoreFormatError, StoreFullError
from legato.store.backup_files import (
    LEDGER_NAME,
    MANIFEST_NAME,
    USERS_NAME,
    Manifest,
    compare_digests,
    copy_file,
    copy_users,
    copy_versions,
    file_digest,
    new_directory,
    read_manifest,
    sync_file,
    write_manifest,
)
from legato.store.base import FORMAT_VERSION
from legato.store.consistency import Consistency
from legato.store.directories import sync_directory
from legato.store.duplicates import kept_ids
from legato.store.environment import DATA_NAME, LOCK_TABLE_NAME, copy_data, lmdb_errors, open_files, read_format
from legato.store.journal_state import close_journal
from legato.store.lanes import LANE_SHIFT
from legato.store.lmdb import LmdbStore
from legato.store.migration import State, migrate, read_state
from legato.store.segment_locks import being_read
from legato.store.segment_names import spans
from legato.store.settling import settle_store

_MESSAGES_AT_ONCE = 1_000
_BYTES_AT_ONCE = 8 << 20
_RECORDS_AT_ONCE = 1_000
_COUNTED = (Kind.QUEUE, Kind.SUBSCRIPTION, Kind.SCHEDULE)


class Contents(msgspec.Struct):
    """What a store holds, as counted by `verify`."""

    epoch: int
    log_position: int
    queues: int = 0
    messages: int = 0
    message_bytes: int = 0
    """Of large messages too, with their bodies."""
    log_records: int = 0
    format: int = FORMAT_VERSION
    """If it is a former one, the rest was counted in a copy that was migrated."""


class Snapshot(LmdbStore):
    """A store as of one commit, until it is closed: everything is read in one transaction."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, read_only=True)
        with lmdb_errors(f"reading the store in {path}"):
            self._txn = self._env.begin(buffers=True)

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        with lmdb_errors(f"reading the store in {self.path}"):
            yield self._txn

    def kept_ids(self, queue: int) -> Iterator[tuple[int, bytes]]:
        """The duplicate ids that a queue remembers: position, and what is kept of each."""
        with self._reading() as txn, txn.cursor(db=self._databases.duplicate_places) as cursor:
            yield from kept_ids(cursor, queue)

    def check_consistency(self) -> None:
        """See that the databases fit one another.

        Raises:
            StoreCorruptError: they do not; the message says what.
        """
        with self._reading() as txn:
            Consistency(txn, self._databases, self.path).check()

    def close(self) -> None:
        """End the transaction, and close the files."""
        self._txn.abort()
        super().close()


def take(store: Path, to: Path, *, ledger: Path | None = None) -> Manifest:
    """Copy the store in the directory `store` into the new directory `to`, durably; brokers may serve meanwhile.

    A store of a former format is copied as it is.

    Args:
        ledger: the directory of its segments; None: they are not wanted.

    Raises:
        StoreError: there is something at `to` already, there is no room, or the store cannot be read.
    """
    taken_us = time.time_ns() // 1000
    # No compaction removes segments meanwhile: what it made of them may end after the last commit of the copy.
    with new_directory(to) as partial, nullcontext() if ledger is None else being_read(ledger):
        settle_store(store)
        with _files(store) as environment:
            copy_data(environment, partial, to)
        copy_versions(store, partial)
        segments = {} if ledger is None else _copy_segments(ledger, partial / LEDGER_NAME, _state(partial).log_position)
        return complete(partial, taken_us, segments, copy_users(store, partial))


def complete(partial: Path, taken_us: int, segments: dict[str, str], users_sha256: str) -> Manifest:
    """Make a directory with a copy of a store's file a backup: say what is in it, durably.

    Args:
        taken_us: when the copy was begun, microseconds since 1970.
        segments: of the ledger, which are there, by name, with their digests.
        users_sha256: digest of the users file, if that is there.

    Raises:
        StoreError: the copy cannot be used, or there is no room.
    """
    _forget_journal(partial)
    with _files(partial) as copied:
        version, state = read_format(copied, partial), read_state(copied)
    _only_data(partial)
    data = partial / DATA_NAME
    manifest = Manifest(
        version,
        state.epoch,
        state.log_position,
        taken_us,
        data.stat().st_size,
        file_digest(data),
        segments,
        users_sha256,
    )
    write_manifest(partial, manifest)
    sync_file(data)
    return manifest


def restore(backup: Path, store: Path) -> Manifest:
    """Make the new store `store` of a backup, whose files are compared with their digests on the way.

    Raises:
        StoreError: there is something at `store` already, or no room.
        StoreCorruptError: the backup is not what was written.
        StoreFormatError: a newer version wrote it.
    """
    manifest = read_manifest(backup)
    with new_directory(store) as partial:
        copy_file(backup / DATA_NAME, partial / DATA_NAME, manifest.data_sha256)
        if manifest.segments:
            (partial / LEDGER_NAME).mkdir()
            for name, digest in manifest.segments.items():
                copy_file(backup / LEDGER_NAME / name, partial / LEDGER_NAME / name, digest)
            sync_directory(partial / LEDGER_NAME)
        if manifest.users_sha256:
            copy_file(backup / USERS_NAME, partial / USERS_NAME, manifest.users_sha256)
        copy_versions(backup, partial)
        with _files(partial, store) as environment:
            read_format(environment, partial)
        _only_data(partial)
    return manifest


def verify(path: Path) -> Contents:
    """Read all of a store or of a backup, as of one commit: each message with all parts of its body, the indexes by
    which messages are found, each record of the log.

    Of a backup, the files are compared with their digests first. A store of a former format is migrated in a copy, in
    the system's directory for temporary files, and the copy is read: what is verified is what a broker would serve.

    Raises:
        StoreCorruptError: something is not as it was written; the message says what.
        StoreError: it cannot be read.
    """
    is_backup = (path / MANIFEST_NAME).exists()
    if is_backup:
        manifest = read_manifest(path)
        compare_digests(path / DATA_NAME, file_digest(path / DATA_NAME), manifest.data_sha256)
        for name, digest in manifest.segments.items():
            compare_digests(path / LEDGER_NAME / name, file_digest(path / LEDGER_NAME / name), digest)
        if manifest.users_sha256:
            compare_digests(path / USERS_NAME, file_digest(path / USERS_NAME), manifest.users_sha256)
    else:
        settle_store(path)
    try:
        return _read_all(path, path)
    except StoreFormatError as error:
        if not error.former:
            raise
        with _migrated(path) as copy:
            contents = _read_all(copy, path)
        contents.format = error.former
        return contents
    finally:
        if is_backup:
            _only_data(path)


def _read_all(path: Path, named: Path) -> Contents:
    """Read all of the store in `path`; errors name another one."""
    snapshot = Snapshot(path)
    snapshot.path = named
    try:
        meta = snapshot.meta()
        contents = Contents(meta.epoch, meta.log_position)
        for record in snapshot.queues():
            _read_queue(snapshot, record, contents)
        snapshot.check_consistency()
        _read_log(snapshot, contents)
    finally:
        snapshot.close()
    return contents


@contextmanager
def _migrated(path: Path) -> Iterator[Path]:
    """A copy of a store of a former format, as a broker would make it before it serves."""
    with tempfile.TemporaryDirectory(prefix="legato-verify-") as directory:
        copy = Path(directory)
        try:
            with _files(path) as environment:
                copy_data(environment, copy, copy)
            _forget_journal(copy)
            migrate(copy, keep=False)
            # It completes an early version of the present format.
            LmdbStore(copy).close()
        except StoreFullError as error:
            raise StoreFullError(
                f"a copy of the store in {path} is migrated to be verified, and there is no room for it in "
                f"{copy.parent}: name a directory with more room in the variable TMPDIR"
            ) from error
        yield copy


@contextmanager
def _files(path: Path, named: Path | None = None) -> Iterator[Any]:
    """The environment of a store of any format that is known, to be read; errors may name another directory."""
    with lmdb_errors(f"the store in {named or path}"):
        environment = open_files(path, map_bytes=limits.STORE_MAP_BYTES_DEFAULT, sync=True, read_only=True)
        try:
            read_format(environment, path)
            yield environment
        finally:
            environment.close()


def _state(path: Path) -> State:
    """How far a copy is."""
    with _files(path) as environment:
        return read_state(environment)


def _forget_journal(partial: Path) -> None:
    """A copy is whole without a journal."""
    with lmdb_errors(f"the copy in {partial}"):
        environment = open_files(partial, map_bytes=limits.STORE_MAP_BYTES_DEFAULT, sync=True, read_only=False)
        try:
            read_format(environment, partial)
            meta = environment.open_db(b"meta", create=False)
            with environment.begin(write=True) as txn:
                close_journal(txn, meta)
        finally:
            environment.close()


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
            contents.message_bytes += sum(whole_size(message.body) for message in found)
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


def _copy_segments(ledger: Path, to: Path, through: int) -> dict[str, str]:
    """Those that tell of commits up to `through`: a restored store numbers its next commits from there on."""
    try:
        names = sorted(span.file_name for span in spans(ledger) if span.last <= through)
    except OSError as error:
        raise StoreError(f"{ledger} cannot be read: {error.strerror}.") from error
    if not names:
        return {}
    to.mkdir()
    digests = {name: copy_file(ledger / name, to / name) for name in names}
    sync_directory(to)
    return digests


def _only_data(directory: Path) -> None:
    """Without the table of readers that LMDB made when it was opened: nobody else uses what is there."""
    with suppress(OSError):  # Where nothing can be written LMDB made none.
        (directory / LOCK_TABLE_NAME).unlink()
