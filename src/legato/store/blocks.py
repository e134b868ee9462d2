"""Block format: neighbouring messages of one commit share one value, under the key of the first.

A block is written again without the messages that were consumed, until it is empty and goes. So a commit of 500
messages is some ten LMDB calls, not 500: each call gives the interpreter lock away and has to win it back.

    tag u8 | flags u8 | 2 zeroes | count u32 | stored_us u64 | count x (seq - key's seq) u32
    | tag 0: count x end of body u32; tag 1: count x size u32
    | flag 1: count x expires_us u64 (0: never)
    | tag 0: bodies; tag 1: number of the topic that has the bodies u32

Tag 0 has bodies. Tag 1 has references: a subscription's copies of what a topic keeps, or, in the database `copies`,
under the topic's own places, how many copies there are of each body (in place of sizes). Tag 2 is kept free for
messages that are stored in pieces.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from legato.core.records import StoredMessage, StoredRun
from legato.errors import StoreCorruptError
from legato.limits import JOINED_BYTES_MAX

BLOCK_SPAN = (1 << 32) - 1
"""The last sequence of a block is at most this far from its key's."""

_BODIES = 0
_REFERENCES = 1
_EXPIRIES = 1
_HEADER = struct.Struct(">BBxxIQ")
_ROW = struct.Struct(">II")
_TOPIC = struct.Struct(">I")
_ENTRY_BYTES = 8

Bytes = bytes | memoryview


class Entry(NamedTuple):
    """One message of a block. A reference has an empty body; `topic` names the topic that has it."""

    seq: int
    size: int
    body: Bytes = b""
    expires_us: int = 0
    topic: int = 0


def pack_bodies(
    first: int, seqs: Sequence[int], bodies: Sequence[Bytes], stored_us: int, expiries: Sequence[int] = ()
) -> bytes:
    """The value of a block under sequence `first`; `seqs` ascend, from there or above."""
    return _pack_bodies([seq - first for seq in seqs], list(accumulate(map(len, bodies))), bodies, stored_us, expiries)


def pack_neighbours(ends: Sequence[int], content: Bytes, stored_us: int) -> bytes:
    """The value of a block of messages without gaps, under the sequence of the first; `ends` are those in `content`."""
    return _pack_bodies(range(len(ends)), ends, (content,), stored_us, ())


def pack_references(
    first: int, seqs: Sequence[int], sizes: Sequence[int], topic: int, stored_us: int, expiries: Sequence[int] = ()
) -> bytes:
    """Likewise of a block of references to the bodies of `topic`."""
    return _pack_references([seq - first for seq in seqs], sizes, topic, stored_us, expiries)


def pack_entries(first: int, entries: Sequence[Entry], stored_us: int) -> bytes:
    """The value of a block of `entries`, which ascend and are all of one topic, or all of none."""
    seqs = [entry.seq for entry in entries]
    expiries = [entry.expires_us for entry in entries] if any(entry.expires_us for entry in entries) else ()
    if topic := entries[0].topic:
        return pack_references(first, seqs, [entry.size for entry in entries], topic, stored_us, expiries)
    return pack_bodies(first, seqs, [entry.body for entry in entries], stored_us, expiries)


def _pack_bodies(
    deltas: Sequence[int], ends: Sequence[int], pieces: Sequence[Bytes], stored_us: int, expiries: Sequence[int]
) -> bytes:
    count = len(deltas)
    if not expiries:
        return b"".join((struct.pack(f">BxxxIQ{2 * count}I", _BODIES, count, stored_us, *deltas, *ends), *pieces))
    form = f">BBxxIQ{2 * count}I{count}Q"
    return b"".join((struct.pack(form, _BODIES, _EXPIRIES, count, stored_us, *deltas, *ends, *expiries), *pieces))


def _pack_references(
    deltas: Sequence[int], sizes: Sequence[int], topic: int, stored_us: int, expiries: Sequence[int]
) -> bytes:
    count, flags = len(deltas), _EXPIRIES if expiries else 0
    form = f">BBxxIQ{2 * count}I{len(expiries)}QI"
    return struct.pack(form, _REFERENCES, flags, count, stored_us, *deltas, *sizes, *expiries, topic)


class Block:
    """A decoded block. Its bodies are views, valid until the transaction ends."""

    __slots__ = ("_bodies", "_deltas", "_numbers", "count", "expiries", "first", "last", "queue", "stored_us", "topic")

    def __init__(self, queue: int, first: int, value: memoryview) -> None:
        try:
            tag, flags, count, self.stored_us = _HEADER.unpack_from(value)
            numbers = struct.unpack_from(f">{2 * count}I", value, _HEADER.size)
            start = _HEADER.size + _ENTRY_BYTES * count
            self.expiries: tuple[int, ...] = ()
            if flags:
                self.expiries = struct.unpack_from(f">{count}Q", value, start)
                start += 8 * count
            self.topic: int = _TOPIC.unpack_from(value, start)[0] if tag == _REFERENCES else 0
        except struct.error as error:
            raise StoreCorruptError(f"block {first} of queue {queue} is not what was written") from error
        end = start + (_TOPIC.size if tag == _REFERENCES else numbers[-1] if count else 0)
        if tag > _REFERENCES or flags > _EXPIRIES or count == 0 or end != len(value):
            raise StoreCorruptError(f"block {first} of queue {queue} is not what was written")
        self.queue = queue
        self.first = first
        self.count = count
        self.last = first + numbers[count - 1]
        self._deltas: tuple[int, ...] = numbers[:count]
        self._numbers: tuple[int, ...] = numbers[count:]
        self._bodies = value[start:]

    def seqs(self, begin: int = 0, end: int | None = None) -> list[int]:
        """The sequences of its messages, ascending; on request only from index `begin` to before `end`."""
        return [self.first + delta for delta in self._deltas[begin:end]]

    def size(self, index: int) -> int:
        """The size of the message at `index`; in `copies`, how many copies there are."""
        return self._numbers[index] if self.topic else self._numbers[index] - self._begin(index)

    def sizes(self) -> list[int]:
        """The sizes of its messages; in `copies`, how many copies there are of each."""
        if self.topic:
            return list(self._numbers)
        return [end - begin for begin, end in pairwise((0, *self._numbers))]

    @property
    def lowest(self) -> int:
        """Its lowest sequence: others before it may be gone."""
        return self.first + self._deltas[0]

    @property
    def is_dense(self) -> bool:
        """Whether its sequences have no gaps."""
        return bool(self._deltas[-1] - self._deltas[0] == self.count - 1)

    def total_size(self) -> int:
        """The size of all its messages."""
        return sum(self._numbers) if self.topic else self._numbers[-1]

    def body(self, index: int) -> memoryview:
        """The bytes of the message at `index`; a reference has none."""
        return self._bodies[self._begin(index) : self._numbers[index]]

    def bodies(self, begin: int, end: int) -> list[memoryview]:
        """The bytes of the messages from index `begin` to before `end`."""
        return [self._bodies[first:last] for first, last in pairwise((self._begin(begin), *self._numbers[begin:end]))]

    def _expires_us(self, index: int) -> int:
        """Expiry of the message at `index`; 0 if it never expires."""
        return self.expiries[index] if self.expiries else 0

    def first_expiry_us(self) -> int:
        """Earliest expiry of its messages; 0 if none expires."""
        return first_expiry_us(self.expiries)

    def entries(self) -> list[Entry]:
        """Its messages, apart."""
        return [
            Entry(seq, size, b"" if self.topic else self.body(index), self._expires_us(index), self.topic)
            for index, (seq, size) in enumerate(zip(self.seqs(), self.sizes(), strict=True))
        ]

    def indexes(self, seqs: Sequence[int]) -> list[int]:
        """Indexes of those of `seqs` (ascending) that are here."""
        if len(seqs) == self.count and seqs[0] == self.first and seqs == self.seqs():
            return list(range(self.count))
        found = [(bisect_left(self._deltas, seq - self.first), seq - self.first) for seq in seqs]
        return [index for index, delta in found if index < self.count and self._deltas[index] == delta]

    def index_after(self, seq: int) -> int:
        """The index of the first message above `seq`."""
        return bisect_right(self._deltas, seq - self.first)

    def pack_without(self, indexes: Sequence[int]) -> bytes:
        """The value of this block without some of its messages; what lies between them is copied as one."""
        expiries = self.expiries_without(indexes)
        if self.topic:
            gone = set(indexes)
            kept = [index for index in range(self.count) if index not in gone]
            deltas, sizes = [self._deltas[index] for index in kept], [self._numbers[index] for index in kept]
            return _pack_references(deltas, sizes, self.topic, self.stored_us, expiries)
        deltas = []
        ends: list[int] = []
        pieces: list[Bytes] = []
        begin = shift = 0
        for index in (*indexes, self.count):
            deltas += self._deltas[begin:index]
            ends += [end - shift for end in self._numbers[begin:index]]
            pieces.append(self._bodies[self._begin(begin) : self._begin(index)])
            if index < self.count:
                shift += self._numbers[index] - self._begin(index)
            begin = index + 1
        return _pack_bodies(deltas, ends, pieces, self.stored_us, expiries)

    def pack_counts(self, counts: Sequence[int]) -> bytes:
        """The value of this block of counts with others in their place; without those that are 0."""
        kept = [index for index, count in enumerate(counts) if count > 0]
        deltas = [self._deltas[index] for index in kept]
        return _pack_references(deltas, [counts[index] for index in kept], self.topic, self.stored_us, ())

    def expiries_without(self, indexes: Sequence[int]) -> Sequence[int]:
        """Expiries of its messages apart from some of them; empty if none expires."""
        if not self.expiries:
            return ()
        gone = set(indexes)
        kept = [expires_us for index, expires_us in enumerate(self.expiries) if index not in gone]
        return kept if any(kept) else ()

    def _begin(self, index: int) -> int:
        """Start of the body at `index`; for the index after the last, and beyond, the end of all."""
        return self._numbers[min(index, self.count) - 1] if index else 0


class RawBlock(NamedTuple):
    """A block as it is on disk, for bulk readers. Its parts are views, valid until the transaction ends."""

    first: int
    rows: int
    stored_us: int
    deltas: memoryview
    """`rows` big-endian u32, to be added to `first`."""
    ends: memoryview
    """`rows` big-endian u32: where each body ends in `content`."""
    content: memoryview
    expiries: memoryview
    """`rows` big-endian u64, when each expires, 0 for never; or nothing, if none does."""


def raw_block(queue: int, first: int, value: memoryview) -> RawBlock | None:
    """The parts of a block; None if it is one of references.

    Raises:
        StoreCorruptError: it is not what was written.
    """
    tag, flags, rows, stored_us = _HEADER.unpack_from(value)
    if tag == _REFERENCES:
        return None
    numbers = _HEADER.size
    content = numbers + (2 * 4 + 8 * flags) * rows
    raw = RawBlock(
        first,
        rows,
        stored_us,
        value[numbers : numbers + 4 * rows],
        value[numbers + 4 * rows : numbers + 8 * rows],
        value[content:],
        value[numbers + 8 * rows : content],
    )
    if tag != _BODIES or not rows or len(raw.ends) != 4 * rows or int.from_bytes(raw.ends[-4:]) != len(raw.content):
        raise StoreCorruptError(f"block {first} of queue {queue} is not what was written")
    return raw


class Outline(NamedTuple):
    """A block without gaps and without expiring messages, known from its head alone."""

    lowest: int
    rows: int
    size: int

    @property
    def last(self) -> int:
        """Its last sequence."""
        return self.lowest + self.rows - 1


def outline(first: int, value: memoryview) -> Outline | None:
    """Outline of a block that is moved or removed as a whole; None if it is of another kind."""
    tag, flags, count, _ = _HEADER.unpack_from(value)
    if tag != _BODIES or flags or not count:
        return None
    deltas_end, ends_end = _HEADER.size + 4 * count, _HEADER.size + 8 * count
    lowest = int.from_bytes(value[_HEADER.size : _HEADER.size + 4])
    if int.from_bytes(value[deltas_end - 4 : deltas_end]) - lowest != count - 1:
        return None
    size = int.from_bytes(value[ends_end - 4 : ends_end])
    return Outline(first + lowest, count, size) if ends_end + size == len(value) else None


def read_plain(
    queue: int, first: int, value: memoryview, after: int, limit: int, limit_bytes: int
) -> Sequence[StoredMessage | StoredRun] | None:
    """What is above `after` in a block without gaps and without expiring messages: at most `limit`, and no more once
    `limit_bytes` are exceeded. None if the block is of another kind.

    Raises:
        StoreCorruptError: it is not what was written.
    """
    if len(value) < _HEADER.size + _ROW.size:
        return None
    tag, flags, rows, stored_us = _HEADER.unpack_from(value)
    if rows == 1 and tag == _BODIES and not flags:
        delta, size = _ROW.unpack_from(value, _HEADER.size)
        body = bytes(value[_HEADER.size + _ROW.size :])
        if size != len(body):
            return None
        return [StoredMessage(first + delta, body, stored_us=stored_us)] if first + delta > after else []
    whole = outline(first, value)
    # Large ones would be copied twice: a window does not keep them as one.
    if whole is None or whole.size >= JOINED_BYTES_MAX * rows:
        return None
    if (begin := max(after + 1 - whole.lowest, 0)) >= rows:
        return []
    numbers = _HEADER.size + 4 * rows
    content = numbers + 4 * rows
    ends = array("I")
    ends.frombytes(value[numbers + 4 * begin : min(numbers + 4 * (begin + limit), content)])
    if sys.byteorder == "little":
        ends.byteswap()
    start = int.from_bytes(value[numbers + 4 * begin - 4 : numbers + 4 * begin]) if begin else 0
    # What sends them trusts these.
    if start > ends[0] or ends[-1] > whole.size or list(ends) != sorted(ends):
        raise StoreCorruptError(f"block {first} of queue {queue} is not what was written")
    if start:
        content += start
        ends = array("I", [end - start for end in ends])
    del ends[bisect_right(ends, limit_bytes) + 1 :]
    return [StoredRun(whole.lowest + begin, bytes(value[content : content + ends[-1]]), ends, stored_us)]


def first_expiry_us(expiries: Sequence[int]) -> int:
    """The earliest of some times of which 0 is never; 0 if there is none."""
    return min((expires_us for expires_us in expiries if expires_us), default=0)
