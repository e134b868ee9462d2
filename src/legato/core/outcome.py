"""The outcome of a commit: what becomes visible with it, or what is undone and retried."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, assert_never

from legato.core.commit import Change, Commit
from legato.core.effects import Confirm, ConfirmAcknowledged, ConfirmDuplicates, Effect, Refuse
from legato.core.facts import (
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
    MessageSeen,
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
from legato.core.kernel import Kernel
from legato.core.lanes import LANE_SHIFT
from legato.core.message import Message
from legato.core.queues import Queue
from legato.core.refusals import FULL

if TYPE_CHECKING:
    from legato.core.numbered_producers import NumberedProducers
    from legato.core.producers import Producer
    from legato.core.transactions import Discharge


class Outcome:
    """A commit that is durable.

    Attributes:
        answers: effects that come after the confirmations.
        confirmed: tokens of publications.
        passed_over: tokens of messages that come again, and whose senders are not told that they do.
        repeated: tokens of those whose senders are told.
        touched: queues to be dispatched.
        unloaded: those in which something became visible that is not in the heap.
    """

    __slots__ = ("_kernel", "answers", "confirmed", "passed_over", "repeated", "touched", "unloaded")

    def __init__(self, kernel: Kernel, commit: Commit) -> None:
        self._kernel = kernel
        self.answers: list[Effect] = []
        self.confirmed: list[Any] = []
        self.passed_over: list[Any] = []
        self.repeated: list[Any] = []
        self.touched: set[Queue] = set(commit.queues)
        self.unloaded: set[Queue] = set()

    def emit(self, effect: Effect) -> None:
        """An effect that comes before the confirmations."""
        self._kernel.emit(effect)

    def announce(self, commit: Commit) -> None:
        """Messages of the commit come to their places; who sent or acknowledged them is told."""
        stored: list[Any] = []
        for message in commit.stored:
            message.fact = None
            message.queue.lanes[message.seq >> LANE_SHIFT].append(message)
            if (token := message.token) is not None:
                stored.append(token)
                message.token = None
        for message in commit.kept:
            message.queue.returning -= 1
            self.touched.add(message.queue)
        for message in commit.returned:
            message.queue.returning -= 1
            message.queue.put_back(message)
            self.touched.add(message.queue)
        effects = self._kernel.effects
        if self.passed_over or stored or self.confirmed:
            effects.append(Confirm(self.passed_over + stored + self.confirmed))
        if self.repeated:
            effects.append(ConfirmDuplicates(self.repeated))
        if commit.acknowledged:
            effects.append(ConfirmAcknowledged(commit.acknowledged))
        effects += self.answers


class RefusedCommit:
    """A commit that found no room, while it is undone. What needs no room is tried again: it is true all the same.

    Args:
        lost: messages of numbered producers that could not be stored: producer and number.
        rolled_back: transactions that publish, by id.
        retry: the commit that has what is tried again.

    Attributes:
        description: why it was refused.
        queues: those whose messages are not stored.
    """

    __slots__ = ("_commit", "_instead", "_producers", "_stay", "description", "kernel", "lost", "queues", "rolled_back")

    def __init__(
        self,
        kernel: Kernel,
        producers: NumberedProducers,
        commit: Commit,
        lost: set[tuple[int, int]],
        rolled_back: dict[bytes, Discharge],
        description: str,
    ) -> None:
        self.kernel = kernel
        self.description = description
        self.lost = lost
        self.queues = set(commit.queues)
        self.rolled_back = rolled_back
        self._commit = commit
        self._producers = producers
        self._instead: dict[int, tuple[AnyFact, ...]] = {}
        """By the `id` of facts that are not tried again: what is, in their places."""
        self._stay = set(_staying(commit, rolled_back))

    def retry(self, change: Change) -> None:
        """It needs no room."""
        self.kernel.gathering.changes.append(change)

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
            self.kernel.emit(Refuse(token, FULL, self.description))

    def refuse_number(self, producer: Producer, number: int) -> None:
        """The same of a batch, or what else has a number."""
        self._producers.refuse_number(producer, number)

    def stays(self, queue: int, seq: int) -> bool:
        """Whether a message that was to leave its place does not."""
        return (queue, seq) in self._stay

    def undo_stored(self, messages: list[Message]) -> None:
        """What was stored by itself is not."""
        for message in messages:
            fact = message.fact
            assert fact is not None
            undo_copy(message)
            # What was moved goes back to where it was, and what a transaction sent was not sent.
            if fact.origin is None and not fact.txn:
                self.refuse(message.token, fact)

    def facts(self) -> list[AnyFact]:
        """Those that are tried again."""
        facts: list[AnyFact] = []
        for fact in self._commit.facts:
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
            ):
                return True
            case _:
                assert_never(fact)


def _staying(commit: Commit, rolled_back: Collection[bytes]) -> list[tuple[int, int]]:
    """Places that messages do not leave after all, because the commit failed."""
    stay = []
    for fact in commit.facts:
        match fact:
            case MessageConsumed(txn=txn) if txn in rolled_back:
                stay.append((fact.queue, fact.seq))
            case MessageDeadLettered(dead_queue=to) | MessageMoved(to_queue=to) if to:
                stay.append((fact.queue, fact.seq))
    return stay


def undo_copy(message: Message) -> None:
    """The message does not come to its queue."""
    queue = message.queue
    queue.stored -= 1
    queue.bytes -= message.size
    # Nobody need wait for it to become durable any more.
    lane = queue.lane(message.seq)
    lane.visible_seq = max(lane.visible_seq, message.seq)
