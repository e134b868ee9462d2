"""Steps from each former format of the store to the next one: what is read from the former, and what is written.

A step is pure: it reads the store as it was, writes to the same one as it will be, and knows neither files nor the
present records and blocks, which change with later formats. The store's format and all that `migration` does come with
the step in one transaction. A new format adds a step here, a row to docs/reference/store-format.md, and a store to
tests/data/stores (docs/decisions/0086-store-format-migration.md).
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import msgspec

from legato.errors import StoreCorruptError


class Before(Protocol):
    """The store as it was, in its former format; what a step writes is not seen here."""

    def items(self, database: str) -> Iterator[tuple[memoryview, memoryview]]:
        """Keys and values of a database, in order; they are there until the next pair."""


class After(Protocol):
    """The store as it will be: at first what it was."""

    def create(self, *databases: str) -> None:
        """Make databases, unless they are there."""

    def put(self, database: str, key: bytes | memoryview, value: bytes) -> None:
        """Add an entry, or replace it."""


class Step(NamedTuple):
    """The way from one format to the next."""

    write: Callable[[Before, After, int], None]
    """Arguments: the store before, the store after, and the time, microseconds since 1970."""
    rewrites: bool
    """Whether it writes most of the store anew, which needs as much room as the store has."""


# -- 1 to 2: topics, lanes, expiry; a block says when it was stored, a queue how large it is

_BLOCK_1 = struct.Struct(">B3xI")
"""Tag, count; then offsets, ends of bodies, bodies, as in format 2."""
_TIME = struct.Struct(">Q")
_NUMBER = struct.Struct(">I")


def _to_2(before: Before, after: After, now_us: int) -> None:
    """Blocks get the time of the migration: format 1 did not say when a message was stored."""
    after.create("subscriptions", "temporaries", "deleted", "copies", "expiries")
    sizes: Counter[bytes] = Counter()
    for place, block in before.items("messages"):
        sizes[bytes(place[: _NUMBER.size])] += _size_1(place, block)
        after.put("messages", place, b"".join((block[: _BLOCK_1.size], _TIME.pack(now_us), block[_BLOCK_1.size :])))
    for number, value in before.items("queues"):
        try:
            record: dict[str, Any] = msgspec.msgpack.decode(value, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise StoreCorruptError(f"the record of queue {bytes(number).hex()} cannot be read: {error}") from error
        record["bytes"] = sizes[bytes(number)]
        after.put("queues", number, msgspec.msgpack.encode(record))


def _size_1(place: memoryview, block: memoryview) -> int:
    """The size of the messages in a block of format 1."""
    try:
        tag, count = _BLOCK_1.unpack_from(block)
        begin = _BLOCK_1.size + 2 * _NUMBER.size * count
        (size,) = _NUMBER.unpack_from(block, begin - _NUMBER.size)
    except struct.error:
        tag, begin, size = 1, 0, 0
    if tag or begin + size != len(block):
        raise StoreCorruptError(f"the block under {bytes(place).hex()} is not what was written")
    return int(size)


# -- 2 to 3: duplicate ids


def _to_3(_before: Before, after: After, _now_us: int) -> None:
    """Nothing is in another form. The first versions of format 2 had no large messages."""
    after.create("chunks", "larges", "loose", "duplicates", "duplicate_places", "taken")


STEPS: dict[int, Step] = {1: Step(_to_2, rewrites=True), 2: Step(_to_3, rewrites=False)}
"""The step from each former format that can be migrated, which leads to the next one."""
