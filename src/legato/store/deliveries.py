"""Delivery records of failed messages, by place: count, flag, last attempts. Most messages have none."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

from legato import limits
from legato.core.records import Attempt, StoredMessage, StoredRun
from legato.store import values
from legato.store.changes import KEEP_COUNT
from legato.store.keys import place_key, read_place


def add_deliveries(cursor: Any, queue: int, found: Sequence[StoredMessage]) -> None:
    """Complete messages (ascending, at least one) by what is remembered of them."""
    by_seq = {message.seq: message for message in found}
    for seq in _on_record(cursor, queue, [message.seq for message in found]):
        message = by_seq[seq]
        message.count, message.flagged, message.history = values.decode_delivery(cursor.value())


def with_deliveries(
    cursor: Any, queue: int, found: Sequence[StoredMessage | StoredRun]
) -> list[StoredMessage | StoredRun]:
    """Messages and runs (ascending) with what is remembered of them: runs of which anything is, apart."""
    completed: list[StoredMessage | StoredRun] = []
    for each in found:
        if isinstance(each, StoredRun) and _is_any_on_record(cursor, queue, each.seq, each.last_seq):
            completed += each.messages()
        else:
            completed.append(each)
    if apart := [each for each in completed if isinstance(each, StoredMessage)]:
        add_deliveries(cursor, queue, apart)
    return completed


def forget_deliveries(cursor: Any, queue: int, seqs: Sequence[int]) -> None:
    """Forget what is remembered of `seqs` (ascending)."""
    for _ in _on_record(cursor, queue, seqs):
        cursor.delete()


def note_deliveries(
    cursor: Any, queue: int, deliveries: dict[int, tuple[int, bool]], attempts: dict[int, list[Attempt]]
) -> None:
    """Remember counts, flags and further attempts."""
    seqs = sorted(deliveries)
    before = {seq: values.decode_delivery(cursor.value()) for seq in _on_record(cursor, queue, seqs)}
    items: list[tuple[bytes, bytes]] = []
    for seq in seqs:
        count, flagged = deliveries[seq]
        kept, _, history = before.get(seq, (0, False, []))
        history = [*history, *attempts.get(seq, ())][-limits.HISTORY_ATTEMPTS :]
        value = values.encode_delivery(kept if count == KEEP_COUNT else count, flagged, history)
        items.append((place_key(queue, seq), value))
    cursor.putmulti(items)


def move_deliveries(cursor: Any, queue: int, seq: int, count: int, to: int, number: int) -> None:
    """Move the records of `count` places from `seq` on to places of `to` from `number` on."""
    moved: list[tuple[bytes, bytes]] = []
    there = cursor.set_range(place_key(queue, seq))
    while there:
        owner, place = read_place(cursor.key())
        if owner != queue or place >= seq + count:
            break
        moved.append((place_key(to, number + place - seq), bytes(cursor.value())))
        cursor.delete()
        there = cursor.set_range(place_key(queue, place + 1))
    cursor.putmulti(moved)


def forget_deliveries_through(cursor: Any, queue: int, through: int) -> None:
    """Forget what is remembered of a queue's places up to one."""
    there = cursor.set_range(place_key(queue, 0))
    while there and read_place(cursor.key()) <= (queue, through):
        cursor.delete()
        there = cursor.set_range(place_key(queue, 0))


def _is_any_on_record(cursor: Any, queue: int, first: int, last: int) -> bool:
    return cursor.set_range(place_key(queue, first)) and read_place(cursor.key()) <= (queue, last)


def _on_record(cursor: Any, queue: int, seqs: Sequence[int]) -> Iterator[int]:
    """Those of `seqs` (ascending) that have a record, with the cursor on each, jumping over the others."""
    position = 0
    while position < len(seqs) and cursor.set_range(place_key(queue, seqs[position])):
        owner, seq = read_place(cursor.key())
        if owner != queue:
            return
        if seq == seqs[position]:
            yield seq
            position += 1
        else:
            position = bisect_left(seqs, seq, position)
