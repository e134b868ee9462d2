"""Seeding: the store of a broker made of a copy of another's, where the log does not reach back to it any more.

A copy is a backup (`legato store backup`) or a store, from which a broker may serve meanwhile. What the store had
before is kept beside it.
"""

from __future__ import annotations

import logging
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from legato.errors import LegatoError, LogError, LogTrimmedError, LogUnavailableError, StoreError
from legato.quoting import quoted, sentence
from legato.replication.log import Position, ReplicatedLog
from legato.store.backup import take
from legato.store.backup_files import (
    MANIFEST_NAME,
    OWNERS_ONLY,
    USERS_NAME,
    VERSIONS_NAME,
    copy_file,
    read_manifest,
)
from legato.store.directories import sync_directory
from legato.store.environment import DATA_NAME, LOCK_TABLE_NAME
from legato.store.lmdb import LmdbStore

log = logging.getLogger("legato.replication")

COMING = ".seeding"
REPLACED = ".replaced-at-"
"""And the number of its last commit: what the store was before."""
_NAMES = (USERS_NAME, VERSIONS_NAME, DATA_NAME)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of a store, or one that is served.

    Args:
        path: its directory.
        epoch: of its last commit.
        commit: the number of its last commit.
        position: where it is on the log of its group; None if its last commit came from no log.
        is_backup: it has a manifest, with which its files are compared.
        origin: where it was fetched from, if from elsewhere, into a directory beside the store, and for it alone.
    """

    path: Path
    epoch: int
    commit: int
    position: Position | None
    is_backup: bool
    origin: str = ""


def look_at(path: Path) -> Snapshot:
    """What there is in a directory.

    Raises:
        StoreError: no store, or one that cannot be read.
    """
    had_table = (path / LOCK_TABLE_NAME).exists()
    is_backup = (path / MANIFEST_NAME).exists()
    store = LmdbStore(path, read_only=True)
    try:
        meta = store.meta()
    finally:
        store.close()
        if is_backup and not had_table:
            with suppress(OSError):  # Where nothing can be written LMDB made none.
                (path / LOCK_TABLE_NAME).unlink()
    applied = meta.applied
    position = Position(applied.number, applied.digest) if applied is not None and applied.number else None
    return Snapshot(path, meta.epoch, meta.log_position, position, is_backup)


def newest_on(replicated_log: ReplicatedLog, directory: Path) -> Snapshot:
    """The newest of the backups in a directory behind which the log goes on.

    Args:
        replicated_log: of the group.
        directory: each backup is a directory in it.

    Raises:
        LogTrimmedError: there is none; it says what is there.
        LogUnavailableError: the log does not answer.
    """
    found: list[Snapshot] = []
    refused: list[str] = []
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        try:
            if (path / MANIFEST_NAME).exists():
                found.append(look_at(path))
        except StoreError as error:
            refused.append(f"{path.name}: {error}")
        except OSError as error:  # Backups are for their owner alone.
            refused.append(f"{path.name}: {error.strerror}")
    for snapshot in sorted(found, key=lambda each: each.commit, reverse=True):
        if snapshot.position is None:
            refused.append(f"{snapshot.path.name}: its last commit came from no log")
            continue
        try:
            replicated_log.read(snapshot.position, 1)
            return snapshot
        except LogUnavailableError:
            raise
        except LogError as error:
            refused.append(f"{snapshot.path.name}: {error}")
    why = f" ({'; '.join(refused)})" if refused else ""
    raise LogTrimmedError(f"{directory} has no backup of this group behind which the log goes on{why}")


def seed(store: Path, source: Snapshot) -> Path | None:
    """Put a copy of a snapshot in the place of a store, on which no broker runs.

    Returns:
        The file with what the store was before; None if it was empty.

    Raises:
        StoreError: the snapshot cannot be read, or there is no room for it. The store is as it was.
    """
    store.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove_coming(store)
    try:
        _copy(store, source)
        before = _put_aside(store)
        # The store's file is last: it is never there without who may use it, and the versions of its epochs.
        for name in _NAMES:
            if _coming(store, name).exists():
                _coming(store, name).rename(store / name)
            elif name == VERSIONS_NAME:
                (store / name).unlink(missing_ok=True)
        sync_directory(store)
    except OSError as error:
        raise StoreError(f"the store in {store} cannot be seeded: {error.strerror or error}") from error
    finally:
        _remove_coming(store)
    origin = source.origin or source.path
    log.info("= %s is a copy of %s, as of commit %d", quoted(store), quoted(origin), source.commit)
    return before


def remove_replaced(store: Path, kept: Path) -> None:
    """Remove what the store was before earlier copies than the last; errors are logged.

    Args:
        kept: what it was before the last.
    """
    for path in store.glob(f"{DATA_NAME}{REPLACED}*"):
        if path != kept:
            try:
                path.unlink()
            except OSError as error:
                log.warning("! %s cannot be removed: %s", quoted(path), sentence(error))
    log.info("= what the store was before is in %s until the next copy; remove it when all is well", quoted(kept))


def _coming(store: Path, name: str) -> Path:
    """What is to be a file of a store, until all of the copy is there."""
    return store / (name + COMING)


def _remove_coming(store: Path) -> None:
    for name in _NAMES:
        _coming(store, name).unlink(missing_ok=True)


def _copy(store: Path, source: Snapshot) -> None:
    """Make what is to be the store's files, durably, their owner's only."""
    path = source.path
    taken = None if source.is_backup else store / f"copy{COMING}"
    try:
        if taken is not None:
            shutil.rmtree(taken, ignore_errors=True)
            take(path, taken)
            path = taken
        manifest = read_manifest(path)
        data = _coming(store, DATA_NAME)
        if taken is not None or source.origin:
            # It was made for this alone, beside the store.
            (path / DATA_NAME).rename(data)
        else:
            copy_file(path / DATA_NAME, data, manifest.data_sha256)
        if manifest.users_sha256 and not (store / USERS_NAME).exists():
            copy_file(path / USERS_NAME, _coming(store, USERS_NAME), manifest.users_sha256)
        if (path / VERSIONS_NAME).is_file():
            copy_file(path / VERSIONS_NAME, _coming(store, VERSIONS_NAME))
        for name in _NAMES:
            if _coming(store, name).exists():
                _coming(store, name).chmod(OWNERS_ONLY)
    finally:
        if taken is not None:
            shutil.rmtree(taken, ignore_errors=True)


def _put_aside(store: Path) -> Path | None:
    """Give what there is a second name, and let nobody take its table of readers for that of the new store."""
    data = store / DATA_NAME
    before: Path | None = None
    if data.exists():
        try:
            commit = look_at(store).commit
        except LegatoError as error:
            log.warning("! what is in %s cannot be read: %s", quoted(store), sentence(error))
            commit = -1
        if commit:
            before = store / f"{DATA_NAME}{REPLACED}{commit}"
            before.unlink(missing_ok=True)
            before.hardlink_to(data)
    (store / LOCK_TABLE_NAME).unlink(missing_ok=True)
    return before
