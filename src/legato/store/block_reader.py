"""Block lookup: the block that holds a place, and the messages after a place."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

from legato.core.records import StoredMessage, StoredRun
from legato.errors import StoreCorruptError
from legato.store.blocks import Block, read_plain
from legato.store.keys import place_key, read_place
from legato.store.lanes import LANE_SHIFT, lane_of


def find_block(cursor: Any, queue: int, seq: int) -> Block | None:
    """The block in which `seq` is if it is anywhere; leaves the cursor on it.

    Blocks of a queue never overlap: a message is in the last block whose key is not above its place, or nowhere.
    """
    key = place_key(queue, seq)
    if not cursor.set_range(key):
        return read_block(cursor, queue, cursor.last())
    exact = cursor.key() == key
    return read_block(cursor, queue, exact or cursor.prev())


def place_at_or_before(cursor: Any, queue: int, seq: int) -> bool:
    """Put the cursor on the block in which `seq` is if it is anywhere, or else on the first one behind; False if
    there is neither. It may be another queue's."""
    key = place_key(queue, seq)
    if not cursor.set_range(key):
        return bool(cursor.last()) and read_place(cursor.key())[0] == queue
    if cursor.key() == key or (cursor.prev() and read_place(cursor.key())[0] == queue):
        return True
    return bool(cursor.set_range(key))


def values_in_lane(cursor: Any, queue: int, after: int) -> Iterator[tuple[int, memoryview]]:
    """The blocks of a lane, as they are stored under their first sequence, from the one in which `after` is on."""
    lane_end = (lane_of(after) + 1) << LANE_SHIFT
    there = place_at_or_before(cursor, queue, after)
    while there:
        owner, first = read_place(cursor.key())
        if owner != queue or first >= lane_end:
            return
        yield first, cursor.value()
        there = cursor.next()


def read_block(cursor: Any, queue: int, there: bool) -> Block | None:
    """The block under the cursor if the cursor is anywhere and the block is of this queue."""
    if not there:
        return None
    owner, first = read_place(cursor.key())
    return Block(queue, first, cursor.value()) if owner == queue else None


def blocks_after(cursor: Any, queue: int, after: int) -> Iterator[Block]:
    """The blocks of a queue that hold what is above `after`, if anything, in order; the first may hold less."""
    block = find_block(cursor, queue, after)
    if block is None:
        block = read_block(cursor, queue, cursor.set_range(place_key(queue, after)))
    while block is not None:
        yield block
        block = read_block(cursor, queue, cursor.next())


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


def waiting_among(cursor: Any, queue: int, seqs: Sequence[int]) -> dict[int, int]:
    """The sizes of those of `seqs` (ascending) that are on disk, by sequence."""
    found: dict[int, int] = {}
    for block, indexes in blocks_with(cursor, queue, seqs):
        held = block.seqs()
        for index in indexes:
            found[held[index]] = block.size(index)
    return found


def find_messages(cursor: Any, queue: int, seqs: Sequence[int]) -> list[StoredMessage]:
    """See `Archive.unread_messages`; without what is remembered of deliveries."""
    found: list[StoredMessage] = []
    position = 0
    while position < len(seqs):
        seq = seqs[position]
        block = find_block(cursor, queue, seq)
        if block is None or block.last < seq:
            # Nothing waits there: it goes on with what the next block may have.
            block = read_block(cursor, queue, cursor.set_range(place_key(queue, seq)))
            if block is None:
                break
            position = bisect_left(seqs, block.first, position)
        end = bisect_right(seqs, block.last, position)
        held = block.seqs()
        for index in block.indexes(seqs[position:end]) if end > position else ():
            expires_us = block.expiries[index] if block.expiries else 0
            size = block.size(index)
            found.append(StoredMessage(held[index], b"", 0, False, expires_us, block.stored_us, unread_bytes=size))
        position = end
    return found


def read_messages(
    cursor: Any, bodies: "SharedBodies", queue: int, after: int, limit: int, limit_bytes: int
) -> list[StoredMessage]:
    """See `Archive.messages`; without what is remembered of deliveries."""
    found: list[StoredMessage] = []
    lane_end = (lane_of(after) + 1) << LANE_SHIFT
    for block in blocks_after(cursor, queue, after):
        if block.first >= lane_end or limit_bytes < 0 or len(found) >= limit:
            break
        limit_bytes = _add_messages(found, block, bodies, after, limit - len(found), limit_bytes)
    return found


def read_messages_in_runs(
    cursor: Any, bodies: "SharedBodies", queue: int, after: int, limit: int, limit_bytes: int
) -> list[StoredMessage | StoredRun]:
    """See `Archive.messages_in_runs`; without what is remembered of deliveries."""
    found: list[StoredMessage | StoredRun] = []
    for first, value in values_in_lane(cursor, queue, after):
        if limit <= 0 or limit_bytes < 0:
            break
        plain = read_plain(queue, first, value, after, limit, limit_bytes)
        if plain is None:
            before = len(found)
            limit_bytes = _add_messages(found, Block(queue, first, value), bodies, after, limit, limit_bytes)
            limit -= len(found) - before
        for each in plain or ():
            found.append(each)
            if isinstance(each, StoredRun):
                limit -= len(each.ends)
                limit_bytes -= len(each.content)
            else:
                limit -= 1
                limit_bytes -= len(each.body)
    return found


def _add_messages(
    found: list[Any], block: Block, bodies: "SharedBodies", after: int, limit: int, limit_bytes: int
) -> int:
    """Add a block's messages above `after`, at most `limit`, until `limit_bytes` are exceeded; returns what is left of
    these."""
    begin = block.index_after(after)
    end = min(block.count, begin + limit)
    seqs = block.seqs(begin, end)
    views = [bodies.read(block.topic, seq) for seq in seqs] if block.topic else block.bodies(begin, end)
    times = block.expiries[begin:end] or repeat(0)
    for seq, view, expires_us in zip(seqs, views, times, strict=False):
        if limit_bytes < 0:
            break
        found.append(StoredMessage(seq, bytes(view), 0, False, expires_us, block.stored_us))
        limit_bytes -= len(view)
    return limit_bytes


class SharedBodies:
    """Reader of topics' bodies in order; it keeps the last block.

    Args:
        cursor: on the messages, and of nobody else.
    """

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self._block: Block | None = None
        self._seqs: dict[int, int] = {}

    def read(self, topic: int, seq: int) -> memoryview:
        """One body. Raises `StoreCorruptError` if it is not there."""
        block = self._block
        if block is None or block.queue != topic or not block.first <= seq <= block.last:
            block = self._block = self._find(topic, seq)
            self._seqs = {} if block is None else {held: index for index, held in enumerate(block.seqs())}
        index = self._seqs.get(seq)
        if block is None or index is None:
            raise StoreCorruptError(f"topic {topic} has no body {seq} any more, of which there is a copy")
        return block.body(index)

    def _find(self, topic: int, seq: int) -> Block | None:
        """Mostly it is the neighbour of the last one."""
        if self._block is not None and self._block.queue == topic and seq > self._block.last:
            block = read_block(self._cursor, topic, self._cursor.next())
            if block is not None and block.first <= seq <= block.last:
                return block
        return find_block(self._cursor, topic, seq)
