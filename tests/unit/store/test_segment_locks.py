"""Locks of a ledger: whoever makes one, its owner can take it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from legato.spark.ledger.segments import LOCK_NAME, LedgerLock
from legato.store.segment_locks import READERS_LOCK_NAME, being_read

NOBODY = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_lock_that_root_makes_is_the_ledgers_owners(tmp_path: Path) -> None:
    """An audit by root, and the broker's user could not compact the ledger any more."""
    os.chown(tmp_path, NOBODY, NOBODY)
    with being_read(tmp_path):
        assert (tmp_path / READERS_LOCK_NAME).stat().st_uid == NOBODY


def test_a_link_in_the_place_of_a_lock_makes_no_file_elsewhere(tmp_path: Path) -> None:
    (ledger := tmp_path / "ledger").mkdir()
    (ledger / READERS_LOCK_NAME).symlink_to(tmp_path / "elsewhere")
    with being_read(ledger):
        assert not (tmp_path / "elsewhere").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_that_was_there_is_not_given_away(tmp_path: Path) -> None:
    (ledger := tmp_path / "ledger").mkdir()
    os.chown(ledger, NOBODY, NOBODY)
    (other := tmp_path / "others").touch()
    (ledger / READERS_LOCK_NAME).symlink_to(other)
    with being_read(ledger):
        assert other.stat().st_uid == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_lock_of_an_exporter_that_root_runs_is_the_ledgers_owners(tmp_path: Path) -> None:
    """An export by root, and the broker could export nothing any more."""
    os.chown(tmp_path, NOBODY, NOBODY)
    LedgerLock(tmp_path).close()
    assert (tmp_path / LOCK_NAME).stat().st_uid == NOBODY
