"""Which broker processes there are for a store: each keeps a record in `members/`, and a lock that shows it lives.

The lock is on a file beside the record, because the record is replaced as a whole whenever it changes. Whoever can
lock that file knows that its member is gone, and sweeps both.
"""

import os
from pathlib import Path

import msgspec

from legato.clock import Clock, SystemClock
from legato.errors import StoreError
from legato.ha.flock import LockFile
from legato.ids import new_unique_name

MEMBERS_NAME = "members"
_RECORD = ".json"
_NEW = ".new"
_ALIVE = ".alive"


class Member(msgspec.Struct):
    """A broker process, in its own words."""

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


class Membership:
    """This process, as `member` tells, among the members of the store in `directory`, until `close` or death.

    Raises:
        StoreError: the directory cannot be written.
    """

    def __init__(self, directory: str | os.PathLike[str], member: Member, clock: Clock | None = None) -> None:
        self._directory = Path(directory) / MEMBERS_NAME
        self._clock = clock or SystemClock()
        self._id = new_unique_name("")
        self._alive = self._lock()
        self._write(msgspec.structs.replace(member, id=self._id, since_us=self._clock.now_us()))

    def update(self, *, role: str, epoch: int) -> None:
        """Take another role. Readers see the old record or the new one, never half.

        Raises:
            StoreError: the record cannot be written.
        """
        since_us = self._clock.now_us()
        self._write(msgspec.structs.replace(self._member, role=role, epoch=epoch, since_us=since_us))

    def close(self) -> None:
        """Be a member no more. Closing again does nothing."""
        _sweep(self._directory, self._id)
        self._alive.close()

    def _write(self, member: Member) -> None:
        written = self._directory / (self._id + _NEW)
        try:
            written.write_bytes(msgspec.json.encode(member) + b"\n")
            written.replace(self._directory / (self._id + _RECORD))
        except OSError as error:
            raise StoreError(f"this broker cannot be recorded among the store's members: {error}") from error
        self._member = member

    def _lock(self) -> LockFile:
        """A locked file at its path: a reader may have swept it between opening and locking."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"the store's members cannot be recorded in {self._directory}: {error}") from error
        while True:
            file = LockFile(self._directory / (self._id + _ALIVE))
            if file.try_lock() and file.is_at_path():
                return file
            file.close()


def list_members(directory: str | os.PathLike[str]) -> list[Member]:
    """Members of the store in `directory` that live, in the order in which they took their roles.

    Sweeps the files of those that do not, as far as we may.
    """
    members: list[Member] = []
    try:
        names = sorted(os.listdir(Path(directory) / MEMBERS_NAME))
    except FileNotFoundError:
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
    return sorted(members, key=lambda member: member.since_us)


def _lives(alive: Path) -> bool:
    try:
        file = LockFile(alive, create=False)
    except StoreError:
        return False
    try:
        return not file.try_lock()
    finally:
        file.close()


def _read(path: Path) -> Member | None:
    """The record, or None while its member has not written it yet."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Member)
    except (OSError, msgspec.DecodeError):
        return None


def _sweep(directory: Path, member: str) -> None:
    """The lock's file goes last: a record without one would never be found again."""
    for suffix in (_NEW, _RECORD, _ALIVE):
        try:
            (directory / (member + suffix)).unlink(missing_ok=True)
        except OSError:
            return
