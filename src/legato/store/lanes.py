"""Lanes in the store: the highest byte of a sequence number."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from legato.core.records import QueueRecord

LANE_SHIFT = 56
LANE_SEQS = 1 << LANE_SHIFT
"""As many sequence numbers has a lane; those of lane 0 are below it."""


def lane_of(seq: int) -> int:
    """The lane in which a sequence number is."""
    return seq >> LANE_SHIFT


def last_of(record: QueueRecord, seq: int) -> int:
    """The last sequence that the lane of `seq` has had."""
    lane = lane_of(seq)
    return record.lanes.get(lane, (0, 0))[0] if lane else record.last_seq


def note_last(record: QueueRecord, seq: int) -> None:
    """A message has been stored at `seq`."""
    lane = lane_of(seq)
    if lane == 0:
        record.last_seq = max(record.last_seq, seq)
    else:
        last, mark = record.lanes.get(lane, (0, 0))
        record.lanes[lane] = (max(last, seq), mark)


def note_mark(record: QueueRecord, seq: int) -> None:
    """Messages of the lane of `seq`, up to it, may have been delivered."""
    lane = lane_of(seq)
    if lane == 0:
        record.dispatch_mark = max(record.dispatch_mark, seq)
    else:
        last, mark = record.lanes.get(lane, (0, 0))
        record.lanes[lane] = (last, max(mark, seq))


def last_of_lanes(seqs: Sequence[int]) -> list[int]:
    """The last of `seqs` (ascending) in each lane that there is."""
    found: list[int] = []
    position = 0
    while position < len(seqs):
        position = bisect_left(seqs, (lane_of(seqs[position]) + 1) << LANE_SHIFT, position)
        found.append(seqs[position - 1])
    return found


def split_by_last(record: QueueRecord, seqs: Sequence[int]) -> tuple[list[int], list[int]]:
    """Split `seqs` (ascending) into those that their lanes have had before, and those behind them."""
    below: list[int] = []
    above: list[int] = []
    position = 0
    while position < len(seqs):
        lane = lane_of(seqs[position])
        end = bisect_left(seqs, (lane + 1) << LANE_SHIFT, position)
        last = record.lanes.get(lane, (0, 0))[0] if lane else record.last_seq
        middle = bisect_right(seqs, last, position, end)
        below += seqs[position:middle]
        above += seqs[middle:end]
        position = end
    return below, above
