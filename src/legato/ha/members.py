"""Members: the broker processes of a store. Each keeps a locked record in `members/`.

The lock is on a file beside the record, because the record is replaced as a whole whenever it changes. Whoever can
lock that file knows that its member is gone, and sweeps both.
"""

import contextlib
import errno
import logging
import os
from pathlib import Path

import msgspec

from legato.clock import Clock, SystemClock
from legato.errors import StoreError
from legato.ha.flock import LockFile
from legato.ha.roles import Role
from legato.ids import new_unique_name
from legato.quoting import quoted

log = logging.getLogger("legato.members")

MEMBERS_NAME = "members"
_RECORD = ".json"
_NEW = ".new"
_ALIVE = ".alive"
_READS_MAX = 3


class Member(msgspec.Struct):
    """A broker process's record of itself."""

    role: str
    """As `ha.roles.Role` spells it."""
    pid: int
    listen: str = ""
    """`host:port` where it serves, or would."""
    epoch: int = 0
    """The epoch it began; 0 if none."""
    since_us: int = 0
    """When it took its role, microseconds since 1970; `Membership` knows."""
    id: str = ""
    """Unique; given by `Membership`."""
    tls: bool = False
    """Whether it speaks TLS there."""
    trouble: list[str] = []
    """Why its replica waits, in sentences; empty if it does not, or if it has none."""
    trouble_since_us: int = 0
    """Since when, microseconds since 1970; 0 if it does not."""


class Membership:
    """This process's membership in the store in `directory`, until `close` or death.

    What cannot be recorded is left out and tried again by `refresh`: a full disk, which is where that happens, is no
    reason for a broker to end.
    """

    def __init__(self, directory: str | os.PathLike[str], member: Member, clock: Clock | None = None) -> None:
        self._directory = Path(directory) / MEMBERS_NAME
        self._clock = clock or SystemClock()
        self._id = new_unique_name("")
        self._alive: LockFile | None = None
        self._closed = False
        self._told = False
        self.is_recorded = False
        """Whether others can read the present role."""
        self._member = msgspec.structs.replace(member, id=self._id, since_us=self._clock.now_us())
        self.refresh()

    def update(self, *, role: str, epoch: int) -> None:
        """Take another role. Readers see the old record or the new one."""
        self._member = msgspec.structs.replace(self._member, role=role, epoch=epoch, since_us=self._clock.now_us())
        self.is_recorded = False
        self.refresh()

    def note_trouble(self, trouble: list[str], since_us: int) -> None:
        """Let others know why the replica waits, and since when; nothing if it goes on."""
        self._member = msgspec.structs.replace(self._member, trouble=trouble, trouble_since_us=since_us)
        self.is_recorded = False
        self.refresh()

    def refresh(self) -> bool:
        """Record what is not recorded yet; returns whether all is."""
        if not self.is_recorded and not self._closed:
            try:
                if self._alive is None:
                    self._alive = self._lock()
                self._write()
                self.is_recorded = True
            except (OSError, StoreError) as error:
                if not self._told:
                    log.warning("! this broker cannot be recorded among the store's members, for now: %s", error)
                self._told = True
        return self.is_recorded

    def close(self) -> None:
        """Be a member no more. Closing again does nothing."""
        self._closed = True
        _sweep(self._directory, self._id)
        if self._alive is not None:
            self._alive.close()

    def _write(self) -> None:
        """A new file in the place of the old one; without room for a new one, over the old one. If not even that is
        possible there is none, rather than one that is no longer true.

        Raises:
            OSError: so it is.
        """
        record = msgspec.json.encode(self._member) + b"\n"
        path, written = self._directory / (self._id + _RECORD), self._directory / (self._id + _NEW)
        try:
            written.write_bytes(record)
            written.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                written.unlink(missing_ok=True)
            try:
                _overwrite(path, record)
            except OSError:
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
                raise error from None

    def _lock(self) -> LockFile:
        """A locked file at its path: a reader may have swept it between opening and locking."""
        self._directory.mkdir(parents=True, exist_ok=True)
        while True:
            file = LockFile(self._directory / (self._id + _ALIVE))
            if file.try_lock() and file.is_at_path():
                return file
            file.close()


def _overwrite(path: Path, record: bytes) -> None:
    with path.open("r+b", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if file.write(record.ljust(size)) < len(record):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def list_members(directory: str | os.PathLike[str]) -> list[Member]:
    """Members of the store in `directory` that live, in the order in which they took their roles.

    One primary at most: of several that say so the one of the highest epoch is. The others are handing over, and have
    not come to write it, or have found no room to.

    Sweeps the files of those that do not live, as far as we may.
    """
    members: list[Member] = []
    try:
        names = sorted(os.listdir(Path(directory) / MEMBERS_NAME))
    except FileNotFoundError:
        return members
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        # That passes, and is no reason for a broker to end.
        log.warning("! the members of the store in %s cannot be listed: %s", quoted(str(directory)), error.strerror)
        return members
    for name in names:
        stem, suffix = os.path.splitext(name)
        if suffix != _ALIVE:
            continue
        path = Path(directory) / MEMBERS_NAME
        if not _lives(path / name):
            _sweep(path, stem)
        elif member := _read(path / (stem + _RECORD)):
            members.append(member)
    latest = max((member.epoch for member in members if member.role == Role.PRIMARY), default=0)
    for member in members:
        if member.role == Role.PRIMARY and member.epoch < latest:
            member.role = Role.HANDING_OVER
    return sorted(members, key=lambda member: member.since_us)


def _lives(alive: Path) -> bool:
    try:
        file = LockFile(alive, create=False)
    except StoreError as error:
        # What cannot be opened now, as a process may have too many files open, may be of one that lives.
        return not isinstance(error.__cause__, (FileNotFoundError, PermissionError))
    try:
        return not file.try_lock()
    finally:
        file.close()


def _read(path: Path) -> Member | None:
    """The record, or None while its member has not written it."""
    for _ in range(_READS_MAX):
        try:
            return msgspec.json.decode(path.read_bytes(), type=Member)
        except OSError:
            break
        except msgspec.DecodeError:
            # It was being written over.
            continue
    return None


def _sweep(directory: Path, member: str) -> None:
    """The lock's file goes last: a record without one would never be found again."""
    for suffix in (_NEW, _RECORD, _ALIVE):
        try:
            (directory / (member + suffix)).unlink(missing_ok=True)
        except OSError:
            return
