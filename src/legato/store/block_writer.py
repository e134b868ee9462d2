"""Block writer: adds messages to blocks and removes them, inside a write transaction."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from typing import Any

from legato.errors import StoreCorruptError
from legato.store.block_reader import blocks_with, find_block, read_block
from legato.store.blocks import (
    BLOCK_SPAN,
    Block,
    Bytes,
    Entry,
    first_expiry_us,
    outline,
    pack_bodies,
    pack_entries,
    pack_neighbours,
    pack_references,
)
from legato.store.expiries import ExpiryChanges
from legato.store.keys import place_key, read_place
from legato.store.larges import LargeCounts

BLOCK_MESSAGES = 125
BLOCK_BODY_BYTES = 15 * 1024
"""Bounds on a block of several messages; together they make four pages, LMDB's page header included."""
BLOCK_REFERENCES = 500
"""The bound on a block of references; with its header it is a page."""
SPLIT_BODY_BYTES = 3_800
"""The bound on blocks made by splitting, a page: where messages come at random, each writes its block again."""

Packed = list[tuple[int, Bytes, int]]
"""Blocks: the first sequence, the value, and when the first of its messages expires."""


def new_blocks(
    messages: Mapping[int, bytes], seqs: Sequence[int], stored_us: int, expiries: Mapping[int, int]
) -> Packed:
    """Blocks of the messages `seqs` (ascending, above all others of their lanes); `expiries` of those that do."""
    bodies = [messages[seq] for seq in seqs]
    ends = [0, *accumulate(map(len, bodies))]
    blocks: Packed = []
    begin = 0
    while begin < len(seqs):
        first = seqs[begin]
        fit = bisect_right(ends, ends[begin] + BLOCK_BODY_BYTES, begin) - 1
        near = bisect_right(seqs, first + BLOCK_SPAN, begin)
        end = max(begin + 1, min(fit, near, begin + BLOCK_MESSAGES))
        times = [expiries.get(seq, 0) for seq in seqs[begin:end]] if expiries else ()
        earliest = first_expiry_us(times)
        value = pack_bodies(first, seqs[begin:end], bodies[begin:end], stored_us, times if earliest else ())
        blocks.append((first, value, earliest))
        begin = end
    return blocks


def run_blocks(seq: int, ends: array[int], content: Bytes, stored_us: int) -> Packed:
    """Blocks of neighbours from `seq` on, above all others of their lane: the same as `new_blocks` makes of them."""
    view = memoryview(content)
    blocks: Packed = []
    begin = start = 0
    while begin < len(ends):
        fit = bisect_right(ends, start + BLOCK_BODY_BYTES, begin)
        end = max(begin + 1, min(fit, begin + BLOCK_MESSAGES))
        value = pack_neighbours([each - start for each in ends[begin:end]], view[start : ends[end - 1]], stored_us)
        blocks.append((seq + begin, value, 0))
        begin, start = end, ends[end - 1]
    return blocks


def new_reference_blocks(
    seqs: Sequence[int], sizes: Sequence[int], topic: int, stored_us: int, expiries: Sequence[int] = ()
) -> Packed:
    """Blocks of references to the messages `seqs` of a topic (ascending); `expiries` of all of them or none."""
    blocks: Packed = []
    begin = 0
    while begin < len(seqs):
        first = seqs[begin]
        end = min(bisect_right(seqs, first + BLOCK_SPAN, begin), begin + BLOCK_REFERENCES)
        times = expiries[begin:end]
        earliest = first_expiry_us(times)
        value = pack_references(first, seqs[begin:end], sizes[begin:end], topic, stored_us, times if earliest else ())
        blocks.append((first, value, earliest))
        begin = end
    return blocks


class BlockWriter:
    """Writes the blocks of one database.

    Args:
        cursor: on that database.
        expiries: where to note when blocks expire.
        larges: where to note which stubs come and go.
    """

    def __init__(self, cursor: Any, expiries: ExpiryChanges, larges: LargeCounts) -> None:
        self._cursor = cursor
        self._expiries = expiries
        self._larges = larges
        self.released: dict[int, list[int]] = {}
        """Of each topic, the sequences of the references that went; one for each."""

    def append(self, queue: int, blocks: Packed) -> None:
        """Put new blocks where there are none."""
        for first, _, earliest in blocks:
            if earliest:
                self._expiries.change(queue, first, 0, earliest)
        self._cursor.putmulti([(place_key(queue, first), value) for first, value, _ in blocks])

    def insert(self, queue: int, entries: Sequence[Entry], stored_us: int) -> None:
        """Put messages (ascending) among others, into the blocks that span their places; what is too large is split.

        What is there already under a sequence is replaced.
        """
        position = 0
        while position < len(entries):
            seq = entries[position].seq
            block = find_block(self._cursor, queue, seq)
            if block is not None and seq - block.first <= BLOCK_SPAN:
                first, there, time_us, expiry = block.first, block.entries(), block.stored_us, block.first_expiry_us()
            else:
                first, there, time_us, expiry = seq, [], stored_us, 0
            end_seq = min(first + BLOCK_SPAN + 1, self._next_first(queue, seq))
            end = bisect_left(entries, end_seq, position, key=_seq_of)
            merged = {entry.seq: entry for entry in (*there, *entries[position:end])}
            if self._larges.active and len(merged) < len(there) + end - position:
                new = {entry.seq for entry in entries[position:end]}
                self._larges.removed(entry.body for entry in there if entry.seq in new)
            self._expiries.change(queue, first, expiry, 0)
            self.append(queue, _pack_all(first, sorted(merged.values(), key=_seq_of), time_us))
            position = end

    def _next_first(self, queue: int, seq: int) -> int:
        """The first sequence of the block behind `seq`, or one beyond all."""
        if not self._cursor.set_range(place_key(queue, seq + 1)):
            return 1 << 64
        owner, first = read_place(self._cursor.key())
        return first if owner == queue else 1 << 64

    def remove(self, queue: int, removed: Sequence[int]) -> int:
        """Take messages (ascending) out; those not there are passed over. Returns their size."""
        size = 0
        for block, indexes in blocks_with(self._cursor, queue, removed):
            if len(indexes) == block.count:
                size += self._remove_all(block)
                continue
            if block.topic:
                seqs = block.seqs()
                self.released.setdefault(block.topic, []).extend([seqs[index] for index in indexes])
            elif self._larges.active:
                self._larges.removed(map(block.body, indexes))
            if block.expiries:
                kept = first_expiry_us(block.expiries_without(indexes))
                self._expiries.change(queue, block.first, block.first_expiry_us(), kept)
            size += sum([block.size(index) for index in indexes])
            self._cursor.put(place_key(queue, block.first), block.pack_without(indexes))
        return size

    def remove_whole_blocks(self, queue: int, through: int) -> tuple[int, int]:
        """Take the first blocks of a queue out, up to a sequence, as long as nobody else has to be told of it.

        Returns:
            How many messages those were, and their size.
        """
        count = size = 0
        there = not self._larges.active and self._cursor.set_range(place_key(queue, 0))
        while there:
            owner, first = read_place(self._cursor.key())
            found = outline(first, self._cursor.value()) if owner == queue else None
            if found is None or found.last > through:
                break
            count += found.rows
            size += found.size
            # That leaves the cursor on the next one.
            there = self._cursor.delete() and bool(self._cursor.key())
        return count, size

    def remove_first_blocks(self, queue: int, limit: int) -> list[list[int]]:
        """Take the first blocks of a deleted queue out until `limit` messages are gone; returns the sequences of each.

        One that cannot be read goes unread, as one message: else nothing that the upkeep removes after it would go.
        """
        removed: list[list[int]] = []
        while limit > 0:
            try:
                block = read_block(self._cursor, queue, self._cursor.set_range(place_key(queue, 0)))
            except StoreCorruptError:
                self._cursor.delete()
                limit -= 1
                continue
            if block is None:
                break
            removed.append(block.seqs())
            limit -= block.count
            self._remove_all(block)
        return removed

    def _remove_all(self, block: Block) -> int:
        """Take out the block under the cursor; returns its size."""
        if block.topic:
            self.released.setdefault(block.topic, []).extend(block.seqs())
        elif self._larges.active:
            self._larges.removed(block.bodies(0, block.count))
        if block.expiries:
            self._expiries.change(block.queue, block.first, block.first_expiry_us(), 0)
        size = block.total_size()
        self._cursor.delete()
        return size


def _seq_of(entry: Entry) -> int:
    return entry.seq


def _pack_all(first: int, entries: Sequence[Entry], stored_us: int) -> Packed:
    """Blocks of `entries`, the first of them under `first`."""
    blocks: Packed = []
    for _, run in groupby(entries, key=lambda entry: entry.topic):
        for piece in _halves(list(run)):
            begin = piece[0].seq if blocks else first
            value = pack_entries(begin, piece, stored_us)
            blocks.append((begin, value, first_expiry_us([entry.expires_us for entry in piece])))
    return blocks


def _halves(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """`entries` in pieces within the bounds, by halving: then the next insertions find room."""
    messages_max = BLOCK_REFERENCES if entries[0].topic else BLOCK_MESSAGES
    fits = len(entries) <= messages_max and sum(len(entry.body) for entry in entries) <= SPLIT_BODY_BYTES
    if fits or len(entries) == 1:
        yield entries
        return
    middle = len(entries) // 2
    yield from _halves(entries[:middle])
    yield from _halves(entries[middle:])
