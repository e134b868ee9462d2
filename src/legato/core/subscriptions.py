"""Subscriptions of topics: join, replace, end (Jakarta Messaging 4.2, 8.3)."""

from __future__ import annotations

from legato.core.deletion import Deletion
from legato.core.directory import Directory
from legato.core.facts import Kind
from legato.core.queues import Queue
from legato.core.refusals import SubscriptionInUse
from legato.core.topics import Topic


class Subscriptions:
    """Topics' subscriptions."""

    __slots__ = ("_deletion", "_directory")

    def __init__(self, directory: Directory, deletion: Deletion) -> None:
        self._directory = directory
        self._deletion = deletion

    def subscribe(
        self,
        topic: Topic,
        name: str,
        *,
        container: str,
        selector: str = "",
        no_local: bool = False,
        durable: bool,
        shared: bool,
    ) -> Queue:
        """The subscription of that name on `topic`, made or changed if need be; consumers attach to what is returned.

        A durable one without consumers is replaced, with what waits in it, if topic, selector or no-local differ.

        Args:
            name: its name in the store, with whose it is.
            container: whose messages no-local leaves out.

        Raises:
            SubscriptionInUse: it has a consumer and is not shared, or differs; or it is shared and was not meant to
                be, or the other way round.
            NumbersUsedUp: see `Directory.demand_number`.
        """
        queue = self._directory.find_queue(name)
        if queue is not None:
            differs = queue.topic is not topic or queue.selector != selector or queue.no_local != no_local
            if queue.shared != shared:
                raise SubscriptionInUse(
                    f"Subscription {_plain(name)} is {_kind(queue.shared)} and cannot be used as {_kind(shared)}."
                )
            if queue.consumers and not shared:
                raise SubscriptionInUse(f"Subscription {_plain(name)} is in use, and it is not shared.")
            if queue.consumers and differs:
                raise SubscriptionInUse(
                    f"Subscription {_plain(name)} is in use with another topic or selector; close its consumers first."
                )
            if not differs:
                if not shared:
                    queue.container = container
                return queue
            self._directory.demand_number()
            self._deletion.delete(queue)
        record = self._directory.new_record(
            name,
            Kind.SUBSCRIPTION,
            topic=topic.id,
            selector=selector,
            no_local=no_local,
            container=container,
            temporary=not durable,
            shared=shared,
        )
        return self._directory.adopt_subscription(record, topic)

    def find(self, name: str) -> Queue | None:
        """The subscription of that name in the store."""
        queue = self._directory.find_queue(name)
        return queue if queue is not None and queue.kind == Kind.SUBSCRIPTION else None

    def unsubscribe(self, queue: Queue) -> None:
        """End a durable subscription (Jakarta Messaging 8.3.3).

        Raises:
            SubscriptionInUse: it has a consumer.
        """
        if queue.consumers:
            raise SubscriptionInUse(f"Subscription {_plain(queue.name)} has a consumer; close that first.")
        self._deletion.delete(queue)


def _plain(name: str) -> str:
    return name.rpartition("/")[2]


def _kind(shared: bool) -> str:
    return "shared" if shared else "unshared"
