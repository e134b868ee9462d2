"""Deletion of queues, topics and subscriptions."""

from __future__ import annotations

import msgspec

from legato.core.backpressure import Backpressure
from legato.core.consumers import Consumer
from legato.core.directory import Directory
from legato.core.duplicates import Duplicates
from legato.core.facts import AnyFact, QueueDeleted
from legato.core.kernel import Kernel
from legato.core.outcome import Outcome, RefusedCommit
from legato.core.queues import Queue
from legato.core.reservations import Reservations
from legato.core.topics import Node, Topic


class Deletion:
    """Deletes a queue, topic or subscription with its messages."""

    __slots__ = ("_backpressure", "_directory", "_duplicates", "_kernel", "_reservations")

    def __init__(
        self,
        kernel: Kernel,
        directory: Directory,
        duplicates: Duplicates,
        backpressure: Backpressure,
        reservations: Reservations,
    ) -> None:
        self._kernel = kernel
        self._directory = directory
        self._duplicates = duplicates
        self._backpressure = backpressure
        self._reservations = reservations

    def delete(self, node: Node) -> list[Consumer]:
        """Delete a queue, subscription or topic with all that is in it; returns the consumers that were cut off."""
        if isinstance(node, Topic):
            cut_off = [consumer for queue in node.subscriptions.values() for consumer in queue.consumers]
            for queue in list(node.subscriptions.values()):
                self._delete(queue)
            self._record(node, 0)
            self._directory.topics.pop(node.address, None)
            return cut_off
        cut_off = list(node.consumers)
        self._delete(node)
        return cut_off

    def _delete(self, queue: Queue) -> None:
        if queue.deleted:
            return
        if queue.topic is not None:
            queue.topic.subscriptions.pop(queue.name, None)
        for consumer in queue.consumers:
            consumer.credit = 0
            for message in (*consumer.unsettled.values(), *consumer.first):
                message.consumer = None
            consumer.unsettled.clear()
            consumer.first.clear()
        queue.consumers.clear()
        queue.ring.clear()
        self._reservations.forget(queue)
        self._backpressure.forget(queue)
        queues = self._directory.queues
        if queues.get(queue.name) is queue:
            del queues[queue.name]
        self._record(queue, queue.depth)
        queue.review()

    def _record(self, node: Node, waiting: int) -> None:
        node.deleted = True
        self._kernel.record(QueueDeleted(node.id, node.name, waiting))
        # Its number stays taken until the commit, so that its record is not mistaken for a live one.
        self._kernel.change(Deleted(self._directory, self._duplicates, node.id))

    def recounted(self, fact: AnyFact) -> AnyFact:
        """The fact, if what it counts still counts after messages that it had counted were refused."""
        if not isinstance(fact, QueueDeleted):
            return fact
        node = self._directory.by_number[fact.queue]
        return QueueDeleted(node.id, node.name, node.depth if isinstance(node, Queue) else 0)


class Deleted(msgspec.Struct, gc=False):
    """A queue, topic or subscription is deleted."""

    directory: Directory
    duplicates: Duplicates
    number: int

    def durable(self, outcome: Outcome) -> None:
        """The store has no record of it any more."""
        self.directory.by_number.pop(self.number, None)
        self.duplicates.windows.pop(self.number, None)

    def refused(self, refusal: RefusedCommit) -> None:
        """It is deleted all the same."""
        refusal.retry(self)
