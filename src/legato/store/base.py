"""What the broker needs of a store: one interface, `memory.py` its model, `lmdb.py` the real one.

1. `commit` is atomic and durable: when it returns, a power cut does not undo it; when it raises, nothing of it happened.
2. `commit` refuses a batch of any epoch but the newest (`FencedError`): promise 7.
3. Nothing here costs more when more messages wait: opening, loading and committing are constant in the backlog (promise 6).
4. Reads see the last commit. `commit` runs in one thread at a time; reads may run in any thread meanwhile.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from legato.core.facts import AnyFact, LogRecord

FORMAT_VERSION = 1


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
    """True if a `MessageReturned(flagged)` or `MessagePresented` is on record; the dispatch mark is the caller's to apply."""


class Usage(msgspec.Struct):
    """Room: bytes in use by live pages, the bound on them, and free bytes of the file system."""

    used_bytes: int
    capacity_bytes: int
    free_disk_bytes: int


class Store(Protocol):
    """Durable state of a broker."""

    def begin_epoch(self, broker: str, now_us: int) -> Meta:
        """Begin the next epoch: commits `EpochBegan(broker)` and fences every earlier epoch. Returns the new state."""

    def meta(self) -> Meta: ...

    def queue(self, name: str) -> QueueRecord | None: ...

    def queues(self) -> Iterator[QueueRecord]: ...

    def producer(self, name: str) -> ProducerRecord | None: ...

    def outcome(self, txn: bytes) -> bool:
        """True if the transaction is known to have committed."""

    def messages(self, queue: int, after: int, limit: int, limit_bytes: int) -> Sequence[StoredMessage]:
        """Waiting messages of `queue` with seq > `after`, in order: at most `limit`, and no more once
        `limit_bytes` of bodies are exceeded (at least one message if there is any)."""

    def commit(self, batch: Batch) -> int:
        """Apply and log all of `batch`, durably. Returns the position of its log record.

        Raises:
            FencedError: a later epoch has begun.
            StoreFullError: no room; nothing of the batch was applied, the store goes on.
        """

    def log(self, after: int, limit: int) -> Sequence[tuple[int, LogRecord]]:
        """Log records with position > `after`, at most `limit`, oldest first."""

    def log_range(self) -> tuple[int, int]:
        """First and last position kept; (1, 0) if there is none."""

    def trim_log(self, through: int, limit: int) -> int:
        """Delete at most `limit` of the oldest log records with position <= `through`; returns how many."""

    def prune(self, now_us: int) -> int:
        """Forget outcomes and producers older than their retention, a bounded number a call; returns how many."""

    def usage(self) -> Usage: ...

    def close(self) -> None: ...
