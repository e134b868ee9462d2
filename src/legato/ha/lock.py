"""The lock that decides which process serves a store: the system frees it the moment its holder dies.

It is a BSD lock (`flock`) on the file `lock` in the store's directory. It belongs to the open file, not to the
process, so it must not be inherited: the descriptor is closed on exec, and a holder must not fork. A waiter sleeps
in the kernel and is woken when the holder's descriptor closes, within a millisecond or so of SIGKILL: no polling.

The file system must support `flock` for all who share the store. Local ones do; Linux' NFS (since 2.6.12) turns it
into a byte-range lock of the server, which outlives a holder's crashed machine until the server notices; where
there is none at all, acquiring raises `StoreError` and nobody serves. The store itself needs a local file system.
"""

import errno
import fcntl
import os
import threading
import weakref
from pathlib import Path

import msgspec

from legato.errors import StoreError, StoreLockedError

LOCK_NAME = "lock"


class Holder(msgspec.Struct):
    """What the holder of a lock says of itself."""

    pid: int
    epoch: int = 0
    """0 until its epoch has begun."""
    listen: str = ""


class StoreLock:
    """The lock of the store in `directory`, which is created if need be. For one thread at a time, except `cancel`."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.path = Path(directory) / LOCK_NAME
        self._descriptor: int | None = None
        self._wait: _Wait | None = None
        self._cancelled = False
        self._guard = threading.Lock()
        _all_locks.add(self)

    @property
    def held(self) -> bool:
        """True from acquiring to releasing; see `still_mine` for whether that still means anything."""
        return self._descriptor is not None

    def try_acquire(self) -> bool:
        """Take the lock if it is free; True if it is ours now.

        Raises:
            StoreError: the file cannot be locked at all.
        """
        while self._descriptor is None:
            descriptor = _open(self.path)
            if not _flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB):
                os.close(descriptor)
                return False
            self._take(descriptor)
        return True

    def acquire_blocking(self) -> bool:
        """Wait until the lock is ours, as long as it takes; False if `cancel` was called, before or meanwhile.

        A wait given up leaves a thread asleep in the kernel. It ends with the process, or when its turn comes, and
        then lets go at once.

        Raises:
            StoreError: the file cannot be locked at all.
        """
        while self._descriptor is None:
            with self._guard:
                if self._cancelled:
                    return False
                self._wait = wait = _Wait(self.path)
            descriptor = wait.result()
            with self._guard:
                self._wait = None
            if descriptor is not None:
                self._take(descriptor)
        return True

    def cancel(self) -> None:
        """End the waiting, from any thread, for good: this object will not wait again."""
        with self._guard:
            self._cancelled = True
            if self._wait is not None:
                self._wait.give_up()

    def still_mine(self) -> bool:
        """False if the file at our path is not the one we locked: it was deleted, and someone may hold another."""
        return self._descriptor is not None and _is_at(self._descriptor, self.path)

    def describe(self, epoch: int, listen: str) -> None:
        """Say in the file who holds the lock.

        Raises:
            StoreLockedError: it is not ours.
        """
        if self._descriptor is None:
            raise StoreLockedError(f"{self.path} is not ours to write")
        self._write(Holder(os.getpid(), epoch, listen))

    def holder(self) -> Holder | None:
        """What the last holder said of itself, for people to read; it may have died since."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Holder)
        except (OSError, msgspec.DecodeError):
            return None

    def release(self) -> None:
        """Let go, if it is ours. The file stays: deleting it would let two processes hold two files."""
        if self._descriptor is not None:
            os.truncate(self._descriptor, 0)
            self._forget()

    def _take(self, descriptor: int) -> None:
        """Keep a lock just won, unless it is on a file that is no longer at the path."""
        if not _is_at(descriptor, self.path):
            os.close(descriptor)
            return
        self._descriptor = descriptor
        self._write(Holder(os.getpid()))

    def _write(self, holder: Holder) -> None:
        assert self._descriptor is not None
        data = msgspec.json.encode(holder) + b"\n"
        os.truncate(self._descriptor, 0)
        os.pwrite(self._descriptor, data, 0)

    def _forget(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class _Wait:
    """One blocking wait for the lock in a thread that can be left behind."""

    def __init__(self, path: Path) -> None:
        self._descriptor: int | None = _open(path)
        self._error: StoreError | None = None
        self._given_up = False
        self._guard = threading.Lock()
        self._over = threading.Event()
        threading.Thread(target=self._run, args=(self._descriptor,), name="legato-lock", daemon=True).start()

    def result(self) -> int | None:
        """The descriptor that has the lock, or None if the wait was given up."""
        self._over.wait()
        with self._guard:
            if self._given_up:
                return None
            if self._error is not None:
                raise self._error
            return self._descriptor

    def give_up(self) -> None:
        with self._guard:
            if not self._over.is_set():
                self._given_up = True
                self._over.set()

    def _run(self, descriptor: int) -> None:
        error = None
        try:
            _flock(descriptor, fcntl.LOCK_EX)
        except StoreError as failure:
            error = failure
        with self._guard:
            self._error = error
            if self._given_up or error is not None:
                os.close(descriptor)
            self._over.set()


_all_locks: "weakref.WeakSet[StoreLock]" = weakref.WeakSet()


def _leave_to_parent() -> None:
    for lock in _all_locks:
        lock._forget()


os.register_at_fork(after_in_child=_leave_to_parent)


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreError(f"the lock {path} cannot be opened: {error}") from error


def _flock(descriptor: int, operation: int) -> bool:
    try:
        fcntl.flock(descriptor, operation)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise StoreError(f"this file system cannot lock files, so that a store cannot be on it: {error}") from error
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        there = os.stat(path)
    except OSError:
        return False
    ours = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
