"""Copies of stores that are elsewhere, fetched from the brokers that serve them, with their progress."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from legato.cli.progress import Progress
from legato.errors import ConfigError

if TYPE_CHECKING:
    from legato.store.backup_files import Manifest


def fetch(url: str, to: Path) -> Manifest:
    """Copy the store of the broker that serves at `url` into the new directory `to`; see `bulk.store_fetch`.

    Raises:
        ConfigError: what is needed for that is not installed.
    """
    with fetching() as told:
        from legato.bulk.store_fetch import fetch_store

        return fetch_store(url, to, told)


@contextmanager
def fetching() -> Iterator[Callable[[int, int], None]]:
    """The progress of a copy: a function that is to be told it.

    Raises:
        ConfigError: what is needed for a copy is not installed.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise ConfigError("A store is fetched from its broker with pyarrow: pip install 'legato[ledger]'.")
    progress = Progress("copied", unit="bytes")
    try:
        yield progress.at
    finally:
        progress.end()
