"""Messages on disk: neighbouring messages of one commit share a value, a *block*, under the place of the first.

A block is written again without the messages that were consumed, until it is empty and goes. So a commit of 500
messages is some ten LMDB calls, not 500: each call gives the interpreter lock away and has to win it back.
Blocks of a queue never overlap: a message is in the last block whose key is not above its place, or nowhere.

    tag u8 (0: bodies inline) | 3 zeroes | count u32 | count x (seq - key's seq) u32 | count x end of body u32 | bodies
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from legato.errors import StoreCorruptError
from legato.store.keys import place_key, read_place

BLOCK_MESSAGES = 125
BLOCK_BODY_BYTES = 15 * 1024
"""Bounds on a block of several messages; together they make four pages, LMDB's page header included."""
BLOCK_SPAN = (1 << 32) - 1
"""The last sequence of a block is at most this far from its key's."""

_INLINE = 0
_HEADER = struct.Struct(">B3xI")
_ENTRY_BYTES = 8

Bytes = bytes | memoryview


def pack_block(first: int, seqs: Sequence[int], bodies: Sequence[Bytes]) -> bytes:
    """The value of a block under sequence `first`; `seqs` ascend, from there or above."""
    return _pack([seq - first for seq in seqs], list(accumulate(map(len, bodies))), bodies)


def _pack(deltas: Sequence[int], ends: Sequence[int], pieces: Sequence[Bytes]) -> bytes:
    count = len(deltas)
    return b"".join((struct.pack(f">B3x{2 * count + 1}I", _INLINE, count, *deltas, *ends), *pieces))


class Block:
    """A block as it was read; its bodies are views that end with the transaction."""

    def __init__(self, queue: int, first: int, value: memoryview) -> None:
        try:
            tag, count = _HEADER.unpack_from(value)
            numbers = struct.unpack_from(f">{2 * count}I", value, _HEADER.size)
        except struct.error as error:
            raise StoreCorruptError(f"block {first} of queue {queue} cannot be read: {error}") from error
        start = _HEADER.size + _ENTRY_BYTES * count
        if tag != _INLINE or count == 0 or start + numbers[-1] != len(value):
            raise StoreCorruptError(f"block {first} of queue {queue} is not what was written")
        self.first = first
        self.count = count
        self.last = first + numbers[count - 1]
        self._deltas = numbers[:count]
        self._ends = numbers[count:]
        self._bodies = value[start:]

    def seqs(self) -> list[int]:
        """The sequences of its messages, ascending."""
        return [self.first + delta for delta in self._deltas]

    def body(self, index: int) -> memoryview:
        """The bytes of the message at `index`."""
        return self._bodies[self._begin(index) : self._ends[index]]

    def indexes(self, seqs: Sequence[int]) -> list[int]:
        """Where those of `seqs` (ascending) are that are here."""
        if len(seqs) == self.count and seqs[0] == self.first and seqs == self.seqs():
            return list(range(self.count))
        found = [(bisect_left(self._deltas, seq - self.first), seq - self.first) for seq in seqs]
        return [index for index, delta in found if index < self.count and self._deltas[index] == delta]

    def index_after(self, seq: int) -> int:
        """The index of the first message above `seq`."""
        return bisect_right(self._deltas, seq - self.first)

    def pack_without(self, indexes: Sequence[int]) -> bytes:
        """The value of this block without some of its messages; what lies between them is copied as one."""
        deltas: list[int] = []
        ends: list[int] = []
        pieces: list[Bytes] = []
        begin = shift = 0
        for index in (*indexes, self.count):
            deltas += self._deltas[begin:index]
            ends += [end - shift for end in self._ends[begin:index]]
            pieces.append(self._bodies[self._begin(begin) : self._begin(index)])
            if index < self.count:
                shift += self._ends[index] - self._begin(index)
            begin = index + 1
        return _pack(deltas, ends, pieces)

    def _begin(self, index: int) -> int:
        """Where the body at `index` begins; for the index after the last, and beyond, the end of all."""
        return self._ends[min(index, self.count) - 1] if index else 0


def find_block(cursor: Any, queue: int, seq: int) -> Block | None:
    """The block in which `seq` is if it is anywhere; leaves the cursor on it."""
    key = place_key(queue, seq)
    if not cursor.set_range(key):
        return _read_block(cursor, queue, cursor.last())
    exact = cursor.key() == key
    return _read_block(cursor, queue, exact or cursor.prev())


def messages_after(cursor: Any, queue: int, after: int) -> Iterator[tuple[int, memoryview]]:
    """Messages of a queue above `after` in order; the views end with the transaction."""
    block = find_block(cursor, queue, after)
    if block is None:
        block = _read_block(cursor, queue, cursor.set_range(place_key(queue, after)))
    while block is not None:
        seqs = block.seqs()
        for index in range(block.index_after(after), block.count):
            yield seqs[index], block.body(index)
        block = _read_block(cursor, queue, cursor.next())


def _read_block(cursor: Any, queue: int, there: bool) -> Block | None:
    """The block under the cursor if the cursor is anywhere and the block is of this queue."""
    if not there:
        return None
    owner, first = read_place(cursor.key())
    return Block(queue, first, cursor.value()) if owner == queue else None


def blocks_with(cursor: Any, queue: int, seqs: Sequence[int]) -> Iterator[tuple[Block, list[int]]]:
    """The blocks that hold any of `seqs` (ascending), the cursor on them, and at which indexes they do."""
    position = 0
    while position < len(seqs):
        block = find_block(cursor, queue, seqs[position])
        end = bisect_right(seqs, block.last, position) if block else position
        if block is None or end == position:
            position += 1
            continue
        indexes = block.indexes(seqs[position:end])
        position = end
        if indexes:
            yield block, indexes


def remove_messages(cursor: Any, queue: int, removed: Sequence[int]) -> None:
    """Take the messages `removed` (ascending) out of their blocks; those not there are passed over."""
    for block, indexes in blocks_with(cursor, queue, removed):
        if len(indexes) == block.count:
            cursor.delete()
        else:
            cursor.put(place_key(queue, block.first), block.pack_without(indexes))


def waiting_among(cursor: Any, queue: int, seqs: Sequence[int]) -> list[int]:
    """Those of `seqs` (ascending) that wait on disk."""
    found: list[int] = []
    for block, indexes in blocks_with(cursor, queue, seqs):
        held = block.seqs()
        found += [held[index] for index in indexes]
    return found


def new_blocks(queue: int, messages: Mapping[int, bytes], seqs: Sequence[int]) -> list[tuple[bytes, bytes]]:
    """Keys and values of blocks for the messages `seqs` (ascending, above all others of the queue)."""
    bodies = [messages[seq] for seq in seqs]
    ends = [0, *accumulate(map(len, bodies))]
    blocks: list[tuple[bytes, bytes]] = []
    begin = 0
    while begin < len(seqs):
        first = seqs[begin]
        fit = bisect_right(ends, ends[begin] + BLOCK_BODY_BYTES, begin) - 1
        near = bisect_right(seqs, first + BLOCK_SPAN, begin)
        end = max(begin + 1, min(fit, near, begin + BLOCK_MESSAGES))
        blocks.append((place_key(queue, first), pack_block(first, seqs[begin:end], bodies[begin:end])))
        begin = end
    return blocks


def insert_message(cursor: Any, queue: int, seq: int, body: bytes) -> None:
    """Put a message among others of the queue, into the block that spans its place."""
    block = find_block(cursor, queue, seq)
    if block is None or seq - block.first > BLOCK_SPAN:
        cursor.put(place_key(queue, seq), pack_block(seq, [seq], [body]))
        return
    messages: dict[int, Bytes] = {held: block.body(index) for index, held in enumerate(block.seqs())}
    messages[seq] = body
    seqs = sorted(messages)
    cursor.put(place_key(queue, block.first), pack_block(block.first, seqs, [messages[held] for held in seqs]))
