"""The model of a store does what a store must."""

import pytest

from legato.store.memory import MemoryStore
from tests.conformance.store import StoreTests


class TestMemoryStore(StoreTests):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()
