"""Takers of redelivered messages: a ring for each queue, in which the oldest entry is overwritten."""

from collections.abc import Sequence
from typing import Any

from legato import limits
from legato.core.records import QueueRecord, TakenMessage
from legato.store import values
from legato.store.keys import place_key, read_place


def note_taken(cursor: Any, record: QueueRecord, taken: Sequence[TakenMessage]) -> None:
    """Remember further ones; `record` counts them."""
    items = []
    for number, message in enumerate(taken, record.taken):
        items.append((place_key(record.queue, number % limits.TAKEN_MESSAGES), values.encode(message)))
    cursor.putmulti(items)
    record.taken += len(taken)


def read_taken(cursor: Any, record: QueueRecord) -> list[TakenMessage]:
    """All that is remembered of a queue, oldest first."""
    ring: list[TakenMessage] = []
    there = cursor.set_range(place_key(record.queue, 0))
    while there and read_place(cursor.key())[0] == record.queue:
        ring.append(values.decode_taken(cursor.value()))
        there = cursor.next()
    oldest = record.taken % limits.TAKEN_MESSAGES if record.taken > limits.TAKEN_MESSAGES else 0
    return ring[oldest:] + ring[:oldest]


def forget_taken(cursor: Any, queue: int, limit: int) -> int:
    """Forget what is remembered of a queue that was deleted, `limit` at most; returns how many those were."""
    forgotten = 0
    while forgotten < limit and cursor.set_range(place_key(queue, 0)) and read_place(cursor.key())[0] == queue:
        cursor.delete()
        forgotten += 1
    return forgotten
