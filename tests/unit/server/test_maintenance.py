"""What a broker does about its store's room now and then, off its loop."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from legato import limits
from legato.clock import SystemClock
from legato.core.facts import QueueMarked
from legato.core.records import Batch
from legato.server.config.configuration import StoreSection
from legato.server.storage import maintenance
from legato.server.storage.maintenance import Upkeep
from legato.store.lmdb import LmdbStore
from tests.conformance.store import NOW_US

BYTES = 40_000


@pytest.fixture
def upkept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[LmdbStore, Upkeep]:
    monkeypatch.setattr(maintenance, "_PRUNE_PAUSE_S", 0.0)
    store = LmdbStore(tmp_path / "store", sync=False, map_bytes=1 << 26)
    section = StoreSection(directory=str(tmp_path), log_bytes=BYTES, free_disk_reserve_bytes=0)
    return store, Upkeep(store, section, SystemClock())


def commit(store: LmdbStore, epoch: int, count: int) -> None:
    for number in range(count):
        store.commit(Batch(epoch, NOW_US, [QueueMarked(1, number, number, number)], []))


def test_the_bound_of_the_log_holds_however_much_is_committed_between_two_looks(
    upkept: tuple[LmdbStore, Upkeep], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look trimmed so many records, and with more commits than that until the next one the log grew for ever."""
    monkeypatch.setattr(limits, "LOG_TRIM_RECORDS", 20)
    store, kept = upkept
    epoch = store.begin_epoch("b", NOW_US).epoch
    for _ in range(5):
        commit(store, epoch, 1000)
        kept.forget(False)
        assert store.log_bytes() <= 1.5 * BYTES, "whole pages"
    store.close()


def test_a_small_map_bounds_the_log_by_its_share_of_it(tmp_path: Path) -> None:
    """With the bound of a large store the log alone filled the map, and nothing made room again."""
    map_bytes = 1 << 20
    store = LmdbStore(tmp_path / "store", sync=False, map_bytes=map_bytes)
    section = StoreSection(directory=str(tmp_path), map_bytes=map_bytes, free_disk_reserve_bytes=0)
    kept = Upkeep(store, section, SystemClock())
    epoch = store.begin_epoch("b", NOW_US).epoch
    for _ in range(20):
        commit(store, epoch, 1000)
        kept.forget(False)
    assert 0 < store.log_bytes() <= map_bytes * limits.LOG_SHARE + 3 * 4096
    store.close()


def test_what_a_ledger_has_goes_at_once_but_for_its_last_commit(
    upkept: tuple[LmdbStore, Upkeep], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By that one the next exporter knows whether the ledger is of this store."""
    monkeypatch.setattr(limits, "LOG_TRIM_RECORDS", 7)
    store, kept = upkept
    commit(store, store.begin_epoch("b", NOW_US).epoch, 99)
    kept.exported_through = lambda: 90
    kept.forget(False)
    assert store.log_range() == (90, 100)
    kept.forget(False)
    assert store.log_range() == (90, 100)
    store.close()


def test_facts_that_no_ledger_has_are_told_of_once(
    upkept: tuple[LmdbStore, Upkeep], caplog: pytest.LogCaptureFixture
) -> None:
    """It was said every two seconds for ever."""
    store, kept = upkept
    epoch = store.begin_epoch("b", NOW_US).epoch

    def told(looks: int) -> int:
        caplog.clear()
        for _ in range(looks):
            commit(store, epoch, 1000)
            kept.forget(False)
            kept.forget(False)
        return caplog.text.count("go before a ledger has them")

    assert told(5) == 1
    kept.exported_through = lambda: store.log_range()[1]
    assert told(2) == 0
    kept.exported_through = lambda: 0
    assert told(5) == 1, "once more, as a ledger had all in between"
    store.close()


def test_a_backup_says_that_its_own_ledger_will_lack_facts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The primary's ledger may have all of them."""
    caplog.set_level("INFO")
    store = LmdbStore(tmp_path / "store", sync=False, map_bytes=1 << 26)
    section = StoreSection(directory=str(tmp_path), log_bytes=BYTES, free_disk_reserve_bytes=0)
    kept = Upkeep(store, section, SystemClock(), follows=True)
    epoch = store.begin_epoch("b", NOW_US).epoch
    for _ in range(3):
        commit(store, epoch, 1000)
        kept.forget(False)
    (told,) = [record for record in caplog.records if "the log of facts exceeds" in record.message]
    assert told.levelname == "INFO"
    assert "the ledger of this broker will lack them" in told.message
    store.close()


def test_free_disk_and_reserve_are_told_with_digits_that_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that 3 MiB are free, and that the reserve is 3 MiB; and it left out what counted as free besides."""
    store = LmdbStore(tmp_path / "store", sync=False, map_bytes=1 << 26)
    usage = store.usage()
    free = usage.free_disk_bytes + usage.file_room_bytes
    monkeypatch.setattr(store, "usage", lambda: usage)
    for missing in (1, 1 << 20, 1 << 30):
        section = StoreSection(directory=str(tmp_path), free_disk_reserve_bytes=free + missing)
        full = Upkeep(store, section, SystemClock()).full
        told = re.fullmatch(r"only (.*) of the disk are free, .*; store\.free_disk_reserve_bytes is (.*)", full)
        assert told is not None, full
        assert told[1] != told[2]
    store.close()
