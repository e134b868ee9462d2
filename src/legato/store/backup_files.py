"""Files of a backup: the manifest, directories that get their name when they are complete, copies with digests."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from legato.errors import StoreCorruptError, StoreError
from legato.store.directories import make_directory, sync_directory
from legato.store.segment_locks import lock_of

MANIFEST_NAME = "backup.json"
LEDGER_NAME = "ledger"
USERS_NAME = "users"
"""Without it a restored broker would let in whoever is on its machine."""
VERSIONS_NAME = "versions.json"
"""What a replica knows of the versions of Legato whose records it has; in the directory of a store."""
OWNERS_ONLY = 0o600
PARTIAL = ".partial"
"""Ends the name of a directory that is not complete."""
MARK_NAME = "legato.partial"
"""The file by which such a directory is known as Legato's; who fills the directory holds a lock on it."""
_READ_BYTES = 1 << 20


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


def write_manifest(backup: Path, manifest: Manifest) -> None:
    """Write the manifest of a new backup, durably."""
    with (backup / MANIFEST_NAME).open("xb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """A directory that gets the name `path` when all that belongs into it is there and durable; its owner's only.

    Raises:
        StoreError: there is something at `path` already, another process is writing it, or it cannot be written.
    """
    _refuse_what_is_at(path)
    partial = path.with_name(path.name + PARTIAL)
    others_may = os.umask(0o077)
    try:
        make_directory(partial.parent)
        with _alone_in(partial, path):
            _refuse_what_is_at(path)  # Somebody may have been faster.
            yield partial
            sync_directory(partial)
            partial.rename(path)
            # Until now it told others whose the directory was; in a complete one it does no harm.
            (path / MARK_NAME).unlink()
            sync_directory(path)
            sync_directory(path.parent)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        os.umask(others_may)


def _refuse_what_is_at(path: Path) -> None:
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise StoreError(f"There is something at {path} already: name a directory that is new or empty.")


@contextmanager
def _alone_in(partial: Path, path: Path) -> Iterator[None]:
    """Have the directory `partial` empty but for the mark, and alone; what is in it at the end goes, with it.

    Raises:
        OSError: it cannot be written.
        StoreError: it is another process's, or was not made here; the message names `path`.
    """
    mark = _lock(partial, path)
    try:
        _clear(partial)  # Whoever left something there was killed.
        sync_directory(partial)
        yield
    finally:
        with suppress(OSError):
            # By now the name may be that of another process's directory.
            if _is_at(mark, partial / MARK_NAME):
                _clear(partial)
                (partial / MARK_NAME).unlink()
                partial.rmdir()
        # Closing would not do if a process was forked meanwhile.
        fcntl.flock(mark, fcntl.LOCK_UN)
        os.close(mark)


def _lock(partial: Path, path: Path) -> int:
    """Make the directory if there is none, and lock its mark; returns the descriptor of that."""
    while True:
        with suppress(FileExistsError):
            partial.mkdir()
        try:
            names = os.listdir(partial) if stat.S_ISDIR(partial.lstat().st_mode) else [partial.name]
            if names and MARK_NAME not in names:
                raise StoreError(
                    f"{partial} is in the way: Legato writes there until {path} is complete. Move it away, name "
                    "another directory, or delete it if a former version of Legato left it when it was killed."
                )
            mark = lock_of(partial, MARK_NAME, wait=False)
        except FileNotFoundError:
            continue  # Whoever had it is done.
        if mark is None:
            raise StoreError(
                f"Another process is writing {path} now: wait until it is done, or name another directory."
            )
        if _is_at(mark, partial / MARK_NAME):
            return mark
        os.close(mark)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether a file is still the one at a path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _clear(partial: Path) -> None:
    """Remove all but the mark."""
    for child in partial.iterdir():
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        elif child.name != MARK_NAME:
            child.unlink()


def copy_file(source: Path, to: Path, expected: str = "") -> str:
    """Copy a file durably; returns its digest.

    Raises:
        StoreCorruptError: there is none, or its digest is not the one `expected`.
        StoreError: it cannot be read.
        OSError: the copy cannot be written.
    """
    digest = hashlib.sha256()
    with to.open("xb") as writing:
        for data in _pieces(source):
            digest.update(data)
            writing.write(data)
        writing.flush()
        os.fsync(writing.fileno())
    if expected:
        compare_digests(source, digest.hexdigest(), expected)
    return digest.hexdigest()


def copy_users(store: Path, backup: Path) -> str:
    """Copy the users file in a store's directory, if there is one; returns its digest, or an empty text."""
    users = store / USERS_NAME
    return copy_file(users, backup / USERS_NAME) if users.is_file() else ""


def copy_versions(source: Path, to: Path) -> None:
    """Copy what is known of the epochs' versions from the directory of a store, or of a backup, to another.

    They are written before the commits that need them, so they are copied after these.

    Raises:
        StoreError: it cannot be read.
        OSError: it cannot be written.
    """
    (to / VERSIONS_NAME).unlink(missing_ok=True)
    if (source / VERSIONS_NAME).is_file():
        copy_file(source / VERSIONS_NAME, to / VERSIONS_NAME)
        (to / VERSIONS_NAME).chmod(OWNERS_ONLY)


def file_digest(path: Path) -> str:
    """SHA-256 of a file.

    Raises:
        StoreCorruptError: it is missing.
        StoreError: it cannot be read.
    """
    digest = hashlib.sha256()
    for data in _pieces(path):
        digest.update(data)
    return digest.hexdigest()


def _pieces(path: Path) -> Iterator[bytes]:
    """What is in a file. Raises as `file_digest`."""
    try:
        with path.open("rb") as file:
            while data := file.read(_READ_BYTES):
                yield data
    except FileNotFoundError:
        raise StoreCorruptError(f"{path} is missing.") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.") from error


def compare_digests(path: Path, found: str, expected: str) -> None:
    """Raises `StoreCorruptError` if a file is not what was written."""
    if found != expected:
        raise StoreCorruptError(f"{path} is not what was written: use another backup.")


def sync_file(path: Path) -> None:
    """Have the content of a file on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
