"""Keeps made-up batches to what a broker would say, for comparing a store with its model."""

from legato.core.facts import (
    AnyFact,
    DuplicateIdDropped,
    DuplicateIdKept,
    Kind,
    MessageConsumed,
    MessageDeadLettered,
    MessageMoved,
    MessagePresented,
    MessagePublished,
    MessageReturned,
    MessageStored,
    NumberRefused,
    ProducerForgotten,
    ProducerRegistered,
    QueueCreated,
    QueueDeleted,
    TransactionCommitted,
)


class Tracking:
    """Knows what waits and which queues there are.

    A message is stored where none is and where the batch mentioned none, a forgotten producer stays so for the batch.
    """

    def __init__(self) -> None:
        self._waiting: set[tuple[int, int]] = set()
        self._queues: set[int] = set()
        self._topics: set[int] = set()
        self._txns: set[bytes] = set()
        self._next_number = 10

    def numbers(self) -> range:
        """All numbers that queues have or had, and some more."""
        return range(self._next_number + 1)

    def next_number(self) -> int:
        """A number for a new queue."""
        self._next_number += 1
        return self._next_number

    def acceptable(self, facts: list[AnyFact]) -> list[AnyFact]:
        """Those of `facts` that make sense one after the other."""
        kept: list[AnyFact] = []
        forgotten: set[int] = set()
        mentioned: set[tuple[int, int]] = set()
        for fact in facts:
            match fact:
                case QueueCreated(queue, _, kind):
                    self._queues.add(queue)
                    if kind == Kind.TOPIC:
                        self._topics.add(queue)
                case QueueDeleted(queue):
                    self._queues.discard(queue)
                    self._topics.discard(queue)
                    self._waiting = {place for place in self._waiting if place[0] != queue}
                case MessageStored(queue, seq):
                    if queue not in self._queues or not self._is_free(queue, seq, mentioned):
                        continue
                    self._waiting.add((queue, seq))
                case MessagePublished(topic, seq, subscriptions=subscriptions):
                    if topic not in self._topics:
                        continue
                    fact.subscriptions = [
                        queue
                        for queue in subscriptions
                        if queue in self._queues and self._is_free(queue, seq, mentioned)
                    ]
                    if (topic, seq) in mentioned:
                        continue
                    mentioned.add((topic, seq))
                    self._waiting.update((queue, seq) for queue in fact.subscriptions)
                case MessageConsumed(queue, seq) | MessageMoved(queue, seq) | MessageDeadLettered(queue, seq):
                    if queue not in self._queues:
                        continue
                    self._waiting.discard((queue, seq))
                    mentioned.add((queue, seq))
                case MessageReturned(queue, seq) | MessagePresented(queue, seq):
                    if queue not in self._queues:
                        continue
                    mentioned.add((queue, seq))
                case DuplicateIdKept(queue):
                    if queue not in self._queues:
                        continue
                case ProducerForgotten(producer):
                    forgotten.add(producer)
                case ProducerRegistered(producer):
                    if producer in forgotten:
                        continue
                    if any(isinstance(other, MessageStored | NumberRefused | DuplicateIdDropped) for other in kept):
                        continue
                case TransactionCommitted(txn):
                    if txn in self._txns:
                        continue
                    self._txns.add(txn)
            kept.append(fact)
        return kept

    def _is_free(self, queue: int, seq: int, mentioned: set[tuple[int, int]]) -> bool:
        return (queue, seq) not in self._waiting and (queue, seq) not in mentioned
