"""Locks of a ledger's segments: who reads several keeps them from being removed meanwhile."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

READERS_LOCK_NAME = "_readers.lock"


@contextmanager
def being_read(ledger: Path | str) -> Iterator[None]:
    """Keep segments from being removed while the block lasts; no writing of new ones waits for it.

    Whoever may not write the directory, or reads one elsewhere (`s3a://...`), reads without it.
    """
    lock = None
    if "://" not in str(ledger):
        try:
            lock = lock_of(Path(ledger), READERS_LOCK_NAME, shared=True)
        except OSError:
            lock = None
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


@contextmanager
def alone_with(ledger: Path, tell: Callable[[str], object]) -> Iterator[None]:
    """Wait until nobody reads the segments, and let nobody begin while the block lasts."""
    lock = lock_of(ledger, READERS_LOCK_NAME, wait=False)
    if lock is None:
        tell("waiting for an audit or a query that reads the ledger")
        lock = lock_of(ledger, READERS_LOCK_NAME)
    assert lock is not None, "it waits"
    try:
        yield
    finally:
        os.close(lock)


def lock_of(ledger: Path, name: str, *, shared: bool = False, wait: bool = True) -> int | None:
    """Take a lock of a ledger, which lasts until the descriptor is closed or its process dies.

    Returns:
        The descriptor; None if somebody else has it and this is not to `wait`.

    Raises:
        OSError: there is no such directory, or this user may not write it.
    """
    descriptor = open_lock(ledger, name)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_lock(ledger: Path, name: str) -> int:
    """The file of a lock, made if there is none. One that root makes is that of the ledger's owner, who has to lock it.

    Returns:
        Its descriptor.

    Raises:
        OSError: it cannot be opened or made.
    """
    path, flags = ledger / name, os.O_RDWR | os.O_CLOEXEC
    try:
        made = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        # Not made here: it could be a link, by which somebody else has us make a file anywhere.
        return os.open(path, flags)
    with contextlib.suppress(OSError):
        owner = os.stat(ledger)
        if (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(made, owner.st_uid, owner.st_gid)
    return made
