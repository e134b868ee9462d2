"""Files that a broker process writes beside the store: its member record, and the note in the lock file.

The production classes write them, into a directory that is the run's own. When the disk is full there is room for
nothing that needs more of it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from legato.clock import Clock
from legato.ha import flock, members
from legato.ha.lock import StoreLock
from legato.ha.members import Member, Membership, list_members
from legato.ha.roles import Event, Role, next_role


class MemberFiles:
    """Those of one process, from its start to its death."""

    def __init__(self, directory: Path, name: str, clock: Clock) -> None:
        self.lock = StoreLock(directory)
        self._role = Role.STARTING
        self._epoch = 0
        self._is_dead = False
        self._membership = Membership(directory, Member(Role.STARTING, os.getpid(), name), clock)
        self.turn(Event.STARTED)

    def turn(self, event: Event, epoch: int = 0) -> None:
        """See `Runtime._turn`."""
        self._role = next_role(self._role, event)
        self._epoch = epoch or self._epoch
        self._membership.update(role=self._role, epoch=self._epoch)

    def refresh(self) -> None:
        """Write what there was no room for."""
        if not self._is_dead:
            self._membership.refresh()
            self.lock.refresh()

    def died(self) -> None:
        """The system closes its files, and nobody tidies up."""
        self._is_dead = True
        for file in (self.lock._file, self._membership._alive):
            if file is not None:
                file.close()


def two_primaries(directory: Path, serving: str) -> str:
    """What is wrong with the members' records when one broker serves and all had room; empty if nothing is."""
    primaries = [member.listen for member in list_members(directory) if member.role == Role.PRIMARY]
    return "" if primaries == [serving] else f"members show {primaries} as primary, and {serving} is"


def full_disk(is_full: Callable[[], bool]) -> list[tuple[Any, str, Any]]:
    """What is to be put in the place of what writes these files."""

    def refuse() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        if is_full() and os.fstat(descriptor).st_size < offset + len(data):
            refuse()
        return os.pwrite(descriptor, data, offset)

    class FullPath(type(Path())):  # type: ignore[misc]
        """A path on the disk."""

        def write_bytes(self, data: Any) -> int:
            if is_full():
                self.touch()
                refuse()
            return int(super().write_bytes(data))

        def mkdir(self, *arguments: Any, **options: Any) -> None:
            if is_full() and not self.exists():
                refuse()
            super().mkdir(*arguments, **options)

    system = SimpleNamespace(**{name: getattr(os, name) for name in dir(os) if not name.startswith("__")})
    system.pwrite = pwrite
    return [(flock, "os", system), (members, "Path", FullPath)]
