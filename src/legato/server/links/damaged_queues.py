"""Queues of which the store cannot read something: told of once, and refused to who wants their messages."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence, Set
from typing import Protocol

from legato.core.records import (
    Archive,
    ExpiryPlace,
    KeptId,
    ProducerRecord,
    QueueRecord,
    Run,
    StoredMessage,
    StoredRun,
    TakenMessage,
)
from legato.errors import StoreCorruptError, StoreError
from legato.quoting import quoted, sentence
from legato.server.links.refused import INTERNAL_ERROR, Refused

log = logging.getLogger("legato.service")

ADVICE = "restore a backup (legato store restore), or delete the queue with what it holds"

_EXPIRIES = 0
"""No queue's number: stands for what has expired, of all queues."""


class Numbered(Protocol):
    """What has the name and the number of a queue."""

    @property
    def id(self) -> int: ...


class DamagedQueues:
    """Which queues hold what cannot be read, and why.

    A queue stays among them until it is deleted or the broker ends: what it holds is not known.

    Attributes:
        fresh: whether one has been added of which its receivers do not know yet.
    """

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._why: dict[int, str] = {}
        self.fresh = False

    def note(self, queue: int, error: StoreCorruptError) -> None:
        """Something of a queue could not be read; the log says so once."""
        if queue not in self._why:
            why = self._why[queue] = f"{self._name_of(queue)} cannot be read: {sentence(error)}; {ADVICE}"
            self.fresh = True
            log.error("! %s", why)

    def note_expiries(self, error: StoreCorruptError) -> None:
        """What has expired could not be looked for; the log says so once."""
        if _EXPIRIES not in self._why:
            why = f"messages that have expired stay until they are to be delivered: {sentence(error)}; {ADVICE}"
            self._why[_EXPIRIES] = why
            log.error("! %s", why)

    def why(self, queue: int) -> str:
        """Why a queue cannot be read; empty if it can, as far as is known."""
        return self._why.get(queue, "")

    def forget(self, queue: int) -> None:
        """The queue is deleted."""
        self._why.pop(queue, None)

    @property
    def count(self) -> int:
        """How many there are, the index of what expires among them."""
        return len(self._why)

    def all(self) -> Iterable[str]:
        """A sentence for each."""
        return list(self._why.values())

    def refuse(self, queue: Numbered) -> None:
        """See that a queue can be read.

        Raises:
            Refused: it cannot.
        """
        if why := self._why.get(queue.id):
            raise Refused(INTERNAL_ERROR, why)

    def _name_of(self, queue: int) -> str:
        try:
            record = self._archive.queue_by_number(queue)
        except StoreError:
            record = None
        return f"queue number {queue}" if record is None else f"queue {quoted(record.name)}"


class ReadableArchive:
    """An archive without what is damaged: the broker, in the middle of a command, finds nothing there.

    So its state stays whole, and other queues are served. Who receives from the queue is told by its link's end.
    """

    def __init__(self, archive: Archive, damaged: DamagedQueues) -> None:
        self._archive = archive
        self._damaged = damaged

    def messages(self, queue: int, after: int, limit: int, limit_bytes: int) -> Sequence[StoredMessage]:
        """See `Archive.messages`."""
        try:
            return self._archive.messages(queue, after, limit, limit_bytes)
        except StoreCorruptError as error:
            self._damaged.note(queue, error)
            return []

    def messages_in_runs(
        self, queue: int, after: int, limit: int, limit_bytes: int
    ) -> Sequence[StoredMessage | StoredRun]:
        """See `Archive.messages_in_runs`."""
        try:
            return self._archive.messages_in_runs(queue, after, limit, limit_bytes)
        except StoreCorruptError as error:
            self._damaged.note(queue, error)
            return []

    def unread_messages(self, queue: int, seqs: Sequence[int]) -> Sequence[StoredMessage]:
        """See `Archive.unread_messages`."""
        try:
            return self._archive.unread_messages(queue, seqs)
        except StoreCorruptError as error:
            self._damaged.note(queue, error)
            return []

    def runs(self, queue: int, after: int, limit: int, limit_bytes: int, without: Set[int]) -> Sequence[Run]:
        """See `Archive.runs`."""
        try:
            return self._archive.runs(queue, after, limit, limit_bytes, without)
        except StoreCorruptError as error:
            self._damaged.note(queue, error)
            return []

    def expired(self, after: ExpiryPlace, now_us: int, limit: int) -> Sequence[ExpiryPlace]:
        """See `Archive.expired`."""
        try:
            return self._archive.expired(after, now_us, limit)
        except StoreCorruptError as error:
            self._damaged.note_expiries(error)
            return []

    # -- the rest as it is ---------------------------------------------------------------------------------------

    def queue(self, name: str) -> QueueRecord | None:
        """See `Archive.queue`."""
        return self._archive.queue(name)

    def producer(self, name: str) -> ProducerRecord | None:
        """See `Archive.producer`."""
        return self._archive.producer(name)

    def producers(self, after: int, limit: int) -> Sequence[ProducerRecord]:
        """See `Archive.producers`."""
        return self._archive.producers(after, limit)

    def producers_count(self) -> int:
        """See `Archive.producers_count`."""
        return self._archive.producers_count()

    def producer_names(self, prefix: str, limit: int) -> Sequence[str]:
        """See `Archive.producer_names`."""
        return self._archive.producer_names(prefix, limit)

    def outcome(self, txn: bytes) -> bool:
        """See `Archive.outcome`."""
        return self._archive.outcome(txn)

    def outcomes_forgotten_us(self) -> int:
        """See `Archive.outcomes_forgotten_us`."""
        return self._archive.outcomes_forgotten_us()

    def queue_by_number(self, queue: int) -> QueueRecord | None:
        """See `Archive.queue_by_number`."""
        return self._archive.queue_by_number(queue)

    def subscriptions(self, topic: int) -> Sequence[QueueRecord]:
        """See `Archive.subscriptions`."""
        return self._archive.subscriptions(topic)

    def temporaries(self, limit: int) -> Sequence[QueueRecord]:
        """See `Archive.temporaries`."""
        return self._archive.temporaries(limit)

    def taken(self, queue: int) -> Sequence[TakenMessage]:
        """See `Archive.taken`."""
        return self._archive.taken(queue)

    def duplicate(self, queue: int, duplicate_id: bytes) -> KeptId | None:
        """See `Archive.duplicate`."""
        return self._archive.duplicate(queue, duplicate_id)

    def duplicates(self, queue: int) -> tuple[int, int]:
        """See `Archive.duplicates`."""
        return self._archive.duplicates(queue)

    def chunk(self, large: int, index: int) -> bytes | None:
        """See `Archive.chunk`."""
        return self._archive.chunk(large, index)

    def has_larges(self) -> bool:
        """See `Archive.has_larges`."""
        return self._archive.has_larges()
