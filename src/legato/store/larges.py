"""Large messages on disk: chunks, reference counts, and removal of unreferenced chunks.

A large number is in one of two databases as long as it has chunks: in `larges` with the count of the stubs in
`messages` that name it, or in `loose` while there are none: its upload goes on, or the chunks are to be removed.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from legato.amqp.codec.stubs import read_stub
from legato.store import values
from legato.store.environment import Databases
from legato.store.keys import chunk_key, position_key, read_chunk_key, read_position

UPLOADING = b"u"
NOT_NEEDED = b"n"
EPOCH_SHIFT = 32
"""A large number is the epoch in which it was uploaded, and a number within it."""


def put_chunks(txn: Any, databases: Databases, chunks: Sequence[tuple[int, int, bytes]]) -> None:
    """Write parts of bodies: large number, index from 0, bytes."""
    for large, index, data in chunks:
        if index == 0:
            txn.put(position_key(large), UPLOADING, db=databases.loose)
        txn.put(chunk_key(large, index), data, db=databases.chunks)


def end_uploads(txn: Any, databases: Databases, ended: Iterable[int]) -> None:
    """These are not uploaded any more: those that no message refers to are not needed."""
    for large in ended:
        key = position_key(large)
        if txn.get(key, db=databases.loose) is not None:
            txn.put(key, NOT_NEEDED, db=databases.loose)


def has_larges(txn: Any, databases: Databases) -> bool:
    """Whether there are any chunks, so that messages may be stubs."""
    return bool(txn.stat(databases.larges)["entries"] or txn.stat(databases.loose)["entries"])


def remove_loose(txn: Any, databases: Databases, epoch: int, limit: int) -> int:
    """Remove chunks that nobody needs, also those of uploads that earlier epochs did not end; at most `limit`.

    Returns:
        How many chunks and large numbers.
    """
    removed = 0
    with txn.cursor(db=databases.loose) as loose, txn.cursor(db=databases.chunks) as chunks:
        there = loose.first()
        while there and removed < limit:
            large = read_position(loose.key())
            if loose.value() == UPLOADING and large >> EPOCH_SHIFT >= epoch:
                there = loose.next()
                continue
            while (
                removed < limit and chunks.set_range(chunk_key(large, 0)) and read_chunk_key(chunks.key())[0] == large
            ):
                chunks.delete()
                removed += 1
            if removed < limit:
                there = loose.delete() and loose.first()
                removed += 1
    return removed


class LargeCounts:
    """Counts stubs added to and removed from `messages`, inside a write transaction.

    Attributes:
        active: whether there may be any; if not, nobody need look for them.
    """

    def __init__(self, txn: Any, databases: Databases) -> None:
        self.active = has_larges(txn, databases)
        self._txn = txn
        self._databases = databases
        self._changes: Counter[int] = Counter()

    def added(self, bodies: Iterable[bytes | memoryview]) -> None:
        """These are in `messages` now."""
        for body in bodies:
            if (stub := read_stub(body)) is not None:
                self._changes[stub.large] += 1

    def removed(self, bodies: Iterable[bytes | memoryview]) -> None:
        """These were in `messages`."""
        for body in bodies:
            if (stub := read_stub(body)) is not None:
                self._changes[stub.large] -= 1

    def write(self) -> None:
        """Note what changed."""
        larges, loose, txn = self._databases.larges, self._databases.loose, self._txn
        for large, change in self._changes.items():
            if not change:
                continue
            key = position_key(large)
            value = txn.get(key, db=larges)
            count = change + (values.decode_number(value) if value is not None else 0)
            if count > 0:
                txn.put(key, values.pack_number(count), db=larges)
                txn.delete(key, db=loose)
            else:
                txn.delete(key, db=larges)
                txn.put(key, NOT_NEEDED, db=loose)
