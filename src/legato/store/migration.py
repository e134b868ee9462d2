"""Migration of a store to the present format, before a broker serves from it: a kept copy, then the steps.

1. A copy of the former store is kept in the store's directory. It is a backup as `legato store backup` makes it.
2. Each step is one transaction, with the new format in it: a process that is killed leaves the former or the next one.
3. While the copy is made and the step is written nobody else can commit: LMDB's lock of writers is held throughout.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from legato import __version__, limits
from legato.errors import StoreCorruptError, StoreError, StoreFormatError, StoreFullError
from legato.store.backup_files import (
    PARTIAL,
    Manifest,
    copy_users,
    file_digest,
    new_directory,
    read_manifest,
    sync_file,
    write_manifest,
)
from legato.store.base import FORMAT_VERSION
from legato.store.environment import (
    DATA_NAME,
    DATABASES_MAX,
    FORMAT_KEY,
    KEPT_NAME,
    STATE_KEY,
    WRITTEN_BY_KEY,
    copy_data,
    lmdb_errors,
    open_databases,
    open_files,
    read_format,
    used_bytes,
)
from legato.store.format_steps import STEPS
from legato.store.journal_state import read_journal_state

log = logging.getLogger("legato.migration")

SPARE_BYTES = 16 << 20
"""Room that must be left on the disk when all is written."""
SPARE_MAP_BYTES = 1 << 20
"""Room that must be left in the map."""
META = "meta"
PROGRESS_ENTRIES = 10_000
"""After so many entries of a database it is said how far a step has come."""


class Stage(StrEnum):
    """How far a migration has come; tests end the process there."""

    BEGUN = "begun"
    COPIED = "copied"
    """The copy is written, and has not got its name."""
    KEPT = "kept"
    WRITTEN = "written"
    """The next format is written, and not committed."""
    COMMITTED = "committed"


class State(msgspec.Struct):
    """What all formats say of a store as a whole."""

    epoch: int
    log_position: int


def read_state(environment: Any) -> State:
    """The last epoch and commit of a store of any format."""
    database = environment.open_db(META.encode(), create=False)
    with environment.begin() as txn:
        return _decode_state(txn.get(STATE_KEY, db=database))


def migrate(
    path: Path,
    *,
    map_bytes: int = limits.STORE_MAP_BYTES_DEFAULT,
    keep: bool = True,
    reached: Callable[[Stage], object] = lambda stage: None,
    progress: Callable[[str], object] = lambda said: None,
) -> None:
    """Bring the store in `path` to the present format, if it has a former one; nobody may serve from it meanwhile.

    A process that is killed in it can begin again, at any time.

    Args:
        map_bytes: as of `LmdbStore`.
        keep: whether a copy of the former store is kept in the directory `before-format-N`.
        reached: is called at each stage.
        progress: is told in words how far it has come, for people.

    Raises:
        StoreFullError: the disk has no room for it; nothing was changed.
        StoreFormatError: there is no way from its format to the present one.
        StoreError: it cannot be read or written, or `map_bytes` is too small; the message says what to do.
    """
    with lmdb_errors(f"migrating the store in {path}"):
        environment = open_files(path, map_bytes=map_bytes, sync=True, read_only=False)
        try:
            former = read_format(environment, path)
            if former == FORMAT_VERSION:
                return
            _refuse_open_journal(environment, path, former)
            log.info("= the store in %s has format %d: it is migrated to format %d", path, former, FORMAT_VERSION)
            began_s = time.monotonic()
            kept: Path | None = None
            while (version := read_format(environment, path)) != FORMAT_VERSION:
                kept = _take_step(environment, path, version, keep, map_bytes, reached, progress) or kept
                reached(Stage.COMMITTED)
            took_s = time.monotonic() - began_s
            log.info("= the store in %s has format %d now, after %.1f s", path, FORMAT_VERSION, took_s)
            if kept is not None:
                log.info(
                    "= the store as it was in format %d is kept in %s; delete it when all is well. To go back: "
                    "stop all brokers, 'legato store restore %s NEW', and start the former version on the store NEW",
                    read_manifest(kept).format,
                    kept,
                    kept,
                )
        finally:
            environment.close()


def _refuse_open_journal(environment: Any, path: Path, former: int) -> None:
    """What a journal holds is applied by the version that wrote it."""
    (meta,) = open_databases(environment, ["meta"])
    with environment.begin() as txn:
        if read_journal_state(txn, meta).is_open:
            raise StoreFormatError(
                f"the store in {path} has format {former} and a journal that is not in its file yet: serve it with the "
                "version of Legato that wrote it, stop that broker (not with kill -9), and migrate it then"
            )


def _take_step(
    environment: Any,
    path: Path,
    version: int,
    keep: bool,
    map_bytes: int,
    reached: Callable[[Stage], object],
    progress: Callable[[str], object],
) -> Path | None:
    """Go to the next format; returns the directory of the copy that is kept."""
    step = STEPS[version]
    names = _database_names(environment)
    # A handle that is opened in a transaction is that transaction's until its end.
    handles = {name: environment.open_db(name.encode(), create=False) for name in names}
    with environment.begin(write=True, buffers=True) as writing, environment.begin(buffers=True) as reading:
        # Another process may have been faster, if the lock of the store is not what it should be.
        if bytes(reading.get(FORMAT_KEY, db=handles[META])) != str(version).encode():
            return None
        live_bytes = _live_bytes(reading, handles) + environment.stat()["psize"] * 2
        state = _decode_state(reading.get(STATE_KEY, db=handles[META]))
        there = _kept_copy(path, state) if keep else None
        grows_bytes = live_bytes if step.rewrites else 0
        _see_room(path, version, grows_bytes + (live_bytes if keep and there is None else 0))
        if used_bytes(environment) + grows_bytes + SPARE_MAP_BYTES > map_bytes:
            raise StoreError(
                f"the store in {path} has format {version} and cannot be migrated: the map is too small; enlarge "
                f"store.map_bytes to {used_bytes(environment) + grows_bytes + 2 * SPARE_BYTES} or more"
            )
        reached(Stage.BEGUN)
        if keep and there is None:
            progress(f"copying the store as it was, {_mib(live_bytes)}")
            there = _keep(environment, path, version, state, reached)
        reached(Stage.KEPT)
        after = _After(environment, writing, handles)
        before = _Before(reading, handles, lambda said: progress(f"format {version + 1}, {said}"))
        step.write(before, after, time.time_ns() // 1000)
        progress(f"format {version + 1}, writing to the disk")
        after.put(META, FORMAT_KEY, str(version + 1).encode())
        after.put(META, WRITTEN_BY_KEY, __version__.encode())
        reached(Stage.WRITTEN)
    return there


def _see_room(path: Path, version: int, wanted_bytes: int) -> None:
    wanted_bytes += SPARE_BYTES
    disk = os.statvfs(path)
    free_bytes = disk.f_bavail * disk.f_frsize
    if free_bytes < wanted_bytes:
        raise StoreFullError(
            f"the store in {path} has format {version} and is to be migrated to format {FORMAT_VERSION}, for which "
            f"{_mib(wanted_bytes)} must be free on its disk (a copy of the former store is kept); "
            f"{_mib(free_bytes)} are: make room there"
        )


def _mib(size: int) -> str:
    return f"{max(size, 0) / (1 << 20):,.0f} MiB"


def _kept_copy(path: Path, state: State) -> Path | None:
    """The copy of the same store that an earlier try has kept. Each broker begins an epoch, so the epoch tells."""
    for directory in sorted(path.glob(KEPT_NAME.format(FORMAT_VERSION) + "*")):
        if directory.name.endswith(PARTIAL):
            continue
        try:
            manifest = read_manifest(directory)
            size = (directory / DATA_NAME).stat().st_size
        except (StoreError, OSError):
            continue  # Somebody has removed a part of it.
        if (manifest.epoch, manifest.log_position, manifest.data_bytes) == (state.epoch, state.log_position, size):
            return directory
    return None


def _keep(environment: Any, path: Path, version: int, state: State, reached: Callable[[Stage], object]) -> Path:
    kept = path / KEPT_NAME.format(FORMAT_VERSION)
    number = 1
    while kept.exists():
        # Of a former migration, after which somebody went back.
        number += 1
        kept = path / f"{KEPT_NAME.format(FORMAT_VERSION)}-{number}"
    taken_us = time.time_ns() // 1000
    log.info("= the store in %s is copied to %s, which can take as long as a few copies of its file", path, kept)
    with new_directory(kept) as partial:
        copy_data(environment, partial, kept)
        data = partial / DATA_NAME
        sync_file(data)
        size, digest, users = data.stat().st_size, file_digest(data), copy_users(path, partial)
        manifest = Manifest(version, state.epoch, state.log_position, taken_us, size, digest, users_sha256=users)
        write_manifest(partial, manifest)
        reached(Stage.COPIED)
    return kept


def _database_names(environment: Any) -> list[str]:
    with environment.begin() as txn, txn.cursor() as cursor:
        return [bytes(key).decode() for key, _ in cursor]


def _live_bytes(txn: Any, handles: dict[str, Any]) -> int:
    stats = [txn.stat(handle) for handle in handles.values()]
    return sum((stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]) * stat["psize"] for stat in stats)


def _decode_state(value: bytes | memoryview) -> State:
    try:
        return msgspec.msgpack.decode(value, type=State)
    except msgspec.DecodeError as error:
        raise StoreCorruptError(f"the state of the store cannot be read: {error}") from error


class _Before:
    """See `format_steps.Before`."""

    def __init__(self, txn: Any, handles: dict[str, Any], progress: Callable[[str], object]) -> None:
        self._txn = txn
        self._handles = handles
        self._progress = progress

    def items(self, database: str) -> Iterator[tuple[memoryview, memoryview]]:
        handle = self._handles[database]
        entries = self._txn.stat(handle)["entries"]
        with self._txn.cursor(db=handle) as cursor:
            for done, item in enumerate(cursor):
                if done % PROGRESS_ENTRIES == 0:
                    self._progress(f"{database}: {done * 100 // max(entries, 1)} %")
                yield item


class _After:
    """See `format_steps.After`."""

    def __init__(self, environment: Any, txn: Any, handles: dict[str, Any]) -> None:
        self._environment = environment
        self._txn = txn
        self._handles = dict(handles)

    def create(self, *databases: str) -> None:
        for name in databases:
            if name not in self._handles:
                assert len(self._handles) < DATABASES_MAX
                self._handles[name] = self._environment.open_db(name.encode(), txn=self._txn)

    def put(self, database: str, key: bytes | memoryview, value: bytes) -> None:
        self._txn.put(key, value, db=self._handles[database])
