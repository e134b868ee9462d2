"""Records of the store: queues, producers, messages, and the batch that one commit adds."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence, Set
from itertools import pairwise
from typing import Protocol

import msgspec

from legato import limits
from legato.core.facts import AnyFact
from legato.core.traits import FlowCall


class Batch(msgspec.Struct):
    """The facts of one commit, committed together.

    `bodies[i]` belongs to the i-th of its `MessageStored` and `MessagesStored` facts and those `MessagePublished` that
    have subscriptions.
    """

    epoch: int
    time_us: int
    facts: list[AnyFact]
    bodies: list[bytes]
    chunks: list[tuple[int, int, bytes]] = []
    """Parts of large messages' bodies: large number, index from 0, bytes."""
    ended: list[int] = []
    """Large messages that no more parts come of: if no message refers to them now, what there is of them goes."""
    runs: list[Sequence[bytes | memoryview]] = []
    """Of each `RunStored`, its blocks, packed as the store keeps them, first to last."""
    steady_us: int = 0
    """The broker's steady clock (`core.steady`); 0: as in the commit before."""


class Applied(msgspec.Struct, array_like=True, frozen=True):
    """How far a store is in what carries its commits as records, a journal or a replicated log.

    Args:
        number: of the last record that was applied, as its carrier counts.
        digest: of all records up to it.
    """

    number: int
    digest: bytes


class CommitRecord(msgspec.Struct, frozen=True):
    """A commit.

    Args:
        position: of its log record.
        batch: what is committed. Of one that was decoded, `runs` and bodies are bytes.
        log_bytes: the log record, encoded.
    """

    position: int
    batch: Batch
    log_bytes: bytes

    @property
    def epoch(self) -> int:
        """The epoch in which it was committed."""
        return self.batch.epoch


class EpochRecord(msgspec.Struct, frozen=True):
    """The beginning of an epoch.

    Args:
        epoch: that begins.
        position: of its log record.
        broker: that is primary in it.
        now_us: its clock, microseconds since 1970.
        log_bytes: the log record, encoded.
        version: of Legato, which wrote it.
        rules: of that version: see `store.commit_records.rules`.
        origin: digest of `Applied` of the store that began the log with this record and was not empty.
    """

    epoch: int
    position: int
    broker: str
    now_us: int
    log_bytes: bytes
    version: str
    rules: dict[str, int]
    origin: bytes = b""


class Meta(msgspec.Struct):
    """The counters with which a broker continues its predecessor's work."""

    epoch: int = 0
    next_queue: int = 1
    next_producer: int = 1
    next_consumer: int = 1
    log_position: int = 0
    """Position of the last log record; 0 when there is none."""
    steady_us: int = 0
    """The steady clock (`core.steady`) as of the last commit; 0 until an epoch begins."""
    outcomes_forgotten_us: int = 0
    """Of a transaction that was committed up to then, by the steady clock, the outcome may be forgotten."""
    applied: Applied | None = None
    """Where the last commit is in a journal or a replicated log; None if it was no record of one."""

    def begin(self, now_us: int) -> None:
        """The next epoch begins; a store that is new, or of a former version, gets its steady clock."""
        self.epoch += 1
        if not self.steady_us:
            self.steady_us = now_us
            # A former version forgot by the wall clock.
            self.outcomes_forgotten_us = now_us - limits.OUTCOME_RETENTION_S * 1_000_000


class QueueRecord(msgspec.Struct):
    """A queue as the store knows it; `stored - consumed` messages wait (whatever left it counts as consumed).

    `last_seq` and `dispatch_mark` are those of lane 0; `lanes` has `(last_seq, dispatch_mark)` of every other lane by
    its number, sequences whole. `bytes` is the size of what waits. A topic's `stored`, `consumed` and `bytes` are those
    of its bodies.
    """

    queue: int
    name: str
    last_seq: int = 0
    dispatch_mark: int = 0
    stored: int = 0
    consumed: int = 0
    kind: int = 0
    topic: int = 0
    selector: str = ""
    no_local: bool = False
    container: str = ""
    temporary: bool = False
    shared: bool = False
    paused: bool = False
    grouped: bool = False
    bytes: int = 0
    taken: int = 0
    """How many `MessageTaken` there ever were; the last `limits.TAKEN_MESSAGES` are kept."""
    lanes: dict[int, tuple[int, int]] = {}
    fence: int = 0
    floors: list[int] = []
    acknowledged: int = 0


class PublishedBatch(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A batch of a sink: see `BatchPublished`."""

    number: int
    count: int
    digest: bytes
    stages: bytes


class ProducerRecord(msgspec.Struct):
    """The last number handled of a numbered producer, and those that were refused (`core.refused_numbers`)."""

    producer: int
    name: str
    last_number: int = 0
    refused: list[int] = []
    """As former versions wrote them."""
    seen_us: int = 0
    """When it was used last, by the steady clock."""
    refused_first: int = 1
    """The number of the first bit of `refused_bits`, which begins with the lowest of the first byte."""
    refused_bits: bytes = b""
    refused_forgotten: int = 0
    """The highest number that was refused and is not kept any more."""
    batches: list[PublishedBatch] = []
    """Of a sink, the last ones, at most `limits.BATCHES_KEPT`."""


NO_ATTEMPT = ("carried", "claimed")
"""Causes of a `MessageReturned` that tell of no failed delivery."""


class Attempt(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A failed delivery: a `MessageReturned` whose cause is none of `NO_ATTEMPT`."""

    time_us: int
    consumer: int
    cause: str


class StoredMessage(msgspec.Struct, gc=False):
    """A waiting message: its place, its AMQP bytes, its failed deliveries, and whether it may have been seen anyway."""

    seq: int
    body: bytes
    count: int = 0
    flagged: bool = False
    """A `MessageReturned(flagged)` or `MessagePresented` is on record; the dispatch mark is the caller's to apply."""
    expires_us: int = 0
    stored_us: int = 0
    """When it was stored, or a neighbour of it: to the age of a queue's head that is near enough."""
    history: list[Attempt] = []
    """The last failed deliveries, oldest first, at most `limits.HISTORY_ATTEMPTS`."""
    unread_bytes: int = 0
    """The size of the body where that was not read."""

    @property
    def is_plain(self) -> bool:
        """Whether nothing is to be remembered of it, and it does not expire."""
        return not (self.count or self.flagged or self.expires_us or self.history)


class StoredRun(msgspec.Struct, gc=False):
    """Waiting messages without gaps that were read together; each is plain (`StoredMessage.is_plain`).

    Args:
        seq: of the first one.
        content: their AMQP bytes, one behind the other.
        ends: where each ends in `content`.
        stored_us: as that of a message.
    """

    seq: int
    content: bytes
    ends: array[int]
    stored_us: int = 0

    @property
    def last_seq(self) -> int:
        """The sequence of the last one."""
        return self.seq + len(self.ends) - 1

    def split(self, count: int) -> tuple[StoredRun, StoredRun]:
        """The first ones, and the others, of which there is one at least."""
        size = self.ends[count - 1]
        ends = array("I", [end - size for end in self.ends[count:]])
        first = StoredRun(self.seq, self.content[:size], self.ends[:count], self.stored_us)
        return first, StoredRun(self.seq + count, self.content[size:], ends, self.stored_us)

    def messages(self) -> list[StoredMessage]:
        """Its messages, apart."""
        return [
            StoredMessage(seq, self.content[begin:end], stored_us=self.stored_us)
            for seq, (begin, end) in enumerate(pairwise((0, *self.ends)), self.seq)
        ]


class KeptId(msgspec.Struct, frozen=True, gc=False):
    """A duplicate id that an address remembers: its number there, and the message that had it."""

    position: int
    message_id: str = ""
    producer: int = 0
    number: int = 0


class TakenMessage(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A message that left its queue after other consumers had had it; taker empty if nobody consumed it."""

    seq: int
    container: str
    link: str


class Run(msgspec.Struct, frozen=True, gc=False):
    """Waiting messages without gaps between them: from `seq` on, `count` of them, `size` bytes together."""

    seq: int
    count: int
    size: int


class ExpiryPlace(msgspec.Struct, frozen=True, order=True, gc=False):
    """Place of a waiting message that expires."""

    expires_us: int = 0
    queue: int = 0
    seq: int = 0


class Archive(Protocol):
    """The store as the broker reads it: committed state only, at a cost that no backlog raises."""

    def queue(self, name: str) -> QueueRecord | None:
        """The queue of that name, or None if there never was one."""

    def producer(self, name: str) -> ProducerRecord | None:
        """Record of a numbered producer."""

    def producers(self, after: int, limit: int) -> Sequence[ProducerRecord]:
        """The numbered producers whose own numbers are above `after`, at most `limit`, by number."""

    def producers_count(self) -> int:
        """How many numbered producers there are, without reading them."""

    def producer_names(self, prefix: str, limit: int) -> Sequence[str]:
        """The names of numbered producers that begin with `prefix`, in order, at most `limit`; but none of hundreds of
        bytes."""

    def outcome(self, txn: bytes) -> bool:
        """True if the transaction is known to have committed."""

    def outcomes_forgotten_us(self) -> int:
        """`Meta.outcomes_forgotten_us` as of the last commit."""

    def messages(self, queue: int, after: int, limit: int, limit_bytes: int) -> Sequence[StoredMessage]:
        """Waiting messages of `queue` with seq > `after` in the same lane, in order: at most `limit`, and no more once
        `limit_bytes` of bodies are exceeded (at least one message if there is any)."""

    def messages_in_runs(
        self, queue: int, after: int, limit: int, limit_bytes: int
    ) -> Sequence[StoredMessage | StoredRun]:
        """The same as `messages`, with some of the plain neighbours together: as they are stored."""

    def unread_messages(self, queue: int, seqs: Sequence[int]) -> Sequence[StoredMessage]:
        """Those of `seqs` (ascending) that wait in `queue`, without their bodies."""

    def queue_by_number(self, queue: int) -> QueueRecord | None:
        """The queue of that number, or None if there is none any more."""

    def subscriptions(self, topic: int) -> Sequence[QueueRecord]:
        """The subscriptions of a topic."""

    def temporaries(self, limit: int) -> Sequence[QueueRecord]:
        """Queues, topics and subscriptions that were made to be temporary, by number: at most `limit`."""

    def taken(self, queue: int) -> Sequence[TakenMessage]:
        """Messages that left the queue after others had had them, oldest first: the last `limits.TAKEN_MESSAGES`."""

    def expired(self, after: ExpiryPlace, now_us: int, limit: int) -> Sequence[ExpiryPlace]:
        """Places of waiting messages that expired at or before `now_us`, in order of expiry, beyond `after`."""

    def duplicate(self, queue: int, duplicate_id: bytes) -> KeptId | None:
        """Record of a duplicate id that a message to the queue or topic had."""

    def duplicates(self, queue: int) -> tuple[int, int]:
        """First and last position of the duplicate ids that are remembered of a queue or topic, which has all between
        them; (1, 0) if none is."""

    def runs(self, queue: int, after: int, limit: int, limit_bytes: int, without: Set[int]) -> Sequence[Run]:
        """Where messages wait in `queue` with seq > `after` in the same lane, in order, without reading them: at most
        `limit` messages, none of `without`, and no more once `limit_bytes` are exceeded, or soon after."""

    def chunk(self, large: int, index: int) -> bytes | None:
        """A part of a large message's body; None if there is none, or none any more."""

    def has_larges(self) -> bool:
        """Whether there are parts of any large message."""


class Bodies(Protocol):
    """Reader of messages' bytes, which the broker does not read itself."""

    def group(self, body: bytes) -> tuple[str, bool]:
        """The group id, empty if there is none, and whether the message closes its group."""

    def matcher(self, selector: str) -> Callable[[bytes], bool]:
        """A function that tells whether a message matches a selector that was accepted before."""

    def annotate(self, body: bytes, properties: Mapping[str, str | int]) -> bytes:
        """The message with further application properties, and without an expiry."""

    def read(self, body: bytes, name: str) -> object:
        """An application property; None if there is none."""

    def flows(self, body: bytes) -> tuple[FlowCall, ...]:
        """The calls of flows that the message carries."""
