"""A commit: the facts gathered for it, and the consequences of each."""

from __future__ import annotations

from collections.abc import Sequence

from legato import limits
from legato.core.consumers import Consumer
from legato.core.fact_runs import numbers_of, size_of
from legato.core.facts import (
    AnyFact,
    MessageConsumed,
    MessageDeadLettered,
    MessageDelivered,
    MessageMoved,
    MessagePublished,
    MessagesConsumed,
    MessageSeen,
    MessagesStored,
    MessageStored,
    MessageTaken,
    RunStored,
)
from legato.core.lanes import LANE_SHIFT
from legato.core.message import Message, MessageRun, RunPart
from legato.core.message_states import KEEP, RETURN, enter
from legato.core.outcome import Change, Outcome
from legato.core.queues import Queue
from legato.core.records import Batch, QueueRecord

_UNAWAITED = (MessageConsumed, MessagesConsumed, MessageTaken, MessageDelivered, MessageSeen)
"""Facts of what consumers had and settled without asking to be told."""


class Commit:
    """Facts gathered since the last commit was begun, with their consequences.

    `bodies` has those of `MessageStored`, and of `MessagePublished` that have copies, in the order of the facts.
    """

    __slots__ = (
        "_came",
        "acknowledged",
        "awaited",
        "bodies",
        "body_bytes",
        "changes",
        "chunks",
        "created",
        "ended",
        "facts",
        "kept",
        "queues",
        "returned",
        "run_messages",
        "runs",
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
        self.changes: list[Change] = []
        """What is to be done when this is durable, or refused, but for the four lists that follow."""
        self.stored: list[Message | MessageRun] = []
        """Messages stored by themselves or in runs, each with its fact: so many that they are no changes."""
        self.run_messages = 0
        """How many messages facts of runs are of, beyond one for each."""
        self.acknowledged: list[tuple[Consumer, Message | RunPart]] = []
        """Acknowledgements whose sender asked to be told."""
        self.returned: list[Message] = []
        self.kept: list[Message] = []
        """Messages that came back and stay with their consumers, which get them again after this commit."""
        self.queues: set[Queue] = set()
        """Those that get messages."""
        self.created: list[QueueRecord] = []
        """Queues, topics and subscriptions that came to be."""
        self.awaited = False
        """Whether somebody waits for its end, though it may have no facts."""
        self._came: dict[int, tuple[int, int]] | None = None
        """How many messages each queue gets, and their bytes; not counted before somebody asks."""

    def __bool__(self) -> bool:
        return bool(self.facts or self.awaited or self.returned or self.chunks or self.ended)

    @property
    def is_unawaited(self) -> bool:
        """Whether it has acknowledgements only, and nobody waits to hear that they are durable; nor are they many."""
        if (
            not 0 < len(self.facts) + self.run_messages <= limits.UNAWAITED_FACTS_MAX
            or self.awaited
            or self.acknowledged
        ):
            return False
        if self.changes or self.stored or self.returned or self.kept or self.chunks or self.ended:
            return False
        return all(fact.__class__ in _UNAWAITED for fact in self.facts)

    def batch(self, epoch: int, now_us: int, steady_us: int) -> Batch:
        """The batch for the store."""
        return Batch(epoch, now_us, self.facts, self.bodies, self.chunks, self.ended, self.runs, steady_us)

    def become_visible(self, outcome: Outcome) -> None:
        """It is durable: its changes mean what they mean, and its messages come to their places."""
        # Before what was stored by itself: a window that reaches up to that would pass over a staged run before it.
        for change in self.changes:
            change.durable(outcome)
        stored = outcome.stored
        for message in self.stored:
            if message.__class__ is MessageRun:
                if message.tokens is not None:
                    stored.append(message.tokens)
                message.fact = message.tokens = None
                message.queue.main.append_run(message)
                continue
            assert message.__class__ is Message
            message.fact = None
            message.queue.lanes[message.seq >> LANE_SHIFT].append(message)
            if (token := message.token) is not None:
                stored.append(token)
                message.token = None
        for message in self.kept:
            message.queue.returning -= 1
            outcome.touched.add(message.queue)
        for message in self.returned:
            message.queue.returning -= 1
            message.queue.put_back(message)
            outcome.touched.add(message.queue)
        outcome.acknowledged = self.acknowledged

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
        """Keep those of the messages that were to return with this commit with their consumer."""
        kept = {message.seq: message for message in self.returned if message.queue is queue and message.seq in seqs}
        if kept:
            self.returned = [message for message in self.returned if kept.get(message.seq) is not message]
            queue.returning -= len(kept)
        return kept

    def taken(self, queue: Queue) -> set[int]:
        """Sequences that this commit takes from the queue."""
        seqs: set[int] = set()
        for fact in self.facts:
            if isinstance(fact, MessagesConsumed) and fact.queue == queue.id:
                seqs.update(range(fact.seq, fact.seq + fact.count))
            elif isinstance(fact, MessageConsumed | MessageDeadLettered | MessageMoved) and fact.queue == queue.id:
                seqs.add(fact.seq)
        return seqs

    def leaving(self, queue: Queue) -> set[int]:
        """Sequences that this commit takes from the queue, or gives back to it."""
        return self.taken(queue) | {message.seq for message in self.returned if message.queue is queue}

    def came_to(self, queue: Queue) -> tuple[int, int]:
        """How many messages the queue got with this commit, which is durable, and their bytes."""
        if self._came is None:
            self._came = _came(self.facts)
        return self._came.get(queue.id, (0, 0))

    def numbers(self) -> set[tuple[int, int]]:
        """The messages of numbered producers that it stores: producer and number."""
        numbers: set[tuple[int, int]] = set()
        for fact in self.facts:
            if isinstance(fact, MessagesStored):
                numbers.update((fact.producer, number) for number in numbers_of(fact))
            elif isinstance(fact, MessageStored | MessagePublished) and fact.producer:
                numbers.add((fact.producer, fact.number))
        return numbers

    def append(self, newer: Commit) -> None:
        """Add what was gathered after this commit's facts failed."""
        self.facts += newer.facts
        self.bodies += newer.bodies
        self.body_bytes += newer.body_bytes
        self.chunks += newer.chunks
        self.ended += newer.ended
        self.runs += newer.runs
        self.changes += newer.changes
        self.stored += newer.stored
        self.run_messages += newer.run_messages
        self.acknowledged += newer.acknowledged
        self.returned += newer.returned
        self.kept += newer.kept
        self.queues |= newer.queues
        self.created += newer.created
        self.awaited = self.awaited or newer.awaited


def _came(facts: Sequence[AnyFact]) -> dict[int, tuple[int, int]]:
    counted: dict[int, tuple[int, int]] = {}

    def add(queue: int, count: int, size: int) -> None:
        counts, sizes = counted.get(queue, (0, 0))
        counted[queue] = (counts + count, sizes + size)

    for fact in facts:
        match fact:
            case MessageStored():
                add(fact.queue, 1, fact.size)
            case MessagesStored():
                add(fact.queue, fact.count, size_of(fact))
            case RunStored():
                add(fact.queue, fact.count, fact.size)
            case MessagePublished():
                for queue in fact.subscriptions:
                    add(queue, 1, fact.size)
    return counted
