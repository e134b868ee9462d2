"""Commands that store messages: once each, if their producer numbers them (promise 1)."""

from __future__ import annotations

from typing import Any

from legato import limits
from legato.core.commit import Commit
from legato.core.directory import Node
from legato.core.duplicates import Duplicates
from legato.core.effects import Refuse
from legato.core.facts import MessageStored, NumberRefused, ProducerForgotten, ProducerRegistered
from legato.core.message import Message
from legato.core.producers import SINK_PREFIX, Producer
from legato.core.records import ProducerRecord
from legato.core.refusals import FULL, NOT_FOUND
from legato.core.router import Outgoing
from legato.core.topics import Topic
from legato.core.traits import PLAIN, Traits

_OVERTAKEN = (
    "It was refused before, when there was no room for it, and what its producer sent after it is stored. Send it as a "
    "new message if it may come after that."
)


class Publishing(Duplicates):
    """Storing messages."""

    def producer(self, name: str) -> Producer:
        """A producer that numbers its messages attached a link; call `detach_producer` when that ends."""
        producer = self._producers.get(name)
        if producer is None:
            # The store still has one that is being forgotten: a new one comes in its place.
            record = None if name in self._forgetting else self._kernel.archive.producer(name)
            if record is None:
                record = ProducerRecord(self._next_producer, name)
                self._next_producer += 1
                self._kernel.record(ProducerRegistered(record.producer, name))
            producer = self._producers[name] = Producer(record)
        producer.links += 1
        return producer

    def detach_producer(self, producer: Producer, *, forget: bool) -> None:
        """A numbered producer's link ended; `forget` says that it closed for good."""
        producer.links -= 1
        self._kernel.gathering.left.append(producer)
        if producer.links == 0 and forget:
            self._producers.pop(producer.name, None)
            self._forget_producer(producer.id, producer.name)

    def refresh_producers(self) -> None:
        """Put on record that the attached producers were used, though they may be idle.

        In this epoch nobody forgets them; in the next one they have as long as others to come back.
        """
        for producer in self._producers.values():
            if producer.links:
                self._kernel.record(ProducerRegistered(producer.id, producer.name))

    def forget_producers(self) -> None:
        """Forget some producers that nobody has used for `limits.PRODUCER_RETENTION_S`, if there are too many.

        Never a sink, nor one that is attached, or whose numbers are not durable yet: it sends on, and a send that it
        repeats after a failover must be known (promise 1). The decision is made here, where both are known, and stored
        like any other fact (docs/decisions/0058-steady-clock.md).
        """
        excess = self._kernel.archive.producers_count() - len(self._forgetting) - limits.PRODUCERS_KEPT
        if excess <= 0:
            return
        end_us = self._kernel.steady.now_us - limits.PRODUCER_RETENTION_S * 1_000_000
        records = self._kernel.archive.producers(self._forget_after, limits.PRODUCERS_REVIEWED)
        self._forget_after = records[-1].producer if len(records) == limits.PRODUCERS_REVIEWED else 0
        for record in records:
            kept = record.seen_us >= end_us or record.name.startswith(SINK_PREFIX)
            if kept or record.name in self._forgetting:
                continue
            if record.name in self._producers:
                self._kernel.record(ProducerRegistered(record.producer, record.name))
            elif excess > 0:
                self._forget_producer(record.producer, record.name)
                excess -= 1

    def _forget_producer(self, number: int, name: str) -> None:
        self._forgetting[name] = number
        self._kernel.gathering.forgotten.append((number, name))
        self._kernel.record(ProducerForgotten(number, name))

    def _producers_forgotten(self, commit: Commit) -> None:
        """The store has no record of them any more."""
        for number, name in commit.forgotten:
            if self._forgetting.get(name) == number:
                del self._forgetting[name]

    def publish(
        self,
        node: Node,
        body: bytes,
        message_id: str,
        token: Any,
        traits: Traits = PLAIN,
        container: str = "",
    ) -> None:
        """Store a message; `Confirm` or `Refuse` will carry `token`, unless it is None.

        Args:
            container: the publisher's, for no-local subscriptions.
        """
        if node.special or traits is not PLAIN:
            self._publish_closely(node, Outgoing(body, message_id, token, traits, container))
            return
        # A topic is always special.
        lane = node.main  # type: ignore[union-attr]
        lane.last_seq = seq = lane.last_seq + 1
        node.stored += 1
        size = len(body)
        node.bytes += size  # type: ignore[union-attr]
        commit = self._kernel.gathering
        commit.facts.append(MessageStored(node.id, seq, size, message_id))
        commit.bodies.append(body)
        commit.body_bytes += size
        commit.stored.append(Message(node, seq, body, size, token))  # type: ignore[arg-type]

    def publish_numbered(
        self,
        node: Node,
        body: bytes,
        message_id: str,
        token: Any,
        producer: Producer,
        number: int,
        traits: Traits = PLAIN,
        container: str = "",
    ) -> None:
        """Store a message of a numbered producer, once: a repeated number is confirmed and not stored (promise 1).

        What was refused may come again, but not behind what was sent after it: that would be out of order (Jakarta
        Messaging 6.2.10).
        """
        if number <= producer.last:
            if producer.is_duplicate(number):
                outgoing = Outgoing(body, message_id, token, traits, container, producer.id, number)
                self._drop_resent(node, outgoing, producer)
                return
            if producer.is_overtaken(number):
                self._kernel.emit(Refuse(token, FULL, _OVERTAKEN))
                return
        if node.special or traits is not PLAIN:
            outgoing = Outgoing(body, message_id, token, traits, container, producer.id, number)
            if self._publish_closely(node, outgoing):
                producer.accept(number)
            else:
                self.refuse_number(producer, number)
            return
        producer.accept(number)
        # A topic is always special.
        lane = node.main  # type: ignore[union-attr]
        lane.last_seq = seq = lane.last_seq + 1
        node.stored += 1
        size = len(body)
        node.bytes += size  # type: ignore[union-attr]
        commit = self._kernel.gathering
        commit.facts.append(MessageStored(node.id, seq, size, message_id, producer.id, number))
        commit.bodies.append(body)
        commit.body_bytes += size
        commit.stored.append(Message(node, seq, body, size, token))  # type: ignore[arg-type]

    def _publish_closely(self, node: Node, outgoing: Outgoing) -> bool:
        """Publish what is not plain, or to what is not; whether it was accepted."""
        duplicate_id = b"" if node.deleted else self._duplicate_id(node, outgoing)
        if duplicate_id and (first := self._first_of(node, duplicate_id)) is not None:
            self._drop_duplicate(node, duplicate_id, outgoing, first)
            return True
        refusal = self._refusal(node)
        if refusal is not None:
            self._kernel.emit(Refuse(outgoing.token, *refusal))
            return False
        if duplicate_id:
            self._keep_id(node, duplicate_id, outgoing)
        self._enqueue(node, outgoing)
        return True

    def _refusal(self, node: Node) -> tuple[str, str] | None:
        """Why nothing can be published there now: condition and description."""
        if node.deleted:
            return NOT_FOUND, f"{node.address} was deleted"
        if node.settings.when_full == "fail" and node.room == 0:
            return FULL, f"{node.address} is full: its settings allow no more messages (when_full = fail)"
        return None

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
                self._starving.add(queue)
        return room

    def refuse_number(self, producer: Producer, number: int) -> None:
        """The shell refused a numbered message before it got here: a resend of it is not a duplicate."""
        producer.refuse(number)
        self._kernel.record(NumberRefused(producer.id, number))
