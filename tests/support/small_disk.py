"""A file system of a few megabytes (a tmpfs) that really becomes full, for every process."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

_PIECE = bytes(4096)


class SmallDisk:
    """A mounted tmpfs.

    Args:
        path: where it is mounted.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._others = path / "others"
        self._others.touch(mode=0o600)  # A store refuses what others can read.

    def occupy(self, size_bytes: int) -> None:
        """Somebody else has files of that size."""
        self._others.write_bytes(bytes(size_bytes))

    def fill(self) -> None:
        """Somebody else writes until there is not a single block left."""
        with self._others.open("ab", buffering=0) as file, suppress(OSError):
            while file.write(_PIECE):
                pass
        with pytest.raises(OSError, match="No space left"):
            self._write_a_block()

    def leave(self, size_bytes: int) -> None:
        """Of what somebody else wrote so much goes."""
        os.truncate(self._others, self._others.stat().st_size - size_bytes)

    def empty(self) -> None:
        """What somebody else wrote is gone."""
        self._others.unlink()

    def _write_a_block(self) -> None:
        probe = self.path / "probe"
        try:
            probe.write_bytes(b"x")
        finally:
            probe.unlink()


@contextmanager
def small_disk(path: Path, size_bytes: int) -> Iterator[SmallDisk]:
    """Mount one; the test is skipped where that is not permitted."""
    path.mkdir(parents=True, exist_ok=True)
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=0700", "tmpfs", str(path)]
    if shutil.which("mount") is None:
        pytest.skip("a full disk needs a file system of its own, and there is no command mount")
    mounted = subprocess.run(mounting, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a full disk needs a file system of its own, and mounting is not permitted: {mounted.stderr}")
    try:
        disk = SmallDisk(path)
        disk.occupy(size_bytes // 4)
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
