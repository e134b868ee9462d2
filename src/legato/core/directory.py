"""What all commands share: the heap's picture of the store, the commit being gathered, the effects."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from legato.core.effects import Effect, Room
from legato.core.facts import Kind, QueueCreated, QueueDeleted
from legato.core.kernel import Kernel
from legato.core.message import Message
from legato.core.producers import Producer
from legato.core.queues import Queue
from legato.core.records import Archive, Bodies, Meta, QueueRecord
from legato.core.refusals import NotFound
from legato.core.settings import DEFAULT_SETTINGS, AddressSettings
from legato.core.steady import SteadyClock
from legato.core.topics import TOPIC_PREFIX, Topic

if TYPE_CHECKING:
    from legato.core.administration import Job
    from legato.core.assignments import Assignment
    from legato.core.consumers import Browser

Node = Queue | Topic


class State:
    """The state of one epoch.

    Args:
        archive: committed state, read when a queue, producer or outcome is first asked for, or a window loaded.
        meta: what `Store.begin_epoch` returned.
        bodies: what reads messages' bytes for us.
        settings: the settings of an address.
        chance: a number in [0, 1), another one each time.
        turn_ms: a clock that tells how long the shell's turn has taken; one that stands still sets no bound.
    """

    def __init__(
        self,
        archive: Archive,
        meta: Meta,
        *,
        bodies: Bodies,
        settings: Callable[[str], AddressSettings] = lambda address: DEFAULT_SETTINGS,
        chance: Callable[[], float] = lambda: 0.5,
        turn_ms: Callable[[], int] = lambda: 0,
        detailed: bool = False,
    ) -> None:
        self.kernel = self._kernel = Kernel(archive, meta, bodies=bodies, turn_ms=turn_ms, detailed=detailed)
        self.queues: dict[str, Queue] = {}
        """Queues and subscriptions in use, by name."""
        self.topics: dict[str, Topic] = {}
        """Topics in use, by plain name."""
        self._settings = settings
        self._chance = chance
        self._next_queue = meta.next_queue
        self._next_producer = meta.next_producer
        self._next_consumer = meta.next_consumer
        self._by_number: dict[int, Node] = {}
        self._producers: dict[str, Producer] = {}
        """Those with a link, or with numbers that are not durable yet, by name."""
        self._forgetting: dict[str, int] = {}
        """Numbers of producers that are forgotten once their `ProducerForgotten` is durable, by name."""
        self._forget_after = 0
        """The producer, by number, that `forget_producers` looked at last."""
        self._unmarked: set[Queue] = set()
        """Queues that wait for a higher dispatch mark."""
        self._consumed_from: set[Queue] = set()
        """Queues whose consumers acknowledged something: they will ask for more before the next commit is done."""
        self._returned_to: set[Queue] = set()
        """Queues that something went back to since they were dispatched."""
        self._unscanned: dict[Queue, None] = {}
        """Queues that were looked through in part: the rest is for `go_on`."""
        self._reserved: set[Queue] = set()
        """Queues that keep something for consumers whose connections were lost."""
        self._holding: set[Queue] = set()
        """Queues in which something waits for its redelivery: the tick looks at them."""
        self._starving: set[Queue] = set()
        """Full queues whose producers wait."""
        self._jobs: deque[Job] = deque()
        self._browsers: set[Browser] = set()
        self._early: set[Browser] = set()
        """Browsers that wait for what was published before they came to be durable."""
        self._unshown: dict[Browser, None] = {}
        """Browsers that saw a part of what they want: the rest is for `go_on`."""
        self._assignments: dict[int, Assignment] = {}
        """By the number of their queue."""
        self._presented: list[Message] = []
        self._presented_before: list[Message] = []

    @property
    def epoch(self) -> int:
        """The number of the epoch."""
        return self._kernel.epoch

    @property
    def steady(self) -> SteadyClock:
        """What retention goes by; advanced by `tick`."""
        return self._kernel.steady

    @property
    def now_us(self) -> int:
        """The time as it was said last."""
        return self._kernel.now_us

    @now_us.setter
    def now_us(self, now_us: int) -> None:
        self._kernel.now_us = now_us

    def take_effects(self) -> list[Effect]:
        """The effects gathered since the last call."""
        return self._kernel.take_effects()

    # -- what there is under a name ------------------------------------------------------------------------------

    def lookup(self, address: str) -> Node | None:
        """What there is under a plain name: the queue before the topic."""
        return self.find_queue(address) or self.find_topic(address)

    def unstored(self) -> list[QueueRecord]:
        """What has been made and is not in the store yet."""
        return [
            record for commit in self._kernel.commits for record in commit.created if not self.is_deleted(record.queue)
        ]

    def is_deleted(self, number: int) -> bool:
        """Whether the node of that number was deleted, and is still in the store."""
        node = self._by_number.get(number)
        return node is not None and node.deleted

    def settings_of(self, address: str) -> AddressSettings:
        """What holds for an address."""
        return self._settings(address)

    def find_queue(self, name: str) -> Queue | None:
        """The queue or subscription of that name in the store, if there is one."""
        queue = self.queues.get(name)
        if queue is None and (record := self._kernel.archive.queue(name)) is not None:
            node = self._by_number.get(record.queue)
            # A record that we hold as deleted is only waiting for its commit.
            if node is None:
                node = self._adopt(record)
            if isinstance(node, Queue) and not node.deleted:
                queue = node
        return queue

    def find_topic(self, address: str) -> Topic | None:
        """The topic of that plain name, if there is one."""
        topic = self.topics.get(address)
        if topic is None and (record := self._kernel.archive.queue(TOPIC_PREFIX + address)) is not None:
            node = self._by_number.get(record.queue) or self._adopt(record)
            if isinstance(node, Topic) and not node.deleted:
                topic = node
        return topic

    def queue(self, name: str) -> Queue:
        """The queue of that name, created if there is none.

        Raises:
            NotFound: there is none, and its settings say that using it does not make it.
        """
        queue = self.queues.get(name)
        if queue is None:
            queue = self.find_queue(name)
            if queue is None:
                if not self._settings(name).auto_create:
                    raise NotFound(f"There is no queue {name!r}, and its settings say auto_create = false.")
                queue = self.create_queue(name)
        return queue

    def topic(self, address: str) -> Topic:
        """The topic of that plain name, created if there is none.

        Raises:
            NotFound: there is none, and its settings say that using it does not make it.
        """
        topic = self.find_topic(address)
        if topic is None:
            if not self._settings(address).auto_create:
                raise NotFound(f"There is no topic {address!r}, and its settings say auto_create = false.")
            topic = self.create_topic(address)
        return topic

    def create_queue(self, name: str, *, container: str = "", temporary: bool = False) -> Queue:
        """A new queue; there must be none of that name."""
        record = self._new_record(name, Kind.QUEUE, container=container, temporary=temporary)
        queue = self._adopt(record)
        assert isinstance(queue, Queue)
        return queue

    def create_topic(self, address: str, *, container: str = "", temporary: bool = False) -> Topic:
        """A new topic; there must be none of that name."""
        record = self._new_record(TOPIC_PREFIX + address, Kind.TOPIC, container=container, temporary=temporary)
        topic = self._adopt(record)
        assert isinstance(topic, Topic)
        return topic

    def _new_record(
        self,
        name: str,
        kind: Kind,
        *,
        topic: int = 0,
        selector: str = "",
        no_local: bool = False,
        container: str = "",
        temporary: bool = False,
        shared: bool = False,
    ) -> QueueRecord:
        number = self._next_queue
        self._next_queue += 1
        self._kernel.record(
            QueueCreated(number, name, int(kind), topic, selector, no_local, container, temporary, shared)
        )
        record = QueueRecord(
            number,
            name,
            kind=int(kind),
            topic=topic,
            selector=selector,
            no_local=no_local,
            container=container,
            temporary=temporary,
            shared=shared,
        )
        self._kernel.gathering.created.append(record)
        return record

    def _adopt(self, record: QueueRecord) -> Node:
        """The object for a record, with what hangs together with it: a topic has its subscriptions."""
        if record.kind == Kind.TOPIC:
            topic = Topic(record, self._settings(record.name.removeprefix(TOPIC_PREFIX)))
            self.topics[topic.address] = self._by_number[topic.id] = topic
            for subscription in self._kernel.archive.subscriptions(topic.id):
                if subscription.queue not in self._by_number:
                    self._adopt_subscription(subscription, topic)
            return topic
        if record.kind == Kind.SUBSCRIPTION:
            owner = self._node(record.topic)
            assert isinstance(owner, Topic), f"subscription {record.name} is of no topic"
            found = self._by_number.get(record.queue)
            return found or self._adopt_subscription(record, owner)
        queue = Queue(record, record.name, self._settings(record.name))
        self.queues[queue.name] = self._by_number[queue.id] = queue
        self._review(queue)
        return queue

    def _adopt_subscription(self, record: QueueRecord, topic: Topic) -> Queue:
        queue = Queue(record, topic.address, topic.settings)
        queue.topic = topic
        queue.matches = self._kernel.bodies.matcher(record.selector) if record.selector else None
        topic.subscriptions[queue.name] = queue
        self.queues[queue.name] = self._by_number[queue.id] = queue
        self._review(queue)
        return queue

    def _node(self, number: int) -> Node | None:
        """The queue, topic or subscription of that number, if there is one."""
        node = self._by_number.get(number)
        if node is None and (record := self._kernel.archive.queue_by_number(number)) is not None:
            node = self._adopt(record)
        return None if node is None or node.deleted else node

    def _review(self, queue: Queue) -> None:
        """Settings or consumers of the queue changed."""
        queue.review()

    # -- the end of a queue --------------------------------------------------------------------------------------

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
        queue.reservations.clear()
        self._reserved.discard(queue)
        if queue.starved:
            queue.starved = False
            self._starving.discard(queue)
            if queue.topic is not None:
                # Others of its topic may have room.
                self._kernel.emit(Room(queue))
        if self.queues.get(queue.name) is queue:
            del self.queues[queue.name]
        self._forget(queue, queue.depth)
        queue.review()

    def _forget(self, node: Node, waiting: int) -> None:
        node.deleted = True
        self._kernel.record(QueueDeleted(node.id, node.name, waiting))
        # Its number stays taken until the commit, so that its record is not mistaken for a live one.
        self._kernel.gathering.deleted.append(node.id)
