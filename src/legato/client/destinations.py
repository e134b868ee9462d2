"""Where messages go to and come from: names with a kind, as values."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from legato.errors import InvalidDestinationError


class DestinationKind(IntEnum):
    """The number that stands for a kind in the annotations `x-opt-jms-dest` and `x-opt-jms-reply-to`."""

    QUEUE = 0
    TOPIC = 1
    TEMPORARY_QUEUE = 2
    TEMPORARY_TOPIC = 3


class Destination(msgspec.Struct, frozen=True):
    """A destination's name; its class says what kind it is (Jakarta Messaging 2.7)."""

    name: str

    kind = DestinationKind.QUEUE
    capability = "queue"

    def __str__(self) -> str:
        return self.name


class Queue(Destination, frozen=True):
    """Each message goes to one of the receivers (Jakarta Messaging 4.1)."""


class Topic(Destination, frozen=True):
    """Each message goes to every subscriber (Jakarta Messaging 4.2). A received message may name one in `reply_to`."""

    kind = DestinationKind.TOPIC
    capability = "topic"


class TemporaryQueue(Queue, frozen=True):
    """A queue that lives as long as the connection that made it."""

    kind = DestinationKind.TEMPORARY_QUEUE
    capability = "temporary-queue"


class TemporaryTopic(Topic, frozen=True):
    """A topic that lives as long as the connection that made it."""

    kind = DestinationKind.TEMPORARY_TOPIC
    capability = "temporary-topic"


_CLASSES: tuple[type[Destination], ...] = (Queue, Topic, TemporaryQueue, TemporaryTopic)


def destination_of(name: str, kind: object = DestinationKind.QUEUE) -> Destination:
    """The destination that a name and the number of an annotation stand for; an unknown number is taken as a queue."""
    if isinstance(kind, int) and 0 <= kind < len(_CLASSES):
        return _CLASSES[kind](name)
    return Queue(name)


def checked_queue(destination: object) -> Queue:
    """`destination`, if messages can be received from or sent to it.

    Raises:
        InvalidDestinationError: it is none, has no name or is not a queue (CONTRACT A23).
    """
    if not isinstance(destination, Destination):
        raise InvalidDestinationError(
            f"A destination is needed, such as session.create_queue('orders'); this is {destination!r}."
        )
    if not destination.name:
        raise InvalidDestinationError("A destination needs a name; this one is empty.")
    if not isinstance(destination, Queue):
        raise InvalidDestinationError(f"{destination.name!r} is not a queue, and only queues can be used here.")
    return destination
