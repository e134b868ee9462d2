"""Silver of a portion of the ledger, written by the tasks that read its segments: nothing goes from task to task.

1. A task has some neighbouring segments. Most messages are stored and leave their queue within them: these are
   *settled* and written at once. What is *loose*, because the rest of its story is elsewhere, is put aside.
2. A fact may be elsewhere of a message that is settled: that is odd, for it was stored or left twice, or is told late.
   Such *strays* are found by their places, taken out of what was written, and are loose as well.
3. What is loose, and what was open before, is added up: few messages, unless many wait.
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
LOOSE_PER_TASK = 1_000_000
NO_ROWS = np.zeros(0, np.int64)
_ENCODINGS = dict.fromkeys(MESSAGE_TYPES, "DELTA_BINARY_PACKED")
"""Numbers that mostly differ from row to row are packed as differences, not looked up."""

SETTLED, OPEN = "open=false", "open=true"
"""Directories of a portion's silver, as Spark names partitions."""


class Keys(NamedTuple):
    """What messages are called."""

    queue: Ints
    seq: Ints


class Task(NamedTuple):
    """Some neighbouring segments, and the files in which to put what is settled in them, and what is loose."""

    segments: Sequence[Path]
    settled: Path
    loose: Path


class Ranges(NamedTuple):
    """From which place to which one there are messages, for each lane of each queue that has some."""

    queue: Ints
    first: Ints
    last: Ints


class Done(NamedTuple):
    """What came of a task."""

    settled: Path
    loose: Path
    ranges: Ranges
    """Of what is settled."""


class Share(NamedTuple):
    """What to add up of what is loose: one of `shares` parts."""

    loose: Sequence[Path]
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
    aside = portion / "_loose"
    for directory in (portion / SETTLED, portion / OPEN, aside):
        directory.mkdir(parents=True)
    parts = [segments[begin : begin + SEGMENTS_PER_TASK] for begin in range(0, len(segments), SEGMENTS_PER_TASK)]
    tasks = [
        Task(part, portion / SETTLED / f"part-{number:05d}.parquet", aside / f"{number:05d}.parquet")
        for number, part in enumerate(parts)
    ]
    done: list[Done] = run(settle, tasks)
    loose = [*(each.loose for each in done), *take_out_strays(done, before, aside / "strays.parquet")]
    count = sum(pq.read_metadata(path).num_rows for path in (*loose, *before))
    shares = 1 + count // LOOSE_PER_TASK
    run(settle_loose, [Share(loose, before, portion, number, shares) for number in range(shares)])
    shutil.rmtree(aside)


def settle(task: Task) -> Done:
    """Read segments, write what is settled in them, and put aside what is loose."""
    tallies = add_up([piece for segment in task.segments for piece in read_segment(segment)])
    loose = is_open(tallies)
    settled = rows_of(tallies, ~loose)
    if len(settled["seq"]):
        _write(messages_of(settled), task.settled)
    _write(messages_of(rows_of(tallies, loose)), task.loose)
    return Done(task.settled, task.loose, ranges_of(settled))


def ranges_of(tallies: Tallies) -> Ranges:
    """The ranges of places of messages, which ascend."""
    queue, seq = tallies["queue"], tallies["seq"]
    lane = seq >> LANE_SHIFT
    is_first, is_last = np.ones(len(seq), bool), np.ones(len(seq), bool)
    is_first[1:] = is_last[:-1] = (queue[1:] != queue[:-1]) | (lane[1:] != lane[:-1])
    return Ranges(queue[is_first], seq[is_first], seq[is_last])


def take_out_strays(done: Sequence[Done], before: Sequence[Path], aside: Path) -> list[Path]:
    """Take messages that are settled in one place and told of in another out of what was written, and put them aside.

    Returns:
        The file with them, if there are any.
    """
    loose = [_read_keys(path) for path in (*(each.loose for each in done), *before)]
    candidates = find_suspects([each.ranges for each in done], loose)
    keys = [_read_keys(done[number].settled) for number in candidates]
    strays: list[pa.Table] = []
    for number, is_stray in zip(candidates, find_repeated(keys, loose), strict=True):
        if is_stray.any():
            messages = _read(done[number].settled)
            strays.append(messages.filter(pa.array(is_stray)))
            _write(messages.filter(pa.array(~is_stray)), done[number].settled)
    if strays:
        _write(pa.concat_tables(strays), aside)
    return [aside] if strays else []


def find_suspects(ranges: Sequence[Ranges], loose: Sequence[Keys]) -> list[int]:
    """The tasks of which a message that is settled may be told of elsewhere as well: by the places alone.

    Args:
        ranges: of what each task has settled.
        loose: what is loose in each task, and then what is loose besides.
    """
    owner = _numbered([len(each.first) for each in ranges])
    queue, first, last = (np.concatenate([NO_ROWS, *column]) for column in zip(*ranges, strict=True))
    if not len(first):
        return []
    hulls = _hulls(queue, first, last)
    near = [_within_hulls(hulls, keys) for keys in loose]
    among = _numbered([len(keys.seq) for keys in near])
    loose_queue, loose_seq = (np.concatenate([NO_ROWS, *column]) for column in zip(*near, strict=True))
    found = _count_within((queue,), first, last, (loose_queue,), loose_seq) > _count_within(
        (owner, queue), first, last, (among, loose_queue), loose_seq
    )
    return sorted({*owner[found].tolist(), *owner[_overlapping(queue, first, last)].tolist()})


class Hulls(NamedTuple):
    """From which place to which one there are ranges, for each lane of each queue, which ascend."""

    lane: Ints
    first: Ints
    last: Ints


def _lane(queue: Ints, seq: Ints) -> Ints:
    """A lane of a queue in one number."""
    return queue << 8 | seq >> LANE_SHIFT


def _hulls(queue: Ints, first: Ints, last: Ints) -> Hulls:
    lane = _lane(queue, first)
    order = np.argsort(lane, kind="stable")
    lanes, begins = np.unique(lane[order], return_index=True)
    return Hulls(lanes, np.minimum.reduceat(first[order], begins), np.maximum.reduceat(last[order], begins))


def _within_hulls(hulls: Hulls, keys: Keys) -> Keys:
    """Those that may be in a range: of many that wait, all that come after what is settled are not."""
    lane = _lane(keys.queue, keys.seq)
    place = np.searchsorted(hulls.lane, lane).clip(max=len(hulls.lane) - 1)
    near = (hulls.lane[place] == lane) & (keys.seq >= hulls.first[place]) & (keys.seq <= hulls.last[place])
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


def find_repeated(settled: Sequence[Keys], loose: Sequence[Keys]) -> list[Mask]:
    """Of each of several lists of messages, those that are in another one of them, or loose."""
    pieces = [*settled, *loose]
    queue, seq = (np.concatenate([NO_ROWS, *column]) for column in zip(*pieces, strict=True))
    order = order_of(queue, seq)
    queue, seq = queue[order], seq[order]
    same = (queue[1:] == queue[:-1]) & (seq[1:] == seq[:-1])
    repeated = np.zeros(len(order), bool)
    repeated[order[1:]] = same
    repeated[order[:-1]] |= same
    return np.split(repeated, np.cumsum([len(keys.seq) for keys in pieces]))[: len(settled)]


def settle_loose(share: Share) -> None:
    """Add up a share of what is loose and what was open, and write what is settled by it and what is open still."""
    pieces = []
    for path in (*share.loose, *share.before):
        tallies = tallied(_read(path))
        pieces.append(rows_of(tallies, (tallies["queue"] + tallies["seq"]) % share.shares == share.number))
    tallies = add_up(pieces)
    still = is_open(tallies)
    for directory, rows in ((SETTLED, ~still), (OPEN, still)):
        if rows.any():
            _write(
                messages_of(rows_of(tallies, rows)),
                share.portion / directory / f"part-loose-{share.number:05d}.parquet",
            )


def _read(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    with pq.ParquetFile(path) as file:
        return file.read(columns=columns and list(columns), use_threads=False)


def _read_keys(path: Path) -> Keys:
    table = _read(path, MESSAGE)
    return Keys(*(np.asarray(table.column(name)).astype(np.int64) for name in MESSAGE))


def _write(messages: pa.Table, path: Path) -> None:
    """As a whole or not at all: what is done twice, perhaps at once, is done as if once."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4()}")
    pq.write_table(messages, temporary, compression="zstd", use_dictionary=False, column_encoding=_ENCODINGS)
    os.replace(temporary, path)
