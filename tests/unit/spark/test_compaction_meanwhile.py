"""Who looks at a ledger's segments while they are compacted finds them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from legato.spark.exporter import Exporter
from legato.spark.ledger import segments
from legato.spark.ledger.compaction import compact
from legato.spark.ledger.segments import SegmentSpan, live, segments_of
from legato.store.memory import MemoryStore
from tests.unit.spark.test_segments import grow

COMPACTED_S = 1.0
"""A compaction that does not have to wait for readers takes less."""


LOOKS: list[Callable[[MemoryStore, Path], object]] = [Exporter, lambda _store, ledger: segments_of(ledger)]


@pytest.mark.parametrize("look", LOOKS)
def test_a_compaction_waits_for_who_has_listed_the_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Callable[[MemoryStore, Path], object]
) -> None:
    """`The segment ... cannot be read. Bring it back from a copy`: the exporter of a broker that began ended so."""
    store = MemoryStore()
    for _ in range(3):
        grow(store, 2)
        Exporter(store, tmp_path).finish(0.0)
    compactions: list[threading.Thread] = []

    def listed(found: list[SegmentSpan]) -> list[SegmentSpan]:
        spans = live(found)
        if not compactions:
            compactions.append(threading.Thread(target=compact, args=(tmp_path,)))
            compactions[0].start()
            compactions[0].join(COMPACTED_S)
        return spans

    with monkeypatch.context() as patch:
        patch.setattr(segments, "live", listed)
        look(store, tmp_path)
    compactions[0].join()
    assert len(segments_of(tmp_path)) == 1
