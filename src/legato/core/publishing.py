"""Publishing: stores messages, each once if their producer numbers them (promise 1)."""

from __future__ import annotations

from typing import Any

from legato.core.backpressure import refusal
from legato.core.duplicates import Duplicates
from legato.core.effects import Refuse
from legato.core.facts import MessageStored
from legato.core.kernel import Kernel
from legato.core.message import Message
from legato.core.numbered_producers import NumberedProducers
from legato.core.outgoing import Outgoing
from legato.core.producers import Producer
from legato.core.refusals import FULL
from legato.core.router import Router
from legato.core.topics import Node
from legato.core.traits import PLAIN, Traits

_OVERTAKEN = (
    "It was refused before, when there was no room for it, and what its producer sent after it is stored. Send it as a "
    "new message if it may come after that."
)


class Publisher:
    """Stores messages."""

    __slots__ = ("_duplicates", "_kernel", "_producers", "_router")

    def __init__(self, kernel: Kernel, router: Router, producers: NumberedProducers, duplicates: Duplicates) -> None:
        self._kernel = kernel
        self._router = router
        self._producers = producers
        self._duplicates = duplicates

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
            self.publish_closely(node, Outgoing(body, message_id, token, traits, container))
            return
        # A topic is always special.
        lane = node.main  # type: ignore[union-attr]
        lane.last_seq = seq = lane.last_seq + 1
        node.stored += 1
        size = len(body)
        node.bytes += size  # type: ignore[union-attr]
        commit = self._kernel.gathering
        fact = MessageStored(node.id, seq, size, message_id)
        commit.facts.append(fact)
        commit.bodies.append(body)
        commit.body_bytes += size
        commit.stored.append(Message(node, seq, body, size, token, fact))  # type: ignore[arg-type]
        commit.queues.add(node)  # type: ignore[arg-type]

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
                self._duplicates.drop_resent(node, outgoing, producer)
                return
            if producer.is_overtaken(number):
                self._kernel.emit(Refuse(token, FULL, _OVERTAKEN))
                return
        if node.special or traits is not PLAIN:
            outgoing = Outgoing(body, message_id, token, traits, container, producer.id, number)
            if self.publish_closely(node, outgoing):
                producer.accept(number)
            else:
                self._producers.refuse_number(producer, number)
            return
        producer.accept(number)
        # A topic is always special.
        lane = node.main  # type: ignore[union-attr]
        lane.last_seq = seq = lane.last_seq + 1
        node.stored += 1
        size = len(body)
        node.bytes += size  # type: ignore[union-attr]
        commit = self._kernel.gathering
        fact = MessageStored(node.id, seq, size, message_id, producer.id, number)
        commit.facts.append(fact)
        commit.bodies.append(body)
        commit.body_bytes += size
        commit.stored.append(Message(node, seq, body, size, token, fact))  # type: ignore[arg-type]
        commit.queues.add(node)  # type: ignore[arg-type]

    def publish_closely(self, node: Node, outgoing: Outgoing) -> bool:
        """Publish what is not plain, or to what is not; whether it was accepted."""
        duplicate_id = b"" if node.deleted else self._duplicates.duplicate_id_of(node, outgoing)
        if duplicate_id and (first := self._duplicates.first_of(node, duplicate_id)) is not None:
            self._duplicates.drop(node, duplicate_id, outgoing, first)
            return True
        why = refusal(node)
        if why is not None:
            self._kernel.emit(Refuse(outgoing.token, *why))
            return False
        if duplicate_id:
            self._duplicates.keep_id(node, duplicate_id, outgoing)
        self._router.enqueue(node, outgoing)
        return True
