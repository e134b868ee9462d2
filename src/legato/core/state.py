"""What all commands share: the heap's picture of the store, the tick being gathered, the effects."""

from __future__ import annotations

from legato.core.effects import Effect
from legato.core.facts import QueueCreated
from legato.core.message import Message
from legato.core.producers import Producer
from legato.core.queues import Queue
from legato.core.records import Archive, Meta, QueueRecord
from legato.core.tick import Tick


class State:
    """The state of one epoch.

    Args:
        archive: committed state, read when a queue, producer or outcome is first asked for, or a window loaded.
        meta: what `Store.begin_epoch` returned.
    """

    def __init__(self, archive: Archive, meta: Meta) -> None:
        self.epoch = meta.epoch
        self.queues: dict[str, Queue] = {}
        self._archive = archive
        self._next_queue = meta.next_queue
        self._next_producer = meta.next_producer
        self._next_consumer = meta.next_consumer
        self._producers: dict[str, Producer] = {}
        self._tick = Tick()
        self._in_flight: Tick | None = None
        """The tick that is being committed."""
        self._effects: list[Effect] = []
        self._unmarked: set[Queue] = set()
        """Queues that wait for a higher dispatch mark."""
        self._consumed_from: set[Queue] = set()
        """Queues whose consumers acknowledged something: they will ask for more before the next commit is done."""
        self._returned_to: set[Queue] = set()
        """Queues that something went back to since they were dispatched."""
        self._presented: list[Message] = []
        self._presented_before: list[Message] = []

    def take_effects(self) -> list[Effect]:
        """The effects gathered since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def queue(self, name: str) -> Queue:
        """The queue of that name, created if there is none."""
        queue = self.queues.get(name)
        if queue is None:
            record = self._archive.queue(name)
            if record is None:
                record = QueueRecord(self._next_queue, name)
                self._next_queue += 1
                self._tick.facts.append(QueueCreated(record.queue, name))
            queue = self.queues[name] = Queue(record)
        return queue
