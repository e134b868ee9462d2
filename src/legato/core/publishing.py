"""Commands that store messages: once each, if their producer numbers them (promise 1)."""

from __future__ import annotations

from typing import Any

from legato.core.facts import DuplicateDropped, MessageStored, NumberRefused, ProducerForgotten, ProducerRegistered
from legato.core.message import Message
from legato.core.producers import Producer
from legato.core.queues import Queue
from legato.core.records import ProducerRecord
from legato.core.state import State


class Publishing(State):
    """Storing messages."""

    def producer(self, name: str) -> Producer:
        """A producer that numbers its messages attached a link; call `detach_producer` when that ends."""
        producer = self._producers.get(name)
        if producer is None:
            record = self._archive.producer(name)
            if record is None:
                record = ProducerRecord(self._next_producer, name)
                self._next_producer += 1
                self._tick.facts.append(ProducerRegistered(record.producer, name))
            producer = self._producers[name] = Producer(record)
        producer.links += 1
        return producer

    def detach_producer(self, producer: Producer, *, forget: bool) -> None:
        """A numbered producer's link ended; `forget` says that it closed for good."""
        producer.links -= 1
        self._tick.left.append(producer)
        if producer.links == 0 and forget:
            self._producers.pop(producer.name, None)
            self._tick.facts.append(ProducerForgotten(producer.id, producer.name))

    def refresh_producers(self) -> None:
        """Say again that the attached producers are there, so that the store's retention spares the idle ones."""
        for producer in self._producers.values():
            if producer.links:
                self._tick.facts.append(ProducerRegistered(producer.id, producer.name))

    def publish(self, queue: Queue, body: bytes, message_id: str, token: Any) -> None:
        """Store a message; `Confirm` or `Refuse` will carry `token`, which must not be None."""
        queue.last_seq = seq = queue.last_seq + 1
        queue.stored += 1
        size = len(body)
        tick = self._tick
        tick.facts.append(MessageStored(queue.id, seq, size, message_id))
        tick.bodies.append(body)
        tick.body_bytes += size
        tick.stored.append(Message(queue, seq, body, size, token))

    def publish_numbered(
        self, queue: Queue, body: bytes, message_id: str, token: Any, producer: Producer, number: int
    ) -> None:
        """Store a message of a numbered producer, once: a repeated number is confirmed and not stored (promise 1)."""
        if producer.is_duplicate(number):
            self._tick.facts.append(DuplicateDropped(producer.id, number))
            self._tick.confirms.append(token)
            return
        producer.accept(number)
        queue.last_seq = seq = queue.last_seq + 1
        queue.stored += 1
        size = len(body)
        tick = self._tick
        tick.facts.append(MessageStored(queue.id, seq, size, message_id, producer.id, number))
        tick.bodies.append(body)
        tick.body_bytes += size
        tick.stored.append(Message(queue, seq, body, size, token))

    def refuse_number(self, producer: Producer, number: int) -> None:
        """The shell refused a numbered message before it got here: a resend of it is not a duplicate."""
        if number > producer.last:
            producer.last = number
        producer.refuse(number)
        self._tick.facts.append(NumberRefused(producer.id, number))
