"""What a store forgot before its exporter read it is missing in the ledger, and the names of the segments say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from legato.spark import exporter as exporters
from legato.spark.exporter import Exporter
from legato.spark.ledger.segments import SegmentSpan, segments_of, why_incomplete
from legato.store.memory import MemoryStore
from tests.unit.spark.test_segments import grow, seqs_in


@pytest.mark.parametrize("fails", [False, True])
def test_facts_forgotten_behind_those_in_memory_are_no_part_of_their_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """The ledger's directory hung, and the log went beyond its bound: nobody was told of commits that were missing."""
    store = MemoryStore()
    before = grow(store, 3)
    exporter = Exporter(store, tmp_path, segment_s=2.0)
    assert exporter.poll(100.0) == []
    if fails:
        with monkeypatch.context() as patch:

            def write_segment(*_: object) -> SegmentSpan:
                raise OSError("it hung")

            patch.setattr(exporters, "write_segment", write_segment)
            with pytest.raises(OSError, match="hung"):
                exporter.poll(102.0)
    forgotten = grow(store, 4)
    store.trim_log(forgotten, 1000)
    last = grow(store, 2)
    written = exporter.finish(200.0)
    assert written == [SegmentSpan(1, before), SegmentSpan(forgotten + 1, last)]
    assert seqs_in(tmp_path) == [1, 2, 3, 8, 9]
    assert len(segments_of(tmp_path)) == 2
    assert f"Commits are missing in {tmp_path}: {before + 1}-{forgotten}." in why_incomplete(tmp_path)
