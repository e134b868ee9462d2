"""A replica on a disk that is really full: what is in the log is committed, by the reserve; what finds no room is not
appended."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from legato.core.facts import QueueCreated
from legato.errors import StoreFullError
from legato.store.environment import used_bytes
from legato.store.reserve import RESERVE_BYTES, RESERVE_NAME
from tests.conformance.store import consumed, stored, waiting
from tests.integration.replication.test_arbiter import Brokers, commit
from tests.support.small_disk import SmallDisk, small_disk

SIZE = 10_000
COUNT = 300


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A disk for the stores alone."""
    with small_disk(tmp_path / "disk", 24 << 20) as disk:
        yield disk


@pytest.fixture
def brokers(disk: SmallDisk) -> Iterator[Brokers]:
    brokers = Brokers(disk.path)
    yield brokers
    brokers.close()


def test_a_primary_with_a_log_consumes_on_a_full_disk_and_refuses_producers(disk: SmallDisk, brokers: Brokers) -> None:
    """R6, as without a log: LMDB writes when the log has the record, so consuming itself ended the primary.

    A living reader holds all free pages: everything that is written needs new ones.
    """
    primary, commits = brokers.primary("a", 30.0)
    store = primary.store
    commit(commits, QueueCreated(1, "q"))
    with store._env.begin():
        for first in range(1, COUNT, 10):
            commit(commits, *[stored(seq, size=SIZE) for seq in range(first, first + 10)])
        os.truncate(store.path / "data.mdb", used_bytes(store._env))
        disk.fill()
        before = brokers.servers.bounds().last
        with pytest.raises(StoreFullError, match="for consuming"):
            commit(commits, stored(COUNT + 1, size=SIZE))
        assert brokers.servers.bounds().last == before, "it was appended"
        assert (store.path / RESERVE_NAME).exists(), "producers do not get it"
        for first in range(1, COUNT, 10):
            commit(commits, *[consumed(seq) for seq in range(first, first + 10)])
        assert not (store.path / RESERVE_NAME).exists()
        with pytest.raises(StoreFullError, match="for consuming"):
            commit(commits, stored(COUNT + 1, size=RESERVE_BYTES))
    assert not commits.lost
    assert waiting(store) == []
    disk.empty()
    commit(commits, stored(COUNT + 1, size=SIZE))
    assert waiting(store) == [COUNT + 1]
