"""A commit: the facts gathered for it, and the consequences of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from legato.core.consumers import Consumer
from legato.core.facts import (
    AnyFact,
    MessageConsumed,
    MessageDeadLettered,
    MessageMoved,
    MessagePublished,
    MessageStored,
)
from legato.core.lanes import Lane
from legato.core.message import Message
from legato.core.message_states import KEEP, RETURN, enter
from legato.core.producers import Producer
from legato.core.queues import Queue
from legato.core.records import Batch, QueueRecord, Run
from legato.core.repeats import Duplicate, First, Window
from legato.core.transaction import Transaction

if TYPE_CHECKING:
    from legato.core.staged_batches import Stage


class Publication(msgspec.Struct, gc=False):
    """A message for a topic: its copies, and the publisher's token, None if nobody is to be told."""

    token: Any
    copies: list[Message]


class Commit:
    """Facts gathered since the last commit was begun, with their consequences.

    `stored[i]` belongs to the i-th `MessageStored` of `facts`, `published[i]` to the i-th `MessagePublished`; `bodies`
    has those of both in the order of the facts.
    """

    __slots__ = (
        "acknowledged",
        "bodies",
        "body_bytes",
        "chunks",
        "created",
        "deleted",
        "discharges",
        "duplicates",
        "ended",
        "facts",
        "forgotten",
        "gone",
        "ids",
        "kept",
        "left",
        "marks",
        "moved",
        "passed",
        "published",
        "released",
        "returned",
        "runs",
        "stages",
        "stored",
    )

    def __init__(self) -> None:
        self.facts: list[AnyFact] = []
        self.bodies: list[bytes] = []
        self.body_bytes = 0
        """Of bodies and chunks."""
        self.chunks: list[tuple[int, int, bytes]] = []
        """Parts of large messages: large number, index, bytes."""
        self.ended: list[int] = []
        """Large messages of which no more parts come."""
        self.runs: list[Sequence[bytes | memoryview]] = []
        """Of each `RunStored` of `facts`, its blocks."""
        self.stages: list[Stage] = []
        """Batches that were staged."""
        self.stored: list[Message] = []
        self.published: list[Publication] = []
        self.duplicates: list[Duplicate] = []
        """Messages that are confirmed without being stored."""
        self.ids: list[tuple[Window, bytes, First]] = []
        """Duplicate ids that are remembered from this commit on."""
        self.acknowledged: list[tuple[Consumer, Message]] = []
        """Acknowledgements whose sender asked to be told."""
        self.returned: list[Message] = []
        self.kept: list[Message] = []
        """Messages that came back and stay with their consumers, which get them again after this commit."""
        self.moved: list[Message] = []
        """`moved[i]` belongs to the i-th `MessageDeadLettered` or `MessageMoved` of `facts` that goes somewhere."""
        self.released: list[int] = []
        """Places in the schedule from which what was due goes."""
        self.gone: list[Message] = []
        """Messages that leave queues with claims."""
        self.passed: list[tuple[Lane, Run]] = []
        """Runs that were assigned and are claimed until they are gone."""
        self.created: list[QueueRecord] = []
        """Queues, topics and subscriptions that came to be."""
        self.deleted: list[int] = []
        """Numbers of queues and topics that are gone."""
        self.left: list[Producer] = []
        """Producers that have no link any more: once their numbers are durable, the store remembers them."""
        self.forgotten: list[tuple[int, str]] = []
        """Number and name of producers that are forgotten."""
        self.marks: list[tuple[Queue, int]] = []
        self.discharges: list[tuple[Any, Transaction, bool]] = []
        """Token, transaction, whether it commits."""

    def __bool__(self) -> bool:
        return bool(self.facts or self.discharges or self.returned or self.chunks or self.ended or self.stages)

    def batch(self, epoch: int, now_us: int, steady_us: int) -> Batch:
        """What of it is for the store."""
        return Batch(epoch, now_us, self.facts, self.bodies, self.chunks, self.ended, self.runs, steady_us)

    def give_back(self, message: Message) -> None:
        """The message returns to its place once this commit is durable."""
        enter(message, RETURN)
        message.queue.returning += 1
        self.returned.append(message)

    def keep_back(self, message: Message) -> None:
        """The message stays with the consumer that gave it back, which gets it again once this commit is durable."""
        enter(message, KEEP)
        message.queue.returning += 1
        self.kept.append(message)

    def let_go(self, message: Message) -> bool:
        """The consumer with which the message was to stay is gone: it returns. False if it was not to stay."""
        for at, kept in enumerate(self.kept):
            if kept is message:
                enter(message, RETURN)
                self.returned.append(self.kept.pop(at))
                return True
        return False

    def keep(self, queue: Queue, seqs: set[int]) -> dict[int, Message]:
        """Those of the messages that were to return with this commit: they stay with who asks."""
        kept = {message.seq: message for message in self.returned if message.queue is queue and message.seq in seqs}
        if kept:
            self.returned = [message for message in self.returned if kept.get(message.seq) is not message]
            queue.returning -= len(kept)
        return kept

    def taken(self, queue: Queue) -> set[int]:
        """Sequences that this commit takes from the queue."""
        return {
            fact.seq
            for fact in self.facts
            if isinstance(fact, MessageConsumed | MessageDeadLettered | MessageMoved) and fact.queue == queue.id
        }

    def leaving(self, queue: Queue) -> set[int]:
        """Sequences that this commit takes from the queue, or gives back to it."""
        return self.taken(queue) | {message.seq for message in self.returned if message.queue is queue}

    def numbers(self) -> set[tuple[int, int]]:
        """The messages of numbered producers that it stores: producer and number."""
        return {
            (fact.producer, fact.number)
            for fact in self.facts
            if isinstance(fact, MessageStored | MessagePublished) and fact.producer
        }

    def append(self, newer: Commit) -> None:
        """Add what was gathered after this commit's facts failed."""
        for name in self.__slots__:
            if name == "body_bytes":
                self.body_bytes += newer.body_bytes
            else:
                getattr(self, name).extend(getattr(newer, name))
