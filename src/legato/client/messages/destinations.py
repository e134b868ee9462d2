"""Destinations: a name with a kind; equal if both are equal."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import ClassVar, Protocol

from legato.client.steps import Steps, drive
from legato.errors import IllegalStateError, InvalidDestinationError
from legato.quoting import is_unicode


class DestinationKind(IntEnum):
    """The number of a kind in the annotations `x-opt-jms-dest` and `x-opt-jms-reply-to`."""

    QUEUE = 0
    TOPIC = 1
    TEMPORARY_QUEUE = 2
    TEMPORARY_TOPIC = 3


class Destination:
    """A destination's name; its class says what kind it is (Jakarta Messaging 5.2)."""

    __slots__ = ("name",)

    kind: ClassVar[DestinationKind] = DestinationKind.QUEUE
    capability: ClassVar[str] = "queue"

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Destination) and self.name == other.name and self.kind is other.kind

    def __hash__(self) -> int:
        return hash((self.name, self.kind))

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class Queue(Destination):
    """Each message goes to one of the receivers (Jakarta Messaging 4.1)."""

    __slots__ = ()


class Topic(Destination):
    """Each message goes to every subscription (Jakarta Messaging 4.2)."""

    __slots__ = ()

    kind = DestinationKind.TOPIC
    capability = "topic"


class Node(Protocol):
    """A temporary destination's connection, as the destination sees it."""

    @property
    def is_deleted(self) -> bool:
        """Whether it is deleted."""

    def delete(self, dropped: Callable[[], bool] | None = None, timeout_s: float | None = None) -> Steps[None]:
        """Delete it; it waits for that no longer than `dropped` says, and than `timeout_s`."""


class Temporary(Destination):
    """A destination that lives as long as the connection that made it, which alone receives from it."""

    __slots__ = ("_node",)

    def __init__(self, name: str, node: Node | None = None) -> None:
        super().__init__(name)
        self._node = node

    def _delete(self, dropped: Callable[[], bool] | None = None, timeout_s: float | None = None) -> Steps[None]:
        """`delete()`, as steps for both worlds."""
        if self._node is None:
            raise IllegalStateError(f"The temporary destination {self.name} can be deleted only where it was made.")
        yield from self._node.delete(dropped, timeout_s)

    def delete(self) -> None:
        """Delete it before its connection closes (Jakarta Messaging 6.2.2).

        Returns when the broker has durably deleted it; after a loss of the connection, when the next one has. If the
        call is interrupted the deletion goes on; called again, it waits for its end.

        Raises:
            IllegalStateError: a consumer receives from it, or another connection made it.
        """
        drive(self._delete())


class TemporaryQueue(Temporary, Queue):
    """A queue that lives as long as the connection that made it."""

    __slots__ = ()

    kind = DestinationKind.TEMPORARY_QUEUE
    capability = "temporary-queue"


class TemporaryTopic(Temporary, Topic):
    """A topic that lives as long as the connection that made it."""

    __slots__ = ()

    kind = DestinationKind.TEMPORARY_TOPIC
    capability = "temporary-topic"


_CLASSES: tuple[type[Destination], ...] = (Queue, Topic, TemporaryQueue, TemporaryTopic)


def destination_of(name: str, kind: object = DestinationKind.QUEUE) -> Destination:
    """The destination that a name and the number of an annotation stand for; an unknown number is taken as a queue."""
    if isinstance(kind, int) and 0 <= kind < len(_CLASSES):
        return _CLASSES[kind](name)
    return Queue(name)


def checked(destination: object) -> Destination:
    """`destination`, if messages can be received from or sent to it.

    Raises:
        InvalidDestinationError: it is none, or has no name, or one that cannot be sent (CONTRACT A23).
    """
    if not isinstance(destination, Destination):
        raise InvalidDestinationError(
            f"A destination is needed, such as session.create_queue('orders'); this is {destination!r}."
        )
    if not isinstance(destination.name, str):
        raise InvalidDestinationError(f"A destination's name is text, such as 'orders'; this is {destination.name!r}.")
    if not destination.name:
        raise InvalidDestinationError("A destination needs a name; this one is empty.")
    if not is_unicode(destination.name):
        raise InvalidDestinationError(f"A destination's name is Unicode text; {destination.name!r} is none.")
    return destination


def checked_queue(destination: object) -> Queue:
    """`destination`, if it is a queue.

    Raises:
        InvalidDestinationError: it is not.
    """
    queue = checked(destination)
    if not isinstance(queue, Queue):
        raise InvalidDestinationError(f"{queue.name!r} is no queue, and only queues can be used here.")
    return queue


def checked_topic(destination: object) -> Topic:
    """`destination`, if it is a topic.

    Raises:
        InvalidDestinationError: it is not.
    """
    topic = checked(destination)
    if not isinstance(topic, Topic):
        raise InvalidDestinationError(f"{topic.name!r} is no topic, and only topics have subscriptions.")
    return topic
