"""The broker's store does what a store must, also where its transaction stays open and a journal makes commits durable.

Nothing here needs the disk to have what was written.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from legato.store.lmdb import LmdbStore
from legato.store.transactions import Keeping
from tests.conformance.store import StoreTests
from tests.conformance.store_duplicates import StoreDuplicateTests
from tests.conformance.store_larges import StoreLargeTests
from tests.conformance.store_places import StorePlaceTests
from tests.conformance.store_runs import StoreRunTests
from tests.conformance.store_staged import StoreStagedTests
from tests.conformance.store_taken import StoreTakenTests
from tests.conformance.store_topics import StoreTopicTests

KEEPING = {
    "at once": Keeping(checkpoint_s=0.0, journal_bytes=8 << 20),
    "never": Keeping(checkpoint_s=1e6, journal_bytes=8 << 20),
    "full again and again": Keeping(checkpoint_s=1e6, journal_bytes=12_000),
}
"""When there is a checkpoint; in a segment of the last there is room for a few small commits."""


@pytest.fixture(params=KEEPING)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LmdbStore]:
    store = LmdbStore(tmp_path / "store", sync=False, keeping=KEEPING[request.param])
    yield store
    store.close()


class TestStore(StoreTests):
    pass


class TestTopics(StoreTopicTests):
    pass


class TestPlaces(StorePlaceTests):
    pass


class TestLarges(StoreLargeTests):
    pass


class TestDuplicates(StoreDuplicateTests):
    pass


class TestTaken(StoreTakenTests):
    pass


class TestRuns(StoreRunTests):
    pass


class TestStaged(StoreStagedTests):
    pass
