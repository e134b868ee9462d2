"""The outcome of a commit: what becomes visible with it, or what is undone and retried."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol, assert_never

from legato.core.consumers import Consumer
from legato.core.effects import Confirm, ConfirmAcknowledged, ConfirmDuplicates, Effect, Refuse
from legato.core.fact_runs import numbers_of
from legato.core.facts import (
    ActionAudited,
    AnyFact,
    AssignmentAcknowledged,
    AssignmentFenced,
    BatchPublished,
    ConsumerAttached,
    DispatchMarked,
    DuplicateDropped,
    DuplicateIdDropped,
    DuplicateIdKept,
    EpochBegan,
    EpochEnded,
    MessageConsumed,
    MessageDeadLettered,
    MessageDelivered,
    MessageMoved,
    MessageOfFlow,
    MessagePresented,
    MessagePublished,
    MessageReleased,
    MessageReturned,
    MessagesAssigned,
    MessagesConsumed,
    MessageSeen,
    MessagesStored,
    MessageStored,
    MessageTaken,
    NumberRefused,
    ProducerForgotten,
    ProducerRegistered,
    QueueCreated,
    QueueDeleted,
    QueueGrouped,
    QueueMarked,
    QueuePaused,
    RunStored,
    ServingBegan,
    TransactionCommitted,
    TransactionRolledBack,
)
from legato.core.message import Message, MessageRun, RunPart
from legato.core.producers import Producer
from legato.core.queues import Queue
from legato.core.refusals import FULL


class Change(Protocol):
    """A fact of a commit with its consequence and its compensation.

    What several commands record in the same way is a class of this kind, beside the part that records it. Facts that
    have no consequence, and need no room, are recorded without.
    """

    def durable(self, outcome: Outcome) -> None:
        """The commit is durable: this is what that means."""

    def refused(self, refusal: RefusedCommit) -> None:
        """The commit found no room: this undoes what the fact announced, or has it tried again."""


class Outcome:
    """A commit that is durable.

    Args:
        effects: where its effects go.
        queues: those that get messages.

    Attributes:
        acknowledged: acknowledgements whose senders asked to be told.
        answers: effects that come after the confirmations.
        confirmed: tokens of publications.
        passed_over: tokens of messages that come again, and whose senders are not told that they do.
        repeated: tokens of those whose senders are told.
        stored: tokens of messages stored by themselves, and sequences of tokens of those stored in runs.
        touched: queues to be dispatched.
        unloaded: those in which something became visible that is not in the heap.
    """

    __slots__ = (
        "_effects",
        "acknowledged",
        "answers",
        "confirmed",
        "passed_over",
        "repeated",
        "stored",
        "touched",
        "unloaded",
    )

    def __init__(self, effects: list[Effect], queues: Collection[Queue]) -> None:
        self._effects = effects
        self.acknowledged: list[tuple[Consumer, Message | RunPart]] = []
        self.answers: list[Effect] = []
        self.confirmed: list[Any] = []
        self.passed_over: list[Any] = []
        self.repeated: list[Any] = []
        self.stored: list[Any] = []
        self.touched: set[Queue] = set(queues)
        self.unloaded: set[Queue] = set()

    def emit(self, effect: Effect) -> None:
        """An effect that comes before the confirmations."""
        self._effects.append(effect)

    def confirm(self) -> None:
        """Confirm the messages to their senders and receivers."""
        effects = self._effects
        if self.passed_over or self.stored or self.confirmed:
            effects.append(Confirm(self.passed_over + self.stored + self.confirmed))
        if self.repeated:
            effects.append(ConfirmDuplicates(self.repeated))
        if self.acknowledged:
            effects.append(ConfirmAcknowledged(self.acknowledged))
        effects += self.answers


class NextCommit(Protocol):
    """The commit that has what is tried again, as far as a refused one needs it."""

    awaited: bool
    changes: list[Change]

    def give_back(self, message: Message) -> None:
        """The message returns to its place once this commit is durable."""


class Numbers(Protocol):
    """The numbered producers, as far as a refused commit needs them."""

    def lose(self, producer: int, number: int) -> None:
        """A message could not be stored: of which producer, and its number."""

    def refuse_number(self, producer: Producer, number: int) -> None:
        """The same of what was refused before it was stored."""


class RefusedCommit:
    """A commit that found no room, while it is undone. What needs no room is tried again: it is true all the same.

    Args:
        facts: those of the commit.
        retry: the commit that has what is tried again.
        effects: where its effects go.
        producers: hear of the numbers that are not stored.

    Attributes:
        description: why it was refused.
        detailed: whether the ledger is to show each delivery.
        lost: messages of numbered producers that could not be stored: producer and number.
        queues: those whose messages are not stored.
        rolled_back: transactions that publish, by id.
    """

    __slots__ = (
        "_effects",
        "_facts",
        "_instead",
        "_next",
        "_producers",
        "_stay",
        "description",
        "detailed",
        "lost",
        "queues",
        "rolled_back",
    )

    def __init__(
        self,
        facts: list[AnyFact],
        queues: Collection[Queue],
        lost: set[tuple[int, int]],
        rolled_back: dict[bytes, Change],
        description: str,
        *,
        retry: NextCommit,
        effects: list[Effect],
        producers: Numbers,
        detailed: bool,
    ) -> None:
        self.description = description
        self.detailed = detailed
        self.lost = lost
        self.queues = set(queues)
        self.rolled_back = rolled_back
        self._effects = effects
        self._facts = facts
        self._instead: dict[int, tuple[AnyFact, ...]] = {}
        """By the `id` of facts that are not tried again: what is, in their places."""
        self._next = retry
        self._producers = producers
        self._stay = set(_staying(facts, rolled_back))

    def emit(self, effect: Effect) -> None:
        """Somebody is told."""
        self._effects.append(effect)

    def retry(self, change: Change) -> None:
        """It needs no room."""
        self._next.changes.append(change)

    def await_end(self) -> None:
        """Somebody waits for the end of the commit that has what is tried again, though it may have no facts."""
        self._next.awaited = True

    def give_back(self, message: Message) -> None:
        """The message returns to its place with what is tried again."""
        self._next.give_back(message)

    def replace(self, fact: AnyFact, *instead: AnyFact) -> None:
        """The fact is not true, and those that are given are."""
        self._instead[id(fact)] = instead

    def refuse(
        self, token: Any, fact: MessageStored | MessagePublished | DuplicateDropped | DuplicateIdDropped
    ) -> None:
        """The message is not stored, nor is another one in its place: its sender is told, and may send it again."""
        if fact.producer:
            self._producers.lose(fact.producer, fact.number)
            self.replace(fact, NumberRefused(fact.producer, fact.number))
        else:
            self.replace(fact)
        if token is not None:
            self.emit(Refuse(token, FULL, self.description))

    def refuse_number(self, producer: Producer, number: int) -> None:
        """The same of a batch, or what else has a number."""
        self._producers.refuse_number(producer, number)

    def stays(self, queue: int, seq: int) -> bool:
        """Whether a message that was to leave its place does not."""
        return (queue, seq) in self._stay

    def undo_stored(self, messages: list[Message | MessageRun]) -> None:
        """Undo the messages that were stored by themselves."""
        for message in messages:
            if isinstance(message, MessageRun):
                self._undo_run(message)
                continue
            fact = message.fact
            assert fact is not None
            undo_copy(message)
            # What was moved goes back to where it was, and what a transaction sent was not sent.
            if fact.origin is None and not fact.txn:
                self.refuse(message.token, fact)

    def _undo_run(self, run: MessageRun) -> None:
        fact = run.fact
        assert fact is not None
        undo_run(run)
        self.replace(fact, *[NumberRefused(fact.producer, number) for number in numbers_of(fact)])
        for number in numbers_of(fact):
            self._producers.lose(fact.producer, number)
        for token in run.tokens or ():
            self.emit(Refuse(token, FULL, self.description))

    def facts(self) -> list[AnyFact]:
        """Facts that are tried again."""
        facts: list[AnyFact] = []
        for fact in self._facts:
            instead = self._instead.get(id(fact))
            if instead is not None:
                facts += instead
            elif self._stands(fact):
                facts.append(fact)
        return facts

    def _stands(self, fact: AnyFact) -> bool:
        """Whether a fact is true although its commit found no room."""
        match fact:
            case MessageConsumed(txn=txn) | TransactionCommitted(txn=txn):
                return txn not in self.rolled_back
            case MessageTaken(queue=queue, seq=seq):
                return not self.stays(queue, seq)
            case MessageReturned(cause=cause):
                return cause != "carried"  # What would have carried the count is not stored.
            case (
                MessageStored()
                | MessagesStored()
                | MessagePublished()
                | RunStored()
                | BatchPublished()
                | DuplicateIdKept()
                | MessageOfFlow()
                | QueueMarked()
            ):
                return False  # Needs room, or is of what does. Marks are made anew.
            case (
                EpochBegan()
                | ServingBegan()
                | EpochEnded()
                | QueueCreated()
                | QueueDeleted()
                | QueuePaused()
                | QueueGrouped()
                | ProducerRegistered()
                | ProducerForgotten()
                | ConsumerAttached()
                | MessagePresented()
                | MessagesConsumed()
                | MessageDeadLettered()
                | MessageMoved()
                | DispatchMarked()
                | NumberRefused()
                | TransactionRolledBack()
                | MessageDelivered()
                | MessageSeen()
                | MessageReleased()
                | MessagesAssigned()
                | AssignmentAcknowledged()
                | AssignmentFenced()
                | DuplicateDropped()
                | DuplicateIdDropped()
                | ActionAudited()
            ):
                return True
            case _:
                assert_never(fact)


def _staying(facts: list[AnyFact], rolled_back: Collection[bytes]) -> list[tuple[int, int]]:
    """Places that messages do not leave after all, because the commit failed."""
    stay = []
    for fact in facts:
        match fact:
            case MessageConsumed(txn=txn) if txn in rolled_back:
                stay.append((fact.queue, fact.seq))
            case MessageDeadLettered(dead_queue=to) | MessageMoved(to_queue=to) if to:
                stay.append((fact.queue, fact.seq))
    return stay


def undo_run(run: MessageRun) -> None:
    """The run does not come to its queue."""
    queue = run.queue
    queue.stored -= run.count
    queue.bytes -= run.size
    queue.main.visible_seq = max(queue.main.visible_seq, run.last_seq)


def undo_copy(message: Message) -> None:
    """The message does not come to its queue."""
    queue = message.queue
    queue.stored -= 1
    queue.bytes -= message.size
    # Nobody need wait for it to become durable any more.
    lane = queue.lane(message.seq)
    lane.visible_seq = max(lane.visible_seq, message.seq)
