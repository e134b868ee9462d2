"""A store whose broker was killed, settled: what only its journal holds goes to its file, where readers see it."""

from __future__ import annotations

from pathlib import Path

from legato.errors import StoreError, StoreFormatError
from legato.store.environment import DATA_NAME
from legato.store.lmdb import LmdbStore


def settle_store(path: Path) -> None:
    """Have everything that was committed in the store's file.

    Beside a broker that serves it waits for its next checkpoint; beside one that is stopped in the middle of writing,
    until that goes on or ends.

    Raises:
        StoreCorruptError: the journal is missing or damaged; the message says what is lost.
        StoreError: the store is not this process's to write to; the message says what to do.
    """
    if not (path / DATA_NAME).exists():
        return  # Whoever reads it says so.
    try:
        looking = LmdbStore(path, read_only=True)
    except StoreFormatError:
        return  # Stores of former formats have no journal; of newer ones we know nothing.
    try:
        if not looking.has_open_journal():
            return
    finally:
        looking.close()
    try:
        LmdbStore(path, migrates=False).close()
    except StoreError as error:
        if not isinstance(error.__cause__, PermissionError):
            raise
        raise StoreError(
            f"the store in {path} was not closed by its broker, and what its journal holds is not in its file yet: "
            "start a broker on it once, or do this as the user who owns it"
        ) from error
