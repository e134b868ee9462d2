"""Planner of a range's parts: about equal row counts, from block heads alone."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from legato.core.records import Run
from legato.store.lanes import LANE_SHIFT, lane_of
from legato.store.lmdb import LmdbStore

_EVERYTHING = 1 << 62


class RangePart(msgspec.Struct, frozen=True):
    """Messages with `after` < seq <= `through`: `rows` of them now."""

    after: int
    through: int
    rows: int


def plan(store: LmdbStore, queue: int, after: int, through: int, parts: int) -> list[RangePart]:
    """Cut what waits in a range, which may span lanes, into about `parts` parts, of which none spans lanes."""
    runs: list[Run] = []
    for lane in range(lane_of(after), lane_of(through) + 1):
        begin = max(after, lane << LANE_SHIFT)
        runs += [run for run in store.runs(queue, begin, _EVERYTHING, _EVERYTHING, frozenset()) if run.seq <= through]
    return cut(runs, through, parts)


def cut(runs: Sequence[Run], through: int, parts: int) -> list[RangePart]:
    """Cut runs (ascending) into about `parts` parts; what is above `through` is left out."""
    total = sum(min(run.count, through - run.seq + 1) for run in runs)
    share = max(-(-total // max(parts, 1)), 1)
    found: list[RangePart] = []
    begin = rows = last = 0
    for run in runs:
        count = min(run.count, through - run.seq + 1)
        seq = run.seq
        if rows and lane_of(seq) != lane_of(last):
            found.append(RangePart(begin, last, rows))
            rows = 0
        while count:
            if not rows:
                begin = seq - 1
            step = min(count, share - rows)
            rows += step
            seq += step
            count -= step
            last = seq - 1
            if rows == share:
                found.append(RangePart(begin, last, rows))
                rows = 0
    if rows:
        found.append(RangePart(begin, last, rows))
    return found
