"""The model of a store does what a store must."""

import pytest

from legato.store.memory import MemoryStore
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
def store() -> MemoryStore:
    return MemoryStore()


class TestMemoryStore(StoreTests):
    pass


class TestMemoryStoreTopics(StoreTopicTests):
    pass


class TestMemoryStorePlaces(StorePlaceTests):
    pass


class TestMemoryStoreLarges(StoreLargeTests):
    pass


class TestMemoryStoreDuplicates(StoreDuplicateTests):
    pass


class TestMemoryStoreTaken(StoreTakenTests):
    pass


class TestMemoryStoreRuns(StoreRunTests):
    pass


class TestMemoryStoreStaged(StoreStagedTests):
    pass


class TestMemoryStoreRecords(StoreRecordTests):
    pass
