"""Preallocation at the end of the store's file, done while no commit waits.

Where the file grows in a commit, the system has to find memory and a place on the disk for each page, which costs many
times what writing it does. LMDB never looks behind its last page, so what is there is nothing to it.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOM_BYTES_MAX = 512 << 20
STEP_BYTES = 1 << 20
"""In one go, so that a commit waits for some milliseconds at most."""
DISK_RESERVE = 4
"""There is to be so many times more room on the disk, or none is taken ahead."""

_ZEROES = bytes(STEP_BYTES)


class Preallocation:
    """Keeps as much space ahead as the largest commit that asked for it took.

    Args:
        path: the store's file.
        bytes_max: the file never becomes larger.
    """

    def __init__(self, path: Path, bytes_max: int) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self.wanted = 0
        """Bytes."""

    def note_growth(self, grown_bytes: int) -> None:
        """A large commit has made the file's content so much larger: the next one may want as much."""
        self.wanted = min(max(self.wanted, grown_bytes), ROOM_BYTES_MAX)

    def lengthen(self, used_bytes: int) -> bool:
        """Make the file longer by a step unless there is room enough; returns whether more is wanted.

        Nobody else may write to the file meanwhile. Without room on the disk nothing is made ahead any more.

        Args:
            used_bytes: how much of the file, from its beginning, has content.
        """
        if not self.wanted:
            return False
        try:
            return self._lengthen(used_bytes)
        except OSError:
            self.wanted = 0
            return False

    def _lengthen(self, used_bytes: int) -> bool:
        file = os.open(self._path, os.O_WRONLY)
        try:
            end = max(os.fstat(file).st_size, used_bytes)
            step = min(used_bytes + self.wanted, self._bytes_max) - end
            disk = os.fstatvfs(file)
            if step <= 0 or disk.f_bavail * disk.f_frsize < DISK_RESERVE * self.wanted:
                return False
            os.pwrite(file, _ZEROES[:step], end)
            # What is left to write would keep the next commit waiting.
            os.fdatasync(file)
        finally:
            os.close(file)
        return step > STEP_BYTES
