"""What a worker of Spark imported is left out of the collections after its tasks; nothing that came later is."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from types import ModuleType

import pytest

from legato.spark.connector import spared_collections
from legato.spark.connector.spared_collections import spare_collections


class Cycle:
    itself: object


@pytest.fixture(autouse=True)
def collections(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(spared_collections, "_spared", set())
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    gc.unfreeze()
    yield
    # As it was (`tests/conftest.py`): what pytest collected stays, and no later collection looks through it.
    gc.freeze()


def test_a_worker_leaves_out_what_it_imported_and_what_comes_with_its_first_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spared_collections, "is_spark_worker", lambda: True)
    assert spare_collections()
    assert gc.get_freeze_count() > 1000
    assert not spare_collections()
    later: list[list[int]] = [[] for _ in range(10_000)]
    monkeypatch.setitem(sys.modules, "pandas", ModuleType("pandas"))
    frozen = gc.get_freeze_count()
    assert spare_collections()
    # Others may have let go of some meanwhile.
    assert gc.get_freeze_count() > frozen + len(later) // 2
    assert not spare_collections()


def test_cycles_that_came_later_are_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spared_collections, "is_spark_worker", lambda: True)
    spare_collections()
    cycle = Cycle()
    cycle.itself, late = cycle, weakref.ref(cycle)
    del cycle
    gc.collect()
    assert late() is None


def test_a_program_of_the_users_is_left_as_it_is() -> None:
    assert not spare_collections()
    assert gc.get_freeze_count() == 0
