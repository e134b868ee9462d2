"""The broker's store does what a store must. Nothing here needs the disk to have what was written."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from legato.store.lmdb import LmdbStore
from tests.conformance.store import StoreTests
from tests.conformance.store_duplicates import StoreDuplicateTests
from tests.conformance.store_larges import StoreLargeTests
from tests.conformance.store_places import StorePlaceTests
from tests.conformance.store_records import StoreRecordTests
from tests.conformance.store_runs import StoreRunTests
from tests.conformance.store_staged import StoreStagedTests
from tests.conformance.store_taken import StoreTakenTests
from tests.conformance.store_topics import StoreTopicTests


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LmdbStore]:
    store = LmdbStore(tmp_path / "store", sync=False)
    yield store
    store.close()


class TestLmdbStore(StoreTests):
    pass


class TestLmdbStoreTopics(StoreTopicTests):
    pass


class TestLmdbStorePlaces(StorePlaceTests):
    pass


class TestLmdbStoreLarges(StoreLargeTests):
    pass


class TestLmdbStoreDuplicates(StoreDuplicateTests):
    pass


class TestLmdbStoreTaken(StoreTakenTests):
    pass


class TestLmdbStoreRuns(StoreRunTests):
    pass


class TestLmdbStoreStaged(StoreStagedTests):
    pass


class TestLmdbStoreRecords(StoreRecordTests):
    pass
