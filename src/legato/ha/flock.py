"""A file with a BSD lock (`flock`): it shows that its process lives.

The lock belongs to the open file. The system frees it when the last descriptor of that open file closes, which is
when its process ends, however it ends. So a holder must not pass the descriptor on: Python closes it on exec, and we do
in the child of a fork as well. A waiter sleeps in the kernel and is woken at once.

The file system must support `flock` for all who look at the file. Local ones do. Linux' NFS (since 2.6.12) makes it
a byte-range lock of the server, which outlives a crashed machine until the server notices; where there is none at
all, locking raises `StoreError`.
"""

import contextlib
import errno
import fcntl
import logging
import os
import weakref
from pathlib import Path

from legato.errors import StoreError

log = logging.getLogger("legato.flock")

NOTE_BYTES = 1024
"""Room for a note in a file, all of which is written each time: within one block of any disk."""


class LockFile:
    """The lock file at `path`, created if absent. `try_lock` or `lock` locks it, `close` releases it.

    Raises:
        StoreError: it cannot be opened.
    """

    def __init__(self, path: Path, *, create: bool = True, mode: int = 0o644) -> None:
        self.path = path
        flags = os.O_RDWR | os.O_CREAT if create else os.O_RDONLY
        try:
            self._descriptor = os.open(path, flags, mode)
        except OSError as error:
            raise StoreError(f"the lock file {path} cannot be opened: {error}") from error
        self._open = True
        _all_files.add(self)

    def try_lock(self) -> bool:
        """Lock it if nobody else has; True if we have now.

        Raises:
            StoreError: the file system has no such locks.
        """
        try:
            self._flock(fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def lock(self) -> None:
        """Lock it, asleep until that is possible.

        Raises:
            StoreError: the file system has no such locks.
        """
        self._flock(fcntl.LOCK_EX)

    def is_at_path(self) -> bool:
        """False if the file at the path is another one by now, or there is none."""
        if not self._open:
            return False
        try:
            there = os.stat(self.path)
        except OSError:
            return False
        ours = os.fstat(self._descriptor)
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    @property
    def identity(self) -> int:
        """Tells this file from others that were or will be at its path (the number of its inode)."""
        return os.fstat(self._descriptor).st_ino

    def write(self, note: bytes) -> bool:
        """Replace the note in the file, in its place, so that the second one needs no room on the disk.

        A reader may see half of it.

        Returns:
            False if there is no room: then the file holds no note, rather than an old one or half of one.
        """
        try:
            if os.pwrite(self._descriptor, note.ljust(NOTE_BYTES), 0) >= NOTE_BYTES:
                return True
        except OSError as error:
            log.warning("! %s cannot be written: %s", self.path, error.strerror)
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
        return False

    def close(self) -> None:
        """Let go of lock and file. Closing again does nothing."""
        if self._open:
            self._open = False
            os.close(self._descriptor)

    def _flock(self, operation: int) -> None:
        try:
            fcntl.flock(self._descriptor, operation)
        except OSError as error:
            if error.errno == errno.EWOULDBLOCK:
                raise
            raise StoreError(f"{self.path} is on a file system that cannot lock files: {error}") from error


_all_files: "weakref.WeakSet[LockFile]" = weakref.WeakSet()


def _leave_to_parent() -> None:
    for file in list(_all_files):
        file.close()


os.register_at_fork(after_in_child=_leave_to_parent)
