"""Runs of neighbouring messages without gaps: located without reading bodies, and moved block by block."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence, Set
from typing import Any

from legato.core.records import Run
from legato.errors import StoreError
from legato.store.block_reader import SharedBodies, blocks_after, find_block, values_in_lane
from legato.store.block_writer import BlockWriter, new_blocks
from legato.store.blocks import Block, Outline, RawBlock, outline, raw_block
from legato.store.keys import place_key, read_place
from legato.store.larges import LargeCounts


def find_runs(cursor: Any, queue: int, after: int, limit: int, limit_bytes: int, without: Set[int]) -> Sequence[Run]:
    """See `Archive.runs`."""
    left_out = sorted(seq for seq in without if seq > after)
    runs: list[Run] = []
    for first, value in values_in_lane(cursor, queue, after):
        if limit <= 0 or limit_bytes < 0:
            break
        whole = outline(first, value)
        if whole is not None and after < whole.lowest and whole.rows <= limit and not _any_of(left_out, whole):
            found = [Run(whole.lowest, whole.rows, whole.size)]
        else:
            found = list(_runs_of(Block(queue, first, value), after, limit, left_out))
        for run in found:
            _join(runs, run)
            limit -= run.count
            limit_bytes -= run.size
    return runs


def _any_of(left_out: Sequence[int], whole: Outline) -> bool:
    if not left_out:
        return False
    position = bisect_left(left_out, whole.lowest)
    return position < len(left_out) and left_out[position] <= whole.last


def _runs_of(block: Block, after: int, limit: int, left_out: Sequence[int]) -> Iterator[Run]:
    """The runs of one block, at most `limit` messages together."""
    begin = block.index_after(after)
    excluded = set(left_out[bisect_left(left_out, block.first) : bisect_right(left_out, block.last)])
    if not begin and not excluded and block.count <= limit and block.is_dense:
        yield Run(block.lowest, block.count, block.total_size())
        return
    taken = [index for index, seq in enumerate(block.seqs(begin), begin) if seq not in excluded][:limit]
    seqs = block.seqs()
    start = 0
    for position in range(1, len(taken) + 1):
        if position < len(taken) and seqs[taken[position]] == seqs[taken[position - 1]] + 1:
            continue
        indexes = taken[start:position]
        yield Run(seqs[indexes[0]], len(indexes), sum(map(block.size, indexes)))
        start = position


def _join(runs: list[Run], run: Run) -> None:
    if runs and runs[-1].seq + runs[-1].count == run.seq:
        last = runs[-1]
        runs[-1] = Run(last.seq, last.count + run.count, last.size + run.size)
    else:
        runs.append(run)


def raw_blocks(
    cursor: Any, deliveries: Any, queue: int, after: int, through: int, limit_bytes: int
) -> list[RawBlock] | None:
    """The blocks that hold what is above `after` and not above `through`, until `limit_bytes` are exceeded.

    None if one of them does not say everything: copies of what a topic keeps, or messages with failed deliveries.
    """
    if deliveries.set_range(place_key(queue, after + 1)) and read_place(deliveries.key()) <= (queue, through):
        return None
    found: list[RawBlock] = []
    first = find_block(cursor, queue, after)
    there = first is not None or cursor.set_range(place_key(queue, after))
    if first is not None and first.last <= after:
        there = cursor.next()
    while there and limit_bytes >= 0:
        owner, begin = read_place(cursor.key())
        if owner != queue or begin > through:
            break
        raw = raw_block(queue, begin, cursor.value())
        if raw is None:
            return None
        found.append(raw)
        limit_bytes -= len(raw.content)
        there = cursor.next()
    return found


class RunMover:
    """Moves runs to the end of another queue, inside a write transaction; whole blocks move unchanged.

    Args:
        cursor: on the messages, as `writer` and of nobody else.
        shared: another cursor on the messages, for the bodies that topics keep.
        larges: where to note which stubs come.
    """

    def __init__(self, cursor: Any, shared: Any, writer: BlockWriter, larges: LargeCounts) -> None:
        self._cursor = cursor
        self._shared = shared
        self._writer = writer
        self._larges = larges

    def move(self, queue: int, run: Run, to: int, number: int) -> int:
        """Move a run; returns the size of its bodies.

        Raises:
            StoreError: it is not there as a whole.
        """
        seq, end, size = run.seq, run.seq + run.count, 0
        while seq < end:
            whole = self._whole(queue, seq)
            if whole is not None and whole.lowest == seq and whole.last < end:
                self._rekey(to, number)
                seq += whole.rows
                number += whole.rows
                size += whole.size
                continue
            block = find_block(self._cursor, queue, seq)
            indexes = [] if block is None else block.indexes(list(range(seq, min(end, block.last + 1))))
            if block is None or not indexes or block.seqs(indexes[0], indexes[0] + 1) != [seq]:
                raise StoreError(f"the batch assigns message {seq} of queue {queue}, which is not there")
            count = len(indexes)
            if block.seqs(indexes[-1], indexes[-1] + 1) != [seq + count - 1]:
                raise StoreError(f"the batch assigns messages of queue {queue} behind {seq} that are not there")
            size += sum(map(block.size, indexes)) if count < block.count else block.total_size()
            self._rewrite(block, indexes, to, number)
            seq += count
            number += count
        return size

    def _whole(self, queue: int, seq: int) -> Outline | None:
        """The block that begins with a message, the cursor on it, if it may be moved as it is."""
        key = place_key(queue, seq)
        return outline(seq, self._cursor.value()) if self._cursor.set_key(key) else None

    def _rekey(self, to: int, number: int) -> None:
        """The cursor is on the block; what is in it says nothing of its place."""
        value = bytes(self._cursor.value())
        self._cursor.delete()
        self._cursor.put(place_key(to, number), value)

    def _rewrite(self, block: Block, indexes: Sequence[int], to: int, number: int) -> None:
        """Part of a block, one of references, or one in which messages expire: assigned ones do not."""
        seqs = [block.seqs(index, index + 1)[0] for index in indexes]
        if block.topic:
            # What is read is gone with the next write, also what a reader keeps for later.
            shared = SharedBodies(self._shared)
            bodies = [bytes(shared.read(block.topic, seq)) for seq in seqs]
        else:
            bodies = [bytes(block.body(index)) for index in indexes]
        if self._larges.active:
            self._larges.added(bodies)
        stored_us = block.stored_us
        self._writer.remove(block.queue, seqs)
        numbered = dict(enumerate(bodies, number))
        self._writer.append(to, new_blocks(numbered, list(numbered), stored_us, {}))

    def remove_through(self, queue: int, through: int) -> tuple[int, int]:
        """Remove everything of a queue up to a number; returns how many those were, and their size."""
        count, size = self._writer.remove_whole_blocks(queue, through)
        while (block := self._first(queue)) is not None and block.lowest <= through:
            seqs = block.seqs(0, block.index_after(through))
            size += self._writer.remove(queue, seqs)
            count += len(seqs)
        return count, size

    def _first(self, queue: int) -> Block | None:
        return next(iter(blocks_after(self._cursor, queue, 0)), None)
