"""State as it is kept: what a store holds of queues, producers and messages, and what one commit adds."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from legato.core.facts import AnyFact


class Batch(msgspec.Struct):
    """The facts of one tick, committed together. `bodies[i]` belongs to the i-th `MessageStored` of `facts`."""

    epoch: int
    time_us: int
    facts: list[AnyFact]
    bodies: list[bytes]


class Meta(msgspec.Struct):
    """What a broker needs to go on where the last one ended."""

    epoch: int = 0
    next_queue: int = 1
    next_producer: int = 1
    next_consumer: int = 1
    log_position: int = 0
    """Position of the last log record; 0 when there is none."""


class QueueRecord(msgspec.Struct):
    """A queue as the store knows it; `stored - consumed` messages wait (dead-lettered ones count as consumed)."""

    queue: int
    name: str
    last_seq: int = 0
    dispatch_mark: int = 0
    stored: int = 0
    consumed: int = 0


class ProducerRecord(msgspec.Struct):
    """The last number stored for a numbered producer, and the lower ones that were refused."""

    producer: int
    name: str
    last_number: int = 0
    refused: list[int] = []
    seen_us: int = 0


class StoredMessage(msgspec.Struct, gc=False):
    """A waiting message: its place, its AMQP bytes, its failed deliveries, and whether it may have been seen anyway."""

    seq: int
    body: bytes
    count: int = 0
    flagged: bool = False
    """A `MessageReturned(flagged)` or `MessagePresented` is on record; the dispatch mark is the caller's to apply."""


class Archive(Protocol):
    """What the broker reads of its store: committed state only, constant in the backlog."""

    def queue(self, name: str) -> QueueRecord | None:
        """The queue of that name, or None if there never was one."""

    def producer(self, name: str) -> ProducerRecord | None:
        """What is remembered of a numbered producer."""

    def outcome(self, txn: bytes) -> bool:
        """True if the transaction is known to have committed."""

    def messages(self, queue: int, after: int, limit: int, limit_bytes: int) -> Sequence[StoredMessage]:
        """Waiting messages of `queue` with seq > `after`, in order: at most `limit`, and no more once
        `limit_bytes` of bodies are exceeded (at least one message if there is any)."""
