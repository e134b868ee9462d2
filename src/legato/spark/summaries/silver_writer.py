"""Writer of silver, a row for each message, in the tasks that read the segments: nothing is shuffled.

1. A task reads some neighbouring segments. A message that is stored and leaves its queue within them is *closed*, and
   written at once. The others are *unmatched*, because the rest of their story is elsewhere, and put aside.
2. A message that is closed in one task may be *cross-task*: another task has a fact of it too, for it was stored or
   left twice, or a fact comes late. Such messages are found by their places, taken out of what was written, and
   unmatched as well.
3. What is unmatched, and what was open before, is added up: few messages, unless many wait.
"""

import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from legato.core.lanes import LANE_SHIFT
from legato.spark.ledger.segments import TABLES_ANEW, opened
from legato.spark.runtime.worker_processes import Run
from legato.spark.summaries.message_summary import MESSAGE, MESSAGE_TYPES
from legato.spark.summaries.message_summary_numpy import (
    Ints,
    Mask,
    Tallies,
    add_up,
    is_open,
    messages_of,
    order_of,
    read_segment,
    rows_of,
    tallied,
)

SEGMENTS_PER_TASK = 8
"""Bounds its memory: at most a quarter of a million rows are in a segment."""
UNMATCHED_PER_TASK = 1_000_000
NO_ROWS = np.zeros(0, np.int64)
_ENCODINGS = dict.fromkeys(MESSAGE_TYPES, "DELTA_BINARY_PACKED")
"""Numbers that mostly differ from row to row are packed as differences, not looked up."""

CLOSED, OPEN = "open=false", "open=true"
"""Directories of a portion's silver, as Spark names partitions."""


class Keys(NamedTuple):
    """What messages are called."""

    queue: Ints
    seq: Ints


class Task(NamedTuple):
    """Some neighbouring segments, and the files in which to put what is closed in them, and what is unmatched."""

    segments: Sequence[Path]
    closed: Path
    unmatched: Path


class Ranges(NamedTuple):
    """From which place to which one there are messages, for each lane of each queue that has some."""

    queue: Ints
    first: Ints
    last: Ints


class Done(NamedTuple):
    """What came of a task."""

    closed: Path
    unmatched: Path
    ranges: Ranges
    """Of what is closed."""


class Share(NamedTuple):
    """What to add up of what is unmatched: one of `shares` parts."""

    unmatched: Sequence[Path]
    before: Sequence[Path]
    portion: Path
    number: int
    shares: int


def write_silver(segments: Sequence[Path], before: Sequence[Path], portion: Path, run: Run) -> None:
    """Write the silver of a portion; what was written of it before is replaced.

    Args:
        segments: files of the ledger, in the order of the log.
        before: files of the messages that were open after the last portion.
        portion: the directory to write.
        run: calls functions of this module where all these files have the same names.
    """
    shutil.rmtree(portion, ignore_errors=True)
    aside = portion / "_unmatched"
    for directory in (portion / CLOSED, portion / OPEN, aside):
        directory.mkdir(parents=True)
    parts = [segments[begin : begin + SEGMENTS_PER_TASK] for begin in range(0, len(segments), SEGMENTS_PER_TASK)]
    tasks = [
        Task(part, portion / CLOSED / f"part-{number:05d}.parquet", aside / f"{number:05d}.parquet")
        for number, part in enumerate(parts)
    ]
    done: list[Done] = run(write_closed, tasks)
    unmatched = [*(each.unmatched for each in done), *take_out_cross_task(done, before, aside / "cross_task.parquet")]
    count = sum(pq.read_metadata(path).num_rows for path in (*unmatched, *before))
    shares = 1 + count // UNMATCHED_PER_TASK
    run(write_unmatched, [Share(unmatched, before, portion, number, shares) for number in range(shares)])
    shutil.rmtree(aside)


def write_closed(task: Task) -> Done:
    """Read segments, write what is closed in them, and put aside what is unmatched."""
    tallies = add_up([piece for segment in task.segments for piece in read_segment(segment)])
    unmatched = is_open(tallies)
    closed = rows_of(tallies, ~unmatched)
    if len(closed["seq"]):
        _write(messages_of(closed), task.closed)
    _write(messages_of(rows_of(tallies, unmatched)), task.unmatched)
    return Done(task.closed, task.unmatched, ranges_of(closed))


def ranges_of(tallies: Tallies) -> Ranges:
    """The ranges of places of messages, which ascend."""
    queue, seq = tallies["queue"], tallies["seq"]
    lane = seq >> LANE_SHIFT
    is_first, is_last = np.ones(len(seq), bool), np.ones(len(seq), bool)
    is_first[1:] = is_last[:-1] = (queue[1:] != queue[:-1]) | (lane[1:] != lane[:-1])
    return Ranges(queue[is_first], seq[is_first], seq[is_last])


def take_out_cross_task(done: Sequence[Done], before: Sequence[Path], aside: Path) -> list[Path]:
    """Take messages that are closed in one place and told of in another out of what was written, and put them aside.

    Returns:
        The file with them, if there are any.
    """
    unmatched = [_read_keys(path) for path in (*(each.unmatched for each in done), *before)]
    candidates = find_doubtful_tasks([each.ranges for each in done], unmatched)
    keys = [_read_keys(done[number].closed) for number in candidates]
    cross_task: list[pa.Table] = []
    for number, is_cross_task in zip(candidates, find_repeated(keys, unmatched), strict=True):
        if is_cross_task.any():
            messages = _read(done[number].closed)
            cross_task.append(messages.filter(pa.array(is_cross_task)))
            _write(messages.filter(pa.array(~is_cross_task)), done[number].closed)
    if cross_task:
        _write(pa.concat_tables(cross_task), aside)
    return [aside] if cross_task else []


def find_doubtful_tasks(ranges: Sequence[Ranges], unmatched: Sequence[Keys]) -> list[int]:
    """The tasks of which a message that is closed may be told of elsewhere as well: by the places alone.

    Args:
        ranges: of what each task has closed.
        unmatched: what is unmatched in each task, and then what is unmatched besides.
    """
    owner = _numbered([len(each.first) for each in ranges])
    queue, first, last = (np.concatenate([NO_ROWS, *column]) for column in zip(*ranges, strict=True))
    if not len(first):
        return []
    lane_ranges = _lane_ranges(queue, first, last)
    near = [_within_lane_ranges(lane_ranges, keys) for keys in unmatched]
    among = _numbered([len(keys.seq) for keys in near])
    loose_queue, loose_seq = (np.concatenate([NO_ROWS, *column]) for column in zip(*near, strict=True))
    found = _count_within((queue,), first, last, (loose_queue,), loose_seq) > _count_within(
        (owner, queue), first, last, (among, loose_queue), loose_seq
    )
    return sorted({*owner[found].tolist(), *owner[_overlapping(queue, first, last)].tolist()})


class LaneRanges(NamedTuple):
    """From which place to which one there are ranges, for each lane of each queue, which ascend."""

    lane: Ints
    first: Ints
    last: Ints


def _lane(queue: Ints, seq: Ints) -> Ints:
    """A lane of a queue in one number."""
    return queue << 8 | seq >> LANE_SHIFT


def _lane_ranges(queue: Ints, first: Ints, last: Ints) -> LaneRanges:
    lane = _lane(queue, first)
    order = np.argsort(lane, kind="stable")
    lanes, begins = np.unique(lane[order], return_index=True)
    return LaneRanges(lanes, np.minimum.reduceat(first[order], begins), np.maximum.reduceat(last[order], begins))


def _within_lane_ranges(lane_ranges: LaneRanges, keys: Keys) -> Keys:
    """Those that may be in a range: of many that wait, all that come after what is closed are not."""
    lane = _lane(keys.queue, keys.seq)
    place = np.searchsorted(lane_ranges.lane, lane).clip(max=len(lane_ranges.lane) - 1)
    near = (
        (lane_ranges.lane[place] == lane)
        & (keys.seq >= lane_ranges.first[place])
        & (keys.seq <= lane_ranges.last[place])
    )
    return Keys(keys.queue[near], keys.seq[near])


def _numbered(lengths: Sequence[int]) -> Ints:
    return np.repeat(np.arange(len(lengths)), lengths)


def _count_within(by: Sequence[Ints], first: Ints, last: Ints, of: Sequence[Ints], seq: Ints) -> Ints:
    """How many places are in each range, among those that have the same numbers `of` as it has `by`."""
    kind = np.repeat([0, 1, 2], [len(first), len(seq), len(last)])
    places = np.concatenate((first, seq, last))
    numbers = [np.concatenate((mine, theirs, mine)) for mine, theirs in zip(by, of, strict=True)]
    order = np.lexsort((kind, places, *reversed(numbers)))
    before = np.empty(len(order), np.int64)
    before[order] = np.cumsum(kind[order] == 1)
    return before[len(before) - len(last) :] - before[: len(first)]


def _overlapping(queue: Ints, first: Ints, last: Ints) -> Ints:
    """Which ranges have places in common with others."""
    order, by_end = order_of(queue, first), order_of(queue, last)
    rank = np.empty(len(order), np.int64)
    rank[by_end] = np.arange(len(order))
    furthest = by_end[np.maximum.accumulate(rank[order])]
    here, there = order[1:], furthest[:-1]
    common = (queue[here] == queue[there]) & (first[here] <= last[there])
    return np.concatenate((here[common], there[common]))


def find_repeated(closed: Sequence[Keys], unmatched: Sequence[Keys]) -> list[Mask]:
    """Of each of several lists of messages, those that are in another one of them, or unmatched."""
    pieces = [*closed, *unmatched]
    queue, seq = (np.concatenate([NO_ROWS, *column]) for column in zip(*pieces, strict=True))
    order = order_of(queue, seq)
    queue, seq = queue[order], seq[order]
    same = (queue[1:] == queue[:-1]) & (seq[1:] == seq[:-1])
    repeated = np.zeros(len(order), bool)
    repeated[order[1:]] = same
    repeated[order[:-1]] |= same
    return np.split(repeated, np.cumsum([len(keys.seq) for keys in pieces]))[: len(closed)]


def write_unmatched(share: Share) -> None:
    """Add up a share of what is unmatched and what was open, and write what is closed by it and what is open still."""
    pieces = []
    for path in (*share.unmatched, *share.before):
        tallies = tallied(_read(path))
        pieces.append(rows_of(tallies, (tallies["queue"] + tallies["seq"]) % share.shares == share.number))
    tallies = add_up(pieces)
    still = is_open(tallies)
    for directory, rows in ((CLOSED, ~still), (OPEN, still)):
        if rows.any():
            _write(
                messages_of(rows_of(tallies, rows)),
                share.portion / directory / f"part-loose-{share.number:05d}.parquet",
            )


def _read(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    with opened(path, "table's file", TABLES_ANEW) as file:
        return file.read(columns=columns and list(columns), use_threads=False)


def _read_keys(path: Path) -> Keys:
    table = _read(path, MESSAGE)
    return Keys(*(np.asarray(table.column(name)).astype(np.int64) for name in MESSAGE))


def _write(messages: pa.Table, path: Path) -> None:
    """As a whole or not at all: what is done twice, perhaps at once, is done as if once."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4()}")
    pq.write_table(
        messages,
        temporary,
        compression="zstd",
        use_dictionary=False,
        column_encoding=_ENCODINGS,
        write_page_checksum=True,
    )
    os.replace(temporary, path)
