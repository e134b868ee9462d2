"""Directories for what one audit needs while it runs; what killed audits left is removed by the next one."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "legato-audit-"
_YOUNG_S = 60.0
"""A directory that is younger may not be locked yet."""


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A new directory, which is removed after the block.

    It is locked meanwhile. When its processes have died, the lock is free, and whoever comes next may remove it.
    """
    _remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name:
        held = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(held)


def _remove_abandoned(parent: Path) -> None:
    """Remove this user's directories that nobody holds any more."""
    for directory in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                found = os.fstat(held)
                if found.st_uid == os.getuid() and time.time() - found.st_mtime > _YOUNG_S:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(held)
