"""Duplicate ids of addresses: looked up by digest, dropped oldest first."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import Any

from legato.core.facts import DuplicateIdKept
from legato.core.records import KeptId
from legato.errors import StoreCorruptError
from legato.store.base import NONE_KEPT, first_after
from legato.store.environment import Databases
from legato.store.keys import number_key, place_key, read_number, read_place

_DIGEST_BYTES = 16
_POSITION = struct.Struct(">Q")
_PLACE = struct.Struct(f">{_DIGEST_BYTES}sIQ")
_LAST = (1 << 64) - 1


def _key(queue: int, duplicate_id: bytes) -> bytes:
    """Ids are of any length, and keys are not; of two ids with the same digest nobody will ever hear."""
    return number_key(queue) + hashlib.blake2b(duplicate_id, digest_size=_DIGEST_BYTES).digest()


def read_id_key(key: bytes | memoryview) -> tuple[int, bytes]:
    """Queue and digest of a key of the database `duplicates`."""
    return read_number(key), bytes(key[-_DIGEST_BYTES:])


def read_id(value: bytes | memoryview) -> bytes:
    """The digest of the id in a value of the database `duplicate_places`."""
    return bytes(value[:_DIGEST_BYTES])


def kept_range(cursor: Any, queue: int) -> tuple[int, int]:
    """First and last position that an address remembers.

    Args:
        cursor: on the database `duplicate_places`.
    """
    if not cursor.set_range(place_key(queue, 0)):
        return NONE_KEPT
    owner, first = read_place(cursor.key())
    if owner != queue:
        return NONE_KEPT
    there = cursor.set_range(place_key(queue, _LAST))
    there = cursor.prev() if there else cursor.last()
    owner, last = read_place(cursor.key())
    if not there or owner != queue:
        raise StoreCorruptError(f"the duplicate ids of queue {queue} have a beginning and no end")
    return first, last


def kept_ids(cursor: Any, queue: int) -> Iterator[tuple[int, bytes]]:
    """What an address remembers: each position, and what is kept there.

    Args:
        cursor: on the database `duplicate_places`.
    """
    there = cursor.set_range(place_key(queue, 0))
    while there:
        owner, position = read_place(cursor.key())
        if owner != queue:
            return
        yield position, bytes(cursor.value())
        there = cursor.next()


def find_id(txn: Any, databases: Databases, queue: int, duplicate_id: bytes) -> KeptId | None:
    """The record of an id."""
    value = txn.get(_key(queue, duplicate_id), db=databases.duplicates)
    if value is None:
        return None
    position: int = _POSITION.unpack(value)[0]
    place = txn.get(place_key(queue, position), db=databases.duplicate_places)
    if place is None:
        raise StoreCorruptError(f"the duplicate id at {position} of queue {queue} is not there")
    _, producer, number = _PLACE.unpack_from(place)
    return KeptId(position, bytes(place[_PLACE.size :]).decode(), producer, number)


def keep_ids(txn: Any, databases: Databases, queue: int, facts: list[DuplicateIdKept]) -> None:
    """Remember more ids of an address, and forget those that its window is too small for."""
    with txn.cursor(db=databases.duplicate_places) as places:
        begin, end = kept_range(places, queue)
        first, last = begin, end
        for fact in facts:
            last += 1
            first = first_after(first, last, fact.window)
        _forget(txn, databases, places, queue, min(first, end + 1))
        keys = [_key(queue, fact.id) for fact in facts]
        added = [
            (position, key, fact)
            for position, (key, fact) in enumerate(zip(keys, facts, strict=True), end + 1)
            if position >= first
        ]
        places.putmulti(
            [
                (
                    place_key(queue, position),
                    _PLACE.pack(key[-_DIGEST_BYTES:], fact.producer, fact.number) + fact.message_id.encode(),
                )
                for position, key, fact in added
            ]
        )
    with txn.cursor(db=databases.duplicates) as cursor:
        cursor.putmulti(sorted({key: _POSITION.pack(position) for position, key, _ in added}.items()))


def forget_ids(txn: Any, databases: Databases, queue: int, limit: int) -> int:
    """Forget the oldest `limit` ids of an address; returns how many there were."""
    with txn.cursor(db=databases.duplicate_places) as places:
        first, last = kept_range(places, queue)
        through = min(last, first + limit - 1)
        _forget(txn, databases, places, queue, through + 1)
    return through + 1 - first


def _forget(txn: Any, databases: Databases, places: Any, queue: int, end: int) -> None:
    """All before the position `end`. An id that came again since then has a later position, and stays."""
    there = places.set_range(place_key(queue, 0))
    while there:
        owner, position = read_place(places.key())
        if owner != queue or position >= end:
            return
        key = number_key(queue) + read_id(places.value())
        value = txn.get(key, db=databases.duplicates)
        if value is not None and _POSITION.unpack(value)[0] == position:
            txn.delete(key, db=databases.duplicates)
        places.delete()
        there = len(places.key()) > 0
