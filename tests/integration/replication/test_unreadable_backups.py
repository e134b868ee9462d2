"""Backups that a broker cannot read, where it looks for a store to be seeded with."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from legato.core.facts import QueueCreated
from legato.errors import LogTrimmedError
from legato.replication.arbiter import LogArbiter
from legato.replication.log import ReplicatedLog
from legato.replication.seeding import newest_on
from legato.store.backup import take
from legato.store.lmdb import LmdbStore
from tests.conformance.store import NOW_US, stored
from tests.integration.replication.test_arbiter import LEASE_S, PATIENCE_S, Brokers, commit

UNREADABLE = "x" * 300
"""No file can have that name: the system says so also to a user who may read everything."""


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    brokers = Brokers(tmp_path)
    yield brokers
    brokers.close()


def test_a_backup_that_cannot_be_read_leaves_the_others(brokers: Brokers, tmp_path: Path) -> None:
    primary, commits = brokers.primary("a", 30.0)
    commit(commits, QueueCreated(1, "q"), stored(1))
    primary.close()
    copies = tmp_path / "copies"
    take(tmp_path / "a", copies / "whole")
    (copies / "unreadable").symlink_to(UNREADABLE)
    log = brokers.servers.log("g")
    assert newest_on(log, copies).commit == primary.replica.commits
    shutil.rmtree(copies / "whole")
    with pytest.raises(LogTrimmedError, match="unreadable: File name too long"):
        newest_on(log, copies)


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), ZeroDivisionError("unforeseen")])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_replica_that_cannot_look_for_a_copy_ends_and_says_why(
    brokers: Brokers, tmp_path: Path, error: Exception
) -> None:
    """Its thread died, and it stayed a backup that follows nothing and never takes over."""
    primary, commits = brokers.primary("a", 30.0)
    commit(commits, QueueCreated(1, "q"))
    commit(commits, stored(1))
    brokers.servers.log("g").trim(primary.replica.position)

    def seed(log: ReplicatedLog, store: LmdbStore) -> LmdbStore:
        raise error

    backup = LogArbiter(
        lambda: brokers.servers.log("g"),
        LmdbStore(tmp_path / "b", sync=False),
        "b:5672",
        LEASE_S,
        lambda: NOW_US,
        seed=seed,
    )
    told: list[BaseException] = []

    def wait() -> None:
        try:
            backup.acquire_blocking()
        except BaseException as why:
            told.append(why)

    waiting = Thread(target=wait)
    waiting.start()
    waiting.join(PATIENCE_S)
    backup.close()
    assert told, "it waits for ever"
    assert str(error.args[-1]) in str(told[0])
