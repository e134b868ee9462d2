"""The schedule: one queue of delayed messages, in which a sequence number is a due time.

A message waits there wrapped, with where it goes; when it is due it is moved there and takes the next number.
"""

from __future__ import annotations

import msgspec

from legato import limits
from legato.core.facts import plain
from legato.core.message import Message
from legato.core.message_states import AVAILABLE
from legato.core.queues import Queue
from legato.core.records import Archive

SCHEDULE_NAME = "$schedule"
_COUNTER_BITS = 14
_US_PER_MS = 1000
_NEVER_US = 1 << 62


class Scheduled(msgspec.Struct, array_like=True):
    """A delayed message and its destination. `count`: failed deliveries so far.

    The body comes last: wrapped, a message still ends as it did, so that the store knows the stubs of large messages.
    """

    node: int
    message_id: str = ""
    priority: int = 4
    expires_us: int = 0
    group: str = ""
    closes_group: bool = False
    container: str = ""
    count: int = 0
    body: bytes = b""


wrap = msgspec.msgpack.Encoder(enc_hook=plain).encode
unwrap = msgspec.msgpack.Decoder(Scheduled).decode


class Schedule:
    """Allocates places in the schedule, and knows the next due time."""

    def __init__(self, queue: Queue, archive: Archive) -> None:
        self.queue = queue
        self.due_us = 0
        """Nothing is due before, as far as is known; 0: to be looked up."""
        self.releasing: set[int] = set()
        """What was due last, and is not committed as moved yet."""
        self._archive = archive
        self._given = queue.stored
        self.uncommitted: set[int] = set()
        """Places that were given and are not durable."""

    def place(self, due_us: int) -> int:
        """A free sequence number for that time, or shortly after if very many are due then; before the last of all."""
        due_ms, step = min(-(-due_us // _US_PER_MS), limits.TIME_MS_MAX), 1
        self._given += 1
        while True:
            seq = due_ms << _COUNTER_BITS | self._given % (1 << _COUNTER_BITS)
            if seq not in self.uncommitted and not self._is_taken(seq):
                self.uncommitted.add(seq)
                return seq
            if due_ms == limits.TIME_MS_MAX:
                step = -1
            due_ms += step

    def _is_taken(self, seq: int) -> bool:
        found = self._archive.messages(self.queue.id, seq - 1, 1, 0)
        return bool(found) and found[0].seq == seq

    def committed(self, seq: int) -> None:
        """The message at `seq` is durable."""
        self.uncommitted.discard(seq)
        self.due_us = min(self.due_us, _due_us(seq))

    def not_stored(self, seq: int) -> None:
        """There was no room for the message at `seq`: its place is free."""
        self.uncommitted.discard(seq)

    def due(self, now_us: int, limit: int, limit_bytes: int) -> list[tuple[Message, Scheduled]]:
        """Messages whose time has come, in order, at most `limit`, and no more once `limit_bytes` are exceeded; learns
        when the next ones are due."""
        if self.releasing or now_us < self.due_us:
            return []
        found = self._archive.messages(self.queue.id, 0, limit, limit_bytes)
        due = [
            (Message(self.queue, stored.seq, stored.body, len(stored.body), state=AVAILABLE), unwrap(stored.body))
            for stored in found
            if _due_us(stored.seq) <= now_us
        ]
        if not due:
            self.due_us = _due_us(found[0].seq) if found else _NEVER_US
        self.releasing = {message.seq for message, _ in due}
        return due


def _due_us(seq: int) -> int:
    return (seq >> _COUNTER_BITS) * _US_PER_MS
