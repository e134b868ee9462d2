"""Sources of the store that a replica is seeded with: a directory, or the brokers that serve its group."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from legato.client.failover.uri import is_uri, parse_uri
from legato.errors import LogTrimmedError
from legato.quoting import quoted
from legato.replication.log import ReplicatedLog
from legato.replication.seeding import Snapshot, look_at, newest_on

FETCHED_NAME = "fetched.seeding"
"""In the directory of the store that is seeded, until it is."""

log = logging.getLogger("legato.replication")


@contextmanager
def snapshot_from(
    source: str, store: Path, told: Callable[[int, int], None] = lambda done, total: None
) -> Iterator[Snapshot]:
    """The snapshot to seed with.

    Args:
        source: a backup, or a store; or the URL of the group's brokers, one of which serves.
        store: the directory of the store that is to be seeded.
        told: see `legato.bulk.store_fetch.Told`.

    Raises:
        StoreError: there is no store, or it cannot be read, or there is no room for a copy.
        JMSError: no broker serves at the URL, or it refuses.
    """
    if not is_uri(source):
        yield look_at(Path(source))
        return
    from legato.bulk.store_fetch import fetch_store

    fetched = store / FETCHED_NAME
    shutil.rmtree(fetched, ignore_errors=True)
    log.info("= the store of the broker at %s is copied to %s", quoted(parse_uri(source)), quoted(store))
    try:
        fetch_store(source, fetched, told)
        yield replace(look_at(fetched), origin=str(parse_uri(source)))
    finally:
        shutil.rmtree(fetched, ignore_errors=True)


@contextmanager
def snapshot_on(replicated_log: ReplicatedLog, source: str, store: Path) -> Iterator[Snapshot]:
    """The snapshot to seed with, behind which the log goes on.

    Args:
        source: a directory of backups, of which the newest is taken; or a URL, as of `snapshot_from`.
        store: see there.

    Raises:
        LogTrimmedError: there is none; it says what is there.
        StoreError, JMSError: see `snapshot_from`.
    """
    if not is_uri(source):
        yield newest_on(replicated_log, Path(source))
        return
    with snapshot_from(source, store) as snapshot:
        if snapshot.position is None:
            raise LogTrimmedError(f"the last commit of the broker at {parse_uri(source)} came from no log")
        replicated_log.read(snapshot.position, 1)
        yield snapshot
