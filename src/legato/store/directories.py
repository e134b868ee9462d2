"""Directory creation that survives a power cut: syncs the parents, so that no name is lost."""

from __future__ import annotations

import os
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """Have the names in a directory on the disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: Path) -> None:
    """Make a directory, and those above it, if they are missing; their names are on the disk when this returns."""
    if directory.is_dir():
        return
    make_directory(directory.parent)
    directory.mkdir(mode=0o700, exist_ok=True)
    sync_directory(directory.parent)
