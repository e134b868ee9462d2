"""Addresses as FastStream has them, texts, and Legato's destinations: a plain text is a queue, `topic://` a topic."""

from __future__ import annotations

from faststream.exceptions import SetupError

from legato.client import Destination, Queue, Topic

TOPIC = "topic://"
_TEMPORARY = ("temp-queue://", "temp-topic://")


def address_of(queue: str, topic: str) -> str:
    """The address that the arguments of a decorator or of `publish()` name.

    Raises:
        SetupError: they name both a queue and a topic.
    """
    if queue and topic:
        raise SetupError(f"A message goes to a queue or to a topic, not to both ({queue!r}, {topic!r}).")
    return TOPIC + topic if topic else queue


def is_temporary(address: str) -> bool:
    """Whether it is gone with the connection that made it, as the address for the replies of a program is."""
    return address.removeprefix(TOPIC).startswith(_TEMPORARY)


def with_prefix(prefix: str, address: str) -> str:
    """An address of a router that has a prefix."""
    return TOPIC + prefix + address.removeprefix(TOPIC) if address.startswith(TOPIC) else prefix + address


def destination_of(address: str) -> Destination:
    """Where an address leads.

    Raises:
        SetupError: it is empty.
    """
    if not address.removeprefix(TOPIC):
        raise SetupError("The message has no address: name a queue or a topic.")
    return Topic(address.removeprefix(TOPIC)) if address.startswith(TOPIC) else Queue(address)


def text_of(destination: Destination | None) -> str:
    """The address of a destination; empty if there is none."""
    if destination is None:
        return ""
    return TOPIC + destination.name if isinstance(destination, Topic) else destination.name
