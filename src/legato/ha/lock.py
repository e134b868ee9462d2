"""The lock on a store: its holder is the primary. The system frees it the moment the holder dies.

It is a lock on the file `lock` in the store's directory, of the kind and with the limits told in `flock.py`. There
is no polling: a waiter is woken within a few milliseconds of the holder's SIGKILL.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from legato.errors import StoreError, StoreLockedError
from legato.ha.flock import LockFile

LOCK_NAME = "lock"


class Holder(msgspec.Struct):
    """The holder's note in the lock file."""

    pid: int
    epoch: int = 0
    """0 until its epoch has begun."""
    listen: str = ""
    """`host:port`"""
    token: str = ""
    """Lets a backup in, where peers need a password: only who may write the store should be able to read this file."""
    connections: int = 0
    """How many there are, if they are many: they will all come to its successor."""
    left: str = ""
    """Why it let go of the lock; empty if it holds it, or died."""
    file: int = 0
    """Which file the lock was on (`LockFile.identity`): one that was put in its place may hold a copy of this."""


class StoreLock:
    """The lock of the store in `directory`, which is created if need be. For one thread at a time, except `cancel`."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.path = Path(directory) / LOCK_NAME
        self.predecessor: Holder | None = None
        """Who held the lock before we did, once we have it."""
        self.is_on_new_file = False
        """Whether the lock that we have is on another file than the last one: who holds that one may not know yet."""
        self.known_epoch = 0
        """The last one that this process has begun, or read of in a file of the lock; a new file tells of none."""
        self._note = Holder(0)
        self._noted = True
        self._file: LockFile | None = None
        self._wait: _Wait | None = None
        self._cancelled = False
        self._guard = threading.Lock()

    @property
    def held(self) -> bool:
        """True from acquiring to releasing; see `still_mine` for whether that still means anything."""
        return self._file is not None

    def try_acquire(self) -> bool:
        """Take the lock if it is free; True if it is ours now.

        Raises:
            StoreError: the file cannot be locked at all.
        """
        while self._file is None:
            file = self._open()
            if not file.try_lock():
                file.close()
                return False
            self._take(file)
        return True

    def acquire_blocking(self) -> bool:
        """Wait until the lock is ours, as long as it takes; False if `cancel` was called, before or meanwhile.

        A wait given up leaves a thread asleep in the kernel. It ends with the process, or when its turn comes, and
        then lets go at once.

        Raises:
            StoreError: the file cannot be locked at all.
        """
        while self._file is None:
            with self._guard:
                if self._cancelled:
                    return False
                self._wait = wait = _Wait(self._open())
            file = wait.result()
            if file is not None:
                self._take(file)
        return True

    def cancel(self) -> None:
        """End the waiting, from any thread, for good: this object will not wait again."""
        with self._guard:
            self._cancelled = True
            if self._wait is not None:
                self._wait.give_up()

    def retry(self) -> None:
        """Wait on the file that is at the path now, if it was replaced since the wait began; from any thread."""
        with self._guard:
            if self._wait is not None and not self._wait.is_at_path():
                self._wait.give_up()

    def listen_to(self, silence_ms: Callable[[], int]) -> None:
        """See `Arbiter.listen_to`: the system knows when the holder is dead, whatever is heard of it."""

    def still_mine(self) -> bool:
        """False if the file at our path is not the one we locked: it was deleted, and someone may hold another."""
        return self._file is not None and self._file.is_at_path()

    def describe(self, epoch: int, listen: str, token: str = "", connections: int = 0) -> None:
        """Say in the file who holds the lock. Where there is no room on the disk, `refresh` says it later.

        Raises:
            StoreLockedError: it is not ours.
        """
        if self._file is None:
            raise StoreLockedError(f"{self.path} is not ours to write")
        self._say(self._file, Holder(os.getpid(), epoch, listen, token, connections))

    def refresh(self) -> bool:
        """Say again what there was no room for; returns whether nothing is left to be said."""
        if not self._noted and self._file is not None:
            self._say(self._file, self._note)
        return self._noted or self._file is None

    def holder(self) -> Holder | None:
        """The last holder's description of itself, for people to read; it may have died since."""
        holder = self._read()
        return holder if holder is not None and holder.pid else None

    def release(self, why: str = "") -> None:
        """Let go, if it is ours, and say why. The file stays: deleting it would let two processes hold two files."""
        self._let_go(msgspec.structs.replace(self._note, token="", left=why) if why and self._note.pid else Holder(0))

    def give_back(self) -> None:
        """See `Arbiter.give_back`: the file says again that the last holder did not let go, if that was so."""
        last = self.predecessor
        self._let_go(Holder(0) if last is None or last.left else last)

    def _let_go(self, note: Holder) -> None:
        if self._file is not None:
            self._say(self._file, note)
            self._file.close()
            self._file = None
            self._noted = True

    def _open(self) -> LockFile:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"the directory of the lock {self.path} cannot be made: {error}") from error
        return LockFile(self.path, mode=0o600)

    def _take(self, file: LockFile) -> None:
        """Keep a lock just won, unless it is on a file that is no longer at the path."""
        if not file.is_at_path():
            file.close()
            return
        self._file = file
        last = self._read()
        self.predecessor = last if last is not None and last.pid else None
        self.is_on_new_file = last is None or last.file != file.identity
        self._say(file, Holder(os.getpid()))

    def _say(self, file: LockFile, note: Holder) -> None:
        self._note = note
        self.known_epoch = max(self.known_epoch, note.epoch)
        self._noted = file.write(msgspec.json.encode(msgspec.structs.replace(note, file=file.identity)) + b"\n")

    def _read(self) -> Holder | None:
        try:
            holder = msgspec.json.decode(self.path.read_bytes(), type=Holder)
        except (OSError, msgspec.DecodeError):
            return None
        self.known_epoch = max(self.known_epoch, holder.epoch)
        return holder


class _Wait:
    """One blocking wait for a lock, in a thread that can be abandoned."""

    def __init__(self, file: LockFile) -> None:
        self._file = file
        self._error: StoreError | None = None
        self._given_up = False
        self._guard = threading.Lock()
        self._over = threading.Event()
        threading.Thread(target=self._run, name="legato-lock", daemon=True).start()

    def result(self) -> LockFile | None:
        """The file, locked, or None if the wait was given up."""
        self._over.wait()
        if self._error is not None:
            raise self._error
        return None if self._given_up else self._file

    def is_at_path(self) -> bool:
        """Whether the file that is waited for is still the one at its path."""
        return self._file.is_at_path()

    def give_up(self) -> None:
        with self._guard:
            if not self._over.is_set():
                self._given_up = True
                self._over.set()

    def _run(self) -> None:
        error = None
        try:
            self._file.lock()
        except StoreError as failure:
            error = failure
        with self._guard:
            if self._given_up or error is not None:
                self._file.close()
            if not self._given_up:
                self._error = error
                self._over.set()
