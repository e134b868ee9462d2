"""Consistency of a store's databases: parts of large messages, and what messages are found by.

What is left over after something was damaged and given up costs room and nothing else: it is passed over, as is what
deleted queues still hold.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from legato.amqp.codec.stubs import read_stub
from legato.core.records import QueueRecord
from legato.errors import StoreCorruptError
from legato.store import values
from legato.store.blocks import Block
from legato.store.duplicates import read_id, read_id_key
from legato.store.environment import Databases
from legato.store.keys import (
    chunk_key,
    expiry_key,
    number_key,
    place_key,
    position_key,
    read_chunk_key,
    read_expiry,
    read_place,
    read_position,
)


class _Large(NamedTuple):
    """A large message, and where the first stub of it is."""

    size: int
    queue: int
    seq: int


class Consistency:
    """What there is in one transaction.

    Args:
        txn: its databases are read.
        path: of the store, for sentences.
    """

    def __init__(self, txn: Any, databases: Databases, path: Path) -> None:
        self._txn = txn
        self._databases = databases
        self._path = path
        with txn.cursor(db=databases.queues) as cursor:
            records = [values.decode_queue(value) for _, value in cursor]
        self._queues: dict[int, QueueRecord] = {record.queue: record for record in records}
        self._stubs: Counter[int] = Counter()
        self._larges: dict[int, _Large] = {}
        self._references: Counter[int] = Counter()

    def check(self) -> None:
        """Look at all of it.

        Raises:
            StoreCorruptError: something does not fit; the message says what.
        """
        self._read_blocks()
        self._check_expiries()
        self._check_larges()
        self._check_copies()
        self._check_ids()

    def _read_blocks(self) -> None:
        """Count what the others count, and see that blocks are found by the time at which they expire."""
        with self._txn.cursor(db=self._databases.messages) as cursor:
            for key, value in cursor:
                queue, first = read_place(key)
                try:
                    block = Block(queue, first, value)
                except StoreCorruptError:
                    if queue in self._queues:
                        raise
                    continue
                if block.topic:
                    self._references[block.topic] += block.count
                else:
                    self._note_stubs(block)
                expires_us = block.first_expiry_us()
                if expires_us and queue in self._queues:
                    index = expiry_key(expires_us, queue, first)
                    if self._txn.get(index, db=self._databases.expiries) is None:
                        self._refuse(f"messages of {self._name(queue)} from {first} on would not expire as they should")

    def _note_stubs(self, block: Block) -> None:
        for index, body in enumerate(block.bodies(0, block.count)):
            if (stub := read_stub(body)) is not None:
                self._stubs[stub.large] += 1
                if block.queue in self._queues:
                    seq = block.seqs(index, index + 1)[0]
                    self._larges.setdefault(stub.large, _Large(stub.size, block.queue, seq))

    def _check_expiries(self) -> None:
        """Who looks for what expires finds it."""
        messages = self._databases.messages
        with self._txn.cursor(db=self._databases.expiries) as cursor:
            for key in cursor.iternext(values=False):
                _, queue, first = read_expiry(key)
                if queue in self._queues and self._txn.get(place_key(queue, first), db=messages) is None:
                    self._refuse(f"{self._name(queue)} lacks its messages from {first} on, of which some expire")

    def _check_larges(self) -> None:
        """All parts of each large message are there, and not to be removed before its last stub."""
        for number, large in sorted(self._larges.items()):
            where = f"message {large.seq} of {self._name(large.queue)}"
            there = self._bytes_of(number, where)
            if there != large.size:
                self._refuse(f"{where} is to have {large.size:,} bytes after its head; {there:,} are there")
            counted = self._txn.get(position_key(number), db=self._databases.larges)
            count = 0 if counted is None else values.decode_number(counted)
            is_loose = self._txn.get(position_key(number), db=self._databases.loose) is not None
            if count < self._stubs[number] or is_loose:
                self._refuse(f"the parts of {where} would be removed too early: {count} messages count as having them")

    def _bytes_of(self, number: int, where: str) -> int:
        """How many bytes the parts of a large message have."""
        size = expected = 0
        with self._txn.cursor(db=self._databases.chunks) as cursor:
            there = cursor.set_range(chunk_key(number, 0))
            while there:
                large, index = read_chunk_key(cursor.key())
                if large != number:
                    break
                if index != expected:
                    self._refuse(f"{where} lacks part {expected} of its body")
                size += len(bytes(cursor.value()))  # Copied: so it was read.
                expected += 1
                there = cursor.next()
        return size

    def _check_copies(self) -> None:
        """Bodies stay as long as they are counted."""
        counted: Counter[int] = Counter()
        with self._txn.cursor(db=self._databases.copies) as cursor:
            for key, value in cursor:
                topic, first = read_place(key)
                counted[topic] += sum(Block(topic, first, value).sizes())
        for topic, count in sorted(self._references.items()):
            if counted[topic] < count:
                self._refuse(
                    f"subscriptions of {self._name(topic)} have {count} messages, and {counted[topic]} are counted: "
                    "some would be removed too early"
                )

    def _check_ids(self) -> None:
        """Each duplicate id is known by its digest, and by its number."""
        ids, places = self._databases.duplicates, self._databases.duplicate_places
        with self._txn.cursor(db=ids) as cursor:
            for key, value in cursor:
                queue, digest = read_id_key(key)
                position = read_position(value)
                if queue in self._queues:
                    place = self._txn.get(place_key(queue, position), db=places)
                    if place is None or read_id(place) != digest:
                        self._refuse(f"{self._name(queue)} lacks its duplicate id {position}")
        with self._txn.cursor(db=places) as cursor:
            for key, value in cursor:
                queue, position = read_place(key)
                if queue in self._queues:
                    found = self._txn.get(number_key(queue) + read_id(value), db=ids)
                    # An id that came again has a later number.
                    if found is None or read_position(found) < position:
                        self._refuse(f"{self._name(queue)} would not know duplicate id {position} again")

    def _name(self, queue: int) -> str:
        record = self._queues.get(queue)
        return f"queue {queue}" if record is None else record.name

    def _refuse(self, what: str) -> NoReturn:
        raise StoreCorruptError(f"{self._path}: {what}.")
