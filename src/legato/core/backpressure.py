"""Back-pressure: the room of an address, and the producers that wait for it."""

from __future__ import annotations

from legato.core.commit import Commit
from legato.core.effects import Room
from legato.core.facts import MessageConsumed, MessageDeadLettered, MessageMoved, MessagesAssigned, MessagesConsumed
from legato.core.kernel import Kernel
from legato.core.queues import Queue, in_order
from legato.core.refusals import FULL, NOT_FOUND
from legato.core.topics import Node, Topic

_DEPARTURES = MessageConsumed | MessagesConsumed | MessageDeadLettered | MessageMoved | MessagesAssigned


class Backpressure:
    """Tracks the room of addresses and the waiting producers.

    Attributes:
        starving: full queues whose producers wait.
    """

    __slots__ = ("_kernel", "starving")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.starving: set[Queue] = set()

    def room(self, node: Node) -> int | None:
        """How many more messages may come before the address is full and its producers wait; None if there is no limit.

        Who is told 0 will be told by `Room` when there is room again.
        """
        if node.settings.when_full != "block":
            return None
        room = node.room
        if room == 0:
            for queue in node.subscriptions.values() if isinstance(node, Topic) else [node]:
                queue.starved = True
                self.starving.add(queue)
        return room

    def announce(self, commit: Commit, by_number: dict[int, Node]) -> None:
        """Producers that wait are told when what they wait for has left."""
        for fact in commit.facts if self.starving else ():
            if isinstance(fact, _DEPARTURES):
                queue = by_number.get(fact.queue)
                if isinstance(queue, Queue):
                    self._announce_of(queue)

    def announce_all(self) -> None:
        """The same of all queues."""
        for queue in in_order(self.starving):
            self._announce_of(queue)

    def _announce_of(self, queue: Queue) -> None:
        if queue.starved and (queue.settings.when_full != "block" or queue.room != 0):
            queue.starved = False
            self.starving.discard(queue)
            self._kernel.emit(Room(queue))

    def forget(self, queue: Queue) -> None:
        """The queue is deleted."""
        if queue.starved:
            queue.starved = False
            self.starving.discard(queue)
            if queue.topic is not None:
                # Others of its topic may have room.
                self._kernel.emit(Room(queue))


def refusal(node: Node) -> tuple[str, str] | None:
    """Why nothing can be published at an address now: condition and description."""
    if node.deleted:
        return NOT_FOUND, f"{node.address} was deleted"
    if node.settings.when_full == "fail" and node.room == 0:
        return FULL, f"{node.address} is full: its settings allow no more messages (when_full = fail)"
    return None
