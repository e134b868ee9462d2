"""The directory: queues, topics and subscriptions by name and by number; it creates new ones."""

from __future__ import annotations

from collections.abc import Callable

from legato import limits
from legato.core.address_prefixes import TOPIC_PREFIX
from legato.core.dispatch_modes import DispatchModes
from legato.core.facts import Kind, QueueCreated
from legato.core.kernel import Kernel
from legato.core.queues import Queue
from legato.core.records import QueueRecord
from legato.core.refusals import Exists, NotFound, NumbersUsedUp
from legato.core.settings import AddressSettings
from legato.core.topics import Node, Topic


class Directory:
    """Queues, topics and subscriptions by name and by number.

    Args:
        settings: the settings of an address.
        next_number: the number of the next queue, topic or subscription.

    Attributes:
        queues: queues and subscriptions in use, by name.
        topics: topics in use, by plain name.
        by_number: both; and those that are deleted, until that is durable.
    """

    __slots__ = ("_kernel", "_modes", "_next", "_settings", "by_number", "queues", "topics")

    def __init__(
        self, kernel: Kernel, modes: DispatchModes, settings: Callable[[str], AddressSettings], next_number: int
    ) -> None:
        self.queues: dict[str, Queue] = {}
        self.topics: dict[str, Topic] = {}
        self.by_number: dict[int, Node] = {}
        self._kernel = kernel
        self._modes = modes
        self._settings = settings
        self._next = next_number

    def lookup(self, address: str) -> Node | None:
        """The queue or topic of a plain name; the queue comes first."""
        return self.find_queue(address) or self.find_topic(address)

    def unstored(self) -> list[QueueRecord]:
        """New queues and topics that are not in the store yet."""
        return [
            record for commit in self._kernel.commits for record in commit.created if not self.is_deleted(record.queue)
        ]

    def is_deleted(self, number: int) -> bool:
        """Whether the node of that number was deleted, and is still in the store."""
        node = self.by_number.get(number)
        return node is not None and node.deleted

    def settings_of(self, address: str) -> AddressSettings:
        """Settings of an address."""
        return self._settings(address)

    def find_queue(self, name: str) -> Queue | None:
        """The queue or subscription of that name in the store, if there is one."""
        queue = self.queues.get(name)
        if queue is None and (record := self._kernel.archive.queue(name)) is not None:
            node = self.by_number.get(record.queue)
            # A record that we hold as deleted is only waiting for its commit.
            if node is None:
                node = self.adopt(record)
            if isinstance(node, Queue) and not node.deleted:
                queue = node
        return queue

    def find_topic(self, address: str) -> Topic | None:
        """The topic of that plain name, if there is one."""
        topic = self.topics.get(address)
        if topic is None and (record := self._kernel.archive.queue(TOPIC_PREFIX + address)) is not None:
            node = self.by_number.get(record.queue) or self.adopt(record)
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

    def create_queue(self, name: str, *, container: str = "", temporary: bool = False, needed: bool = False) -> Queue:
        """A new queue; there must be none of that name. As of `new_record`."""
        record = self.new_record(name, Kind.QUEUE, container=container, temporary=temporary, needed=needed)
        queue = self.adopt(record)
        assert isinstance(queue, Queue)
        return queue

    def create_topic(self, address: str, *, container: str = "", temporary: bool = False) -> Topic:
        """A new topic; there must be none of that name. As of `new_record`."""
        record = self.new_record(TOPIC_PREFIX + address, Kind.TOPIC, container=container, temporary=temporary)
        topic = self.adopt(record)
        assert isinstance(topic, Topic)
        return topic

    def create_temporary(self, name: str, *, topic: bool, container: str) -> Node:
        """A queue or topic that lives until it is deleted (AMQP 3.5.10), or until nobody comes back for it.

        Raises:
            Exists: there is one of that name.
            NumbersUsedUp: see `demand_number`.
        """
        if self.lookup(name) is not None:
            raise Exists(f"There is already something named {name!r}.")
        if topic:
            return self.create_topic(name, container=container, temporary=True)
        return self.create_queue(name, container=container, temporary=True)

    def demand_number(self, *, needed: bool = False) -> None:
        """See that there is a number for something new.

        Args:
            needed: the broker itself cannot do without it.

        Raises:
            NumbersUsedUp: there is none.
        """
        if self._next > limits.NODE_NUMBER_MAX - (0 if needed else limits.NODE_NUMBERS_RESERVED):
            raise NumbersUsedUp(
                f"This broker's store has given {self._next - 1:,} numbers to queues, topics and subscriptions, and "
                "has no more for new ones; those that exist can be used. Have the group begin with a new store."
            )

    def new_record(
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
        needed: bool = False,
    ) -> QueueRecord:
        """The record of something new, with the next number.

        Raises:
            NumbersUsedUp: see `demand_number`.
        """
        self.demand_number(needed=needed)
        number = self._next
        self._next += 1
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

    def adopt(self, record: QueueRecord) -> Node:
        """The object for a record, with what hangs together with it: a topic has its subscriptions."""
        if record.kind == Kind.TOPIC:
            topic = Topic(record, self._settings(record.name.removeprefix(TOPIC_PREFIX)))
            self.topics[topic.address] = self.by_number[topic.id] = topic
            for subscription in self._kernel.archive.subscriptions(topic.id):
                if subscription.queue not in self.by_number:
                    self.adopt_subscription(subscription, topic)
            return topic
        if record.kind == Kind.SUBSCRIPTION:
            owner = self.node(record.topic)
            assert isinstance(owner, Topic), f"subscription {record.name} is of no topic"
            found = self.by_number.get(record.queue)
            return found or self.adopt_subscription(record, owner)
        queue = Queue(record, record.name, self._settings(record.name))
        self.queues[queue.name] = self.by_number[queue.id] = queue
        self._modes.review(queue)
        return queue

    def adopt_subscription(self, record: QueueRecord, topic: Topic) -> Queue:
        """The same for a subscription of `topic`."""
        queue = Queue(record, topic.address, topic.settings)
        queue.topic = topic
        queue.matches = self._kernel.bodies.matcher(record.selector) if record.selector else None
        topic.subscriptions[queue.name] = queue
        self.queues[queue.name] = self.by_number[queue.id] = queue
        self._modes.review(queue)
        return queue

    def node(self, number: int) -> Node | None:
        """The queue, topic or subscription of that number, if there is one."""
        node = self.by_number.get(number)
        if node is None and (record := self._kernel.archive.queue_by_number(number)) is not None:
            node = self.adopt(record)
        return None if node is None or node.deleted else node
