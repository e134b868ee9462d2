"""The `Store` interface that the broker needs; `memory.py` is its model, `lmdb.py` the real store.

1. `commit` is atomic and durable: once it returns, a power cut does not undo it;
   if it raises, nothing of it happened.
2. `commit` refuses a batch of any epoch but the newest (`FencedError`): promise 7.
3. Nothing here costs more when more messages wait: opening, loading and committing are constant
   in the backlog (promise 6).
4. Reads see the last commit, those of other processes the last checkpoint. `commit` runs in one thread at a time; reads
   may run in any thread meanwhile.
5. A commit is `prepare`, then `finish` or `abandon`. The same records leave the same store, byte for byte in its file,
   whoever applies them. `prune` and `trim_log` change nothing that a broker could see or a record refer to.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from legato.core.facts import LogRecord, QueueCreated
from legato.core.records import (
    Applied,
    Archive,
    Batch,
    CommitRecord,
    EpochRecord,
    Meta,
    ProducerRecord,
    QueueRecord,
    StoredMessage,
)
from legato.store.jobs import JobThread

__all__ = [
    "FORMAT_VERSION",
    "NONE_KEPT",
    "Batch",
    "Committer",
    "Meta",
    "ProducerRecord",
    "QueueRecord",
    "Reading",
    "ReadingsFound",
    "Store",
    "StoredMessage",
    "Usage",
    "first_after",
    "new_queue",
]

FORMAT_VERSION = 3
"""The format that this version writes. Another one needs a step in `format_steps`."""

FORGOTTEN_FOR_EACH = 4
"""Ids beyond the window that go for each new one: one is enough while the window keeps its size; when it has become
smaller no commit has to remove many."""
NONE_KEPT = (1, 0)
"""First and last position where there is none."""


def first_after(first: int, last: int, window: int) -> int:
    """First position still remembered in a `window` of positions, once `last` was added.

    Args:
        first: the first one before.
    """
    return first + min(max(last - window + 1 - first, 0), FORGOTTEN_FOR_EACH)


def new_queue(fact: QueueCreated) -> QueueRecord:
    """The record of a queue that has just been created."""
    return QueueRecord(
        fact.queue,
        fact.name,
        kind=fact.kind,
        topic=fact.topic,
        selector=fact.selector,
        no_local=fact.no_local,
        container=fact.container,
        temporary=fact.temporary,
        shared=fact.shared,
    )


class Usage(msgspec.Struct):
    """Space: bytes in use by live pages, the bound on them, and free bytes of the file system."""

    used_bytes: int
    capacity_bytes: int
    free_disk_bytes: int
    file_room_bytes: int = 0
    """Bytes of the store's own file that hold nothing."""
    reserved: bool = True
    """Whether there is room that only what stores no message may use."""


class Reading(msgspec.Struct, frozen=True):
    """One process's read transaction."""

    pid: int
    thread: str
    txnid: int
    """Of the commit that it sees."""


class ReadingsFound(msgspec.Struct, frozen=True):
    """The read transactions found in a store's table of readers."""

    cleared: int
    """So many were of processes that are dead."""
    holding: list[Reading]
    """Those that keep pages from being used again."""
    reach_bytes: int
    """How far into the store's file its content reaches."""


class Committer(Protocol):
    """Where the batches of an epoch go: its store, or that and replicas."""

    @property
    def jobs(self) -> JobThread | None:
        """See `Store.jobs`."""

    def checkpoint(self) -> None:
        """See `Store.checkpoint`."""

    def commit(self, batch: Batch) -> int:
        """See `Store.commit`."""

    def make_room(self) -> bool:
        """See `Store.make_room`."""


class Store(Archive, Protocol):
    """Durable state of a broker. `Archive` has the reads."""

    @property
    def jobs(self) -> JobThread | None:
        """The thread that makes all changes, if the store has one: what is done there waits for nobody."""

    def begin_epoch(self, broker: str, now_us: int) -> Meta:
        """Begin the next epoch: commits `EpochBegan(broker)` and fences every earlier epoch. Returns the new state."""

    def meta(self) -> Meta: ...

    def queues(self) -> Iterator[QueueRecord]: ...

    def commit(self, batch: Batch) -> int:
        """Apply and log all of `batch`, durably. Returns the position of its log record.

        Raises:
            FencedError: a later epoch has begun.
            StoreFullError: no room; nothing of the batch was applied, the store goes on. A batch that stores no message
                may use the reserve.
        """

    def prepare(self, record: CommitRecord | EpochRecord, *, forced: bool = False) -> int:
        """Apply a record in a transaction that stays open: nobody sees it, and no other change begins, until it ends.

        The same thread ends it, with `finish` or `abandon`. Returns the position of its log record.

        Args:
            record: of a commit, or of an epoch that begins.
            forced: it is committed elsewhere already: the reserve may be used for it. Of such several may be prepared,
                one after the other, and are finished together; if one cannot be, none is prepared any more. A store
                may also refuse the second with a `StoreError`.

        Raises:
            FencedError: it is of another epoch than the store's, or begins another than the next one.
            StoreFullError: no room for it.
            StoreError: it contradicts the state, or is not the next one.
        """

    def finish(self, applied: Applied) -> None:
        """Commit what is prepared, durably.

        Args:
            applied: where its record is in what carries the records, kept with it.

        Raises:
            StoreFullError, StoreError: it is not committed, and not prepared any more.
        """

    def abandon(self) -> None:
        """Undo what is prepared, if anything is."""

    def place(self, applied: Applied) -> None:
        """Keep where the store is in what carries its records, without a commit.

        Raises:
            FencedError: this object began an epoch that is over.
        """

    def checkpoint(self) -> None:
        """Have everything that was committed where other processes see it.

        Raises:
            StoreFullError: there is no room; it is as durable as before.
        """

    def log(self, after: int, limit: int) -> Sequence[tuple[int, LogRecord]]:
        """Log records with position > `after`, at most `limit`, oldest first."""

    def log_range(self) -> tuple[int, int]:
        """First and last position kept; if none is kept, the last one there was and, as first, the one after it."""

    def log_bytes(self) -> int:
        """Room that the log takes up, without reading it."""

    def trim_log(self, through: int, limit: int) -> int:
        """Delete at most `limit` of the oldest log records with position <= `through`; returns how many."""

    def prune(self, now_us: int) -> int:
        """Forget outcomes older than their retention, and remove what deleted queues held, and parts of large messages
        that nobody needs.

        Outcomes are kept by the steady clock of the last commit; `now_us`, which may be wrong, makes nothing forgotten.
        Which producers are forgotten the broker decides (`Broker.forget_producers`). A bounded amount a call; returns
        how much that was, in units of its own. 0: there is nothing more to do now.
        """

    def check_readers(self) -> ReadingsFound:
        """Wait no longer for readers that died, and find those that live and hold pages."""

    def keep_reserve(self) -> bool:
        """See that there is room for what must not fail on a full disk (`Usage.reserved`); returns whether there is."""

    def make_room(self) -> bool:
        """Prepare a little for large commits, when none is asked for; returns whether there is more to do."""

    def usage(self) -> Usage: ...

    def close(self) -> None: ...
