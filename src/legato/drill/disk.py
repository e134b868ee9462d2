"""A scratch file system for the store that can be filled to its last block.

It is a tmpfs. To be full it is made as large as what is in it; nothing of this machine's disks changes. That takes the
right to mount. When the drill is over the files go to where the file system was mounted.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

BYTES_MAX = 4 << 30
MEMORY_SHARE = 4
"""What is in it is in memory: no more of it than this part of what is free."""
COMMAND_WAIT_S = 10.0
KILLED_S = 0.05
TRIES = 50
"""Somebody may write between looking how much there is and making it so large."""


class Disk:
    """The file system at `path`."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self._path = path
        self._size_bytes = size_bytes

    @classmethod
    def create(cls, path: Path) -> Self | None:
        """One at `path`; None where that is not permitted."""
        path.mkdir(parents=True, exist_ok=True)
        disk = cls(path, min(BYTES_MAX, _free_memory_bytes() // MEMORY_SHARE))
        if not _succeeds("mount", "-t", "tmpfs", "-o", f"size={disk._size_bytes},mode=0700", "tmpfs", str(path)):
            return None
        return disk

    def fill(self, spare_bytes: int = 0) -> bool:
        """Leave no room but so much; returns whether that came to pass."""
        return any(self._resize(self._used_bytes() + spare_bytes) for _ in range(TRIES))

    def empty(self) -> None:
        """There is room again."""
        self._resize(self._size_bytes)

    @property
    def free_bytes(self) -> int:
        """Room that is left."""
        found = os.statvfs(self._path)
        return found.f_bfree * found.f_frsize

    def bring_home(self) -> None:
        """Put the files where the file system was, which is no more. Who still has one open is killed first.

        An exporter that outlives its broker would go on in the new place, and give half a segment its name.
        """
        for _ in range(TRIES):
            users = users_of(self._path)
            if not users:
                break
            for pid in users:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(KILLED_S)
        home = self._path.with_name(f"{self._path.name}.home")
        shutil.copytree(self._path, home, symlinks=True)
        unmount(self._path)
        self._path.rmdir()
        home.rename(self._path)

    def _used_bytes(self) -> int:
        found = os.statvfs(self._path)
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def _resize(self, size_bytes: int) -> bool:
        return _succeeds("mount", "-o", f"remount,size={size_bytes}", str(self._path))


def users_of(directory: Path) -> list[int]:
    """The processes that have a file below a directory open, as far as that can be seen."""
    below = f"{directory.resolve()}/"
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            if any(os.readlink(descriptor).startswith(below) for descriptor in (entry / "fd").iterdir()):
                found.append(int(entry.name))
    return found


def unmount(path: Path) -> None:
    """End the file system at `path`, if one is mounted there: that of a drill that was killed."""
    if os.path.ismount(path):
        _succeeds("umount", "--lazy", str(path))


def _succeeds(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=COMMAND_WAIT_S).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _free_memory_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0
