"""Ranges are cut so that every message is in one part, and parts are alike."""

from hypothesis import given
from hypothesis import strategies as st

from legato.bulk.planning import cut
from legato.core.records import Run

LANE = 1 << 56


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), max_size=20), st.integers(1, 9), st.integers(0, 900))
def test_every_message_is_in_one_part(gaps: list[tuple[int, int]], parts: int, through: int) -> None:
    runs, seq = [], 0
    for gap, count in gaps:
        runs.append(Run(seq + gap, count, 0))
        seq += gap + count
    runs = [run for run in runs if run.seq <= through]
    waiting = [seq for run in runs for seq in range(run.seq, run.seq + run.count) if seq <= through]
    found = cut(runs, through, parts)
    assert [seq for part in found for seq in waiting if part.after < seq <= part.through] == waiting
    assert [part.rows for part in found] == [sum(part.after < s <= part.through for s in waiting) for part in found]
    assert len(found) <= parts


def test_no_part_spans_lanes() -> None:
    runs = [Run(1, 5, 0), Run(LANE + 1, 5, 0)]
    assert [(part.after, part.rows) for part in cut(runs, 2 * LANE, 1)] == [(0, 5), (LANE, 5)]


def test_nothing_is_no_part() -> None:
    assert cut([], 100, 4) == []
