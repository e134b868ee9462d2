"""Dead letters: a message that failed too often or was rejected goes to the dead-letter queue (CONTRACT D2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType

from legato.core.changes import Moved
from legato.core.consumers import Consumer
from legato.core.directory import Directory
from legato.core.facts import Kind, MessageDeadLettered
from legato.core.kernel import Kernel
from legato.core.message import Message
from legato.core.outgoing import Outgoing
from legato.core.queues import Queue
from legato.core.records import StoredMessage
from legato.core.router import Router
from legato.core.settings import AddressSettings

CAUSE = "JMS_LEGATO_CAUSE"
EXCEPTION = "JMS_LEGATO_EXCEPTION"
ORIGINAL_DESTINATION = "JMS_LEGATO_ORIGINAL_DESTINATION"
ORIGINAL_SUBSCRIPTION = "JMS_LEGATO_ORIGINAL_SUBSCRIPTION"
ORIGINAL_SEQUENCE = "JMS_LEGATO_ORIGINAL_SEQUENCE"
DELIVERIES = "JMS_LEGATO_DELIVERIES"
HISTORY = "JMS_LEGATO_HISTORY"
DEAD_LETTERED_AT_MS = "JMS_LEGATO_DEAD_LETTERED_AT_MS"
DEAD_LETTER_COUNT = "JMS_LEGATO_DEAD_LETTER_COUNT"
"""Of how often the message was a dead letter; kept when it is sent again."""

MAXIMUM_DELIVERIES = "maximum deliveries"
"""Cause of a dead letter that failed as often as its address allows."""

NOTHING_MORE: Mapping[str, str | int] = MappingProxyType({})


class DeadLetters:
    """Moves messages to the dead-letter queue, with the reason."""

    __slots__ = ("_directory", "_kernel", "_router")

    def __init__(self, kernel: Kernel, directory: Directory, router: Router) -> None:
        self._kernel = kernel
        self._directory = directory
        self._router = router

    def bury(
        self,
        message: Message,
        consumer: Consumer,
        cause: str,
        text: str,
        properties: Mapping[str, str | int] = NOTHING_MORE,
    ) -> None:
        """The message goes to the dead letters of its queue, with the reason and what else its receiver says."""
        queue = message.queue
        found = self._kernel.archive.messages(queue.id, message.seq - 1, 1, 0)
        assert found, "a message in flight is in the store"
        assert found[0].seq == message.seq, "a message in flight is in the store"
        obituary = self._obituary(message, found[0], consumer, cause, text)
        body = self._kernel.bodies.annotate(found[0].body, {**properties, **obituary})
        # Nothing that it has or was given can be in the way from here on.
        self._router.account_departure(message)
        name = queue.settings.dead_letter_queue.format(address=_source_name(queue))
        if is_dead_letter_queue(queue):
            name = queue.name
        commit = self._kernel.gathering
        deliveries_max = queue.settings.maximum_deliveries if cause == MAXIMUM_DELIVERIES else 0
        if not name:
            commit.facts.append(MessageDeadLettered(queue.id, message.seq, consumer.id, cause, 0, 0, deliveries_max))
            return
        dead = self._directory.find_queue(name) or self._directory.create_queue(name, needed=True)
        at = len(commit.facts)
        place = self._router.enqueue(dead, Outgoing(body, origin=(queue.id, message.seq)))
        fact = MessageDeadLettered(queue.id, message.seq, consumer.id, cause, *place, deliveries_max)
        commit.facts.insert(at, fact)
        commit.changes.append(Moved(fact, message))

    def _obituary(
        self, message: Message, stored: StoredMessage, consumer: Consumer, cause: str, text: str
    ) -> dict[str, str | int]:
        earlier = self._kernel.bodies.read(stored.body, DEAD_LETTER_COUNT)
        attempts = [{"at_ms": a.time_us // 1000, "consumer": a.consumer, "cause": a.cause} for a in stored.history]
        attempts.append({"at_ms": self._kernel.now_us // 1000, "consumer": consumer.id, "cause": cause})
        obituary: dict[str, str | int] = {
            CAUSE: cause,
            ORIGINAL_DESTINATION: message.queue.address,
            ORIGINAL_SEQUENCE: message.seq,
            # This delivery is counted already where it failed, and not where it was rejected.
            DELIVERIES: message.count + (cause == "rejected"),
            HISTORY: json.dumps(attempts),
            DEAD_LETTERED_AT_MS: self._kernel.now_us // 1000,
            DEAD_LETTER_COUNT: (earlier if isinstance(earlier, int) else 0) + 1,
        }
        if text:
            obituary[EXCEPTION] = text
        if message.queue.kind == Kind.SUBSCRIPTION and not message.queue.temporary:
            obituary[ORIGINAL_SUBSCRIPTION] = message.queue.name
        return obituary


def is_dead_letter_queue(queue: Queue) -> bool:
    """Dead letters do not die again: their queue keeps them."""
    return queue.kind == Kind.QUEUE and holds_dead_letters(queue.name, queue.settings)


def holds_dead_letters(name: str, settings: AddressSettings) -> bool:
    """Whether a queue is one that dead letters go to, by its name and its settings."""
    prefix, brace, _ = settings.dead_letter_queue.partition("{")
    if not prefix:
        return False
    return name.startswith(prefix) if brace else name == prefix


def _source_name(queue: Queue) -> str:
    """Name in a dead-letter queue's name: the queue, or the topic and its subscription if that has a name."""
    if queue.kind != Kind.SUBSCRIPTION or queue.temporary:
        return queue.address
    return f"{queue.address}.{queue.name.rpartition('/')[2]}"
