"""Disk reserve for what must not fail: beginning an epoch, consuming, pruning.

It is a file beside the store's, `reserve`. While it is there, a full disk refuses producers and nobody else. When even
a commit that stores no message finds no room, the file is given up and its place goes to the store's file at once; from
then on producers are refused until it is there again, or the store has as much room within its own file.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from legato.store.environment import allocate

RESERVE_NAME = "reserve"
RESERVE_BYTES = 2 << 20
"""An epoch's begin writes about ten pages, the largest commit that only consumes some hundred."""
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Reserve:
    """The reserve of the store whose file is `data`.

    Attributes:
        spent: it is not there.
    """

    def __init__(self, data: Path) -> None:
        self._data = data
        self._path = data.with_name(RESERVE_NAME)
        self.spent = False

    def make(self) -> bool:
        """See that it is there, if there is room on the disk; returns whether it is."""
        try:
            if not self._is_whole():
                self.spent = True
                if not self._has_room_for_it():
                    return False
                allocate(self._path, 0, RESERVE_BYTES)
        except OSError:
            self._drop()
            return False
        self.spent = False
        return True

    def spend(self) -> bool:
        """Make the store's file longer, with the reserve's place if need be; returns whether it is longer now.

        Nobody else may write to the store's file meanwhile.
        """
        problem = self._lengthen()
        if problem is not None and problem.errno in _FULL and self._is_whole():
            self.spent = True
            self._drop()
            problem = self._lengthen()
        return problem is None

    def _lengthen(self) -> OSError | None:
        try:
            allocate(self._data, self._data.stat().st_size, RESERVE_BYTES)
        except OSError as error:
            return error
        return None

    def _is_whole(self) -> bool:
        try:
            return self._path.stat().st_blocks * 512 >= RESERVE_BYTES
        except OSError:
            return False

    def _has_room_for_it(self) -> bool:
        """Twice: who needs the last of the disk shall not find that we took it."""
        disk = os.statvfs(self._data.parent)
        return disk.f_bavail * disk.f_frsize >= 2 * RESERVE_BYTES

    def _drop(self) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
