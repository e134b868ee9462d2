"""What becomes of a message whose delivery failed: its place again, later, or the dead letters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType

from legato.core.consumers import Consumer
from legato.core.dispatcher import Dispatching
from legato.core.facts import Kind, MessageDeadLettered, MessageReturned
from legato.core.message import Message
from legato.core.queues import Queue
from legato.core.records import StoredMessage
from legato.core.router import Outgoing
from legato.core.settings import AddressSettings
from legato.core.traits import Traits

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

_US_PER_S = 1_000_000


class Redelivering(Dispatching):
    """Failed deliveries (CONTRACT D15-D19)."""

    def _fail(self, message: Message, consumer: Consumer, cause: str, txn: bytes = b"", text: str = "") -> None:
        """A delivery failed and counts; the message is nobody's now."""
        queue = message.queue
        if queue.deleted:
            return
        self._end_on_record(message)
        message.count += 1
        message.lost += cause == "disconnect"
        self._kernel.record(MessageReturned(queue.id, message.seq, message.count, False, consumer.id, cause, txn))
        settings = queue.settings
        if 0 < settings.maximum_deliveries <= message.count and not self._is_dead_letter_queue(queue):
            self._dead_letter(message, consumer, MAXIMUM_DELIVERIES, text)
        elif settings.redelivery_delay_s:
            self._redeliver_later(message, consumer, self._kernel.now_us + self._delay_us(message))
        else:
            self._kernel.gathering.give_back(message)

    def _end_on_record(self, message: Message) -> None:
        """A delivery that a takeover ended goes on, by what is on record: before another begins it ends there too."""
        if message.unrecorded:
            message.unrecorded = False
            self._kernel.record(MessageReturned(message.queue.id, message.seq, message.count, False, 0, "disconnect"))

    def _delay_us(self, message: Message) -> int:
        settings = message.queue.settings
        # The exponent is bounded so that a message that failed for weeks does not overflow a float.
        delay_s = settings.redelivery_delay_s * settings.redelivery_multiplier ** min(message.count - 1, 64)
        delay_s = min(delay_s, max(settings.redelivery_delay_max_s, settings.redelivery_delay_s))
        spread = settings.redelivery_jitter * (2 * self._chance() - 1)
        return int(delay_s * (1 + spread) * _US_PER_S)

    def _redeliver_later(self, message: Message, consumer: Consumer, due_us: int) -> None:
        queue = message.queue
        match queue.settings.redelivery_blocking:
            case "queue":
                queue.held_until_us = max(queue.held_until_us, due_us)
                self._holding.add(queue)
                self._kernel.gathering.give_back(message)
            case "consumer" if consumer in queue.consumers and queue.gives_to(consumer):
                consumer.held_until_us = max(consumer.held_until_us, due_us)
                self._holding.add(queue)
                self._refresh(consumer)
                consumer.first.append(message)
                self._kernel.gathering.keep_back(message)
                if queue.claims or queue.selecting:
                    queue.lane(message.seq).claimed.add(message.seq)
            case "group" if group := self._kernel.bodies.group(queue.body(message, self._kernel.archive))[0]:
                queue.groups.hold(group, due_us)
                self._holding.add(queue)
                self._kernel.gathering.give_back(message)
            case _:
                self._move(message, "delayed", queue, self._again(message), due_us)

    def _again(self, message: Message) -> Outgoing:
        """The message as it goes to another place with its delivery count."""
        body = message.queue.body(message, self._kernel.archive)
        group, closes = self._kernel.bodies.group(body)
        priority = message.queue.lane(message.seq).priority
        traits = Traits(priority, message.expires_us, 0, group, closes)
        return Outgoing(body, traits=traits, count=message.count)

    def let_go(self) -> None:
        """Go on where the time of a redelivery has come."""
        for queue in list(self._holding):
            waiting = False
            if queue.held_until_us:
                if queue.held_until_us <= self._kernel.now_us:
                    queue.held_until_us = 0
                waiting = bool(queue.held_until_us)
            for consumer in queue.consumers:
                if consumer.held_until_us and consumer.held_until_us <= self._kernel.now_us:
                    consumer.held_until_us = 0
                    self._refresh(consumer)
                waiting = waiting or bool(consumer.held_until_us)
            if queue.groups.let_go(self._kernel.now_us):
                self._rewind(queue)
            if not waiting and not queue.groups.next_release_us:
                self._holding.discard(queue)
            self._dispatch(queue)

    # -- dead letters --------------------------------------------------------------------------------------------

    def _is_dead_letter_queue(self, queue: Queue) -> bool:
        """Dead letters do not die again: their queue keeps them."""
        return queue.kind == Kind.QUEUE and holds_dead_letters(queue.name, queue.settings)

    def _dead_letter(
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
        self._left(message)
        name = queue.settings.dead_letter_queue.format(address=_source_name(queue))
        if self._is_dead_letter_queue(queue):
            name = queue.name
        commit = self._kernel.gathering
        deliveries_max = queue.settings.maximum_deliveries if cause == MAXIMUM_DELIVERIES else 0
        if not name:
            commit.facts.append(MessageDeadLettered(queue.id, message.seq, consumer.id, cause, 0, 0, deliveries_max))
            return
        dead = self.find_queue(name) or self.create_queue(name)
        obituary = self._obituary(message, found[0], consumer, cause, text)
        body = self._kernel.bodies.annotate(found[0].body, {**properties, **obituary})
        at = len(commit.facts)
        place = self._enqueue(dead, Outgoing(body, origin=(queue.id, message.seq)))
        commit.facts.insert(at, MessageDeadLettered(queue.id, message.seq, consumer.id, cause, *place, deliveries_max))
        commit.moved.append(message)

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


def holds_dead_letters(name: str, settings: AddressSettings) -> bool:
    """Whether a queue is one that dead letters go to, by its name and its settings."""
    prefix, brace, _ = settings.dead_letter_queue.partition("{")
    if not prefix:
        return False
    return name.startswith(prefix) if brace else name == prefix


def _source_name(queue: Queue) -> str:
    """What a dead letter queue is named after: the queue, or the topic and its subscription if that has a name."""
    if queue.kind != Kind.SUBSCRIPTION or queue.temporary:
        return queue.address
    return f"{queue.address}.{queue.name.rpartition('/')[2]}"
