"""Publishing: stores messages, each once if their producer numbers them (promise 1)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from legato.core.backpressure import refusal
from legato.core.duplicates import Duplicates
from legato.core.effects import Refuse
from legato.core.fact_runs import pack_ends
from legato.core.facts import MessagesStored, MessageStored
from legato.core.kernel import Kernel
from legato.core.message import Message, MessageRun
from legato.core.numbered_producers import NumberedProducers
from legato.core.outgoing import Outgoing
from legato.core.producers import Producer
from legato.core.queues import Queue
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

    def publish_run(
        self,
        node: Node,
        content: bytes,
        ends: array[int],
        ids: bytes,
        tokens: Sequence[Any] | None,
        producer: Producer | None = None,
        number: int = 0,
    ) -> None:
        """Store messages that ask for nothing, at an address that is not special: as `publish` of each.

        Args:
            content: their bytes.
            ends: where each ends in `content`.
            ids: their message ids, ASCII and of equal length.
            tokens: one for each; None if nobody is to be told.
            producer: who numbers them, if anybody does.
            number: that of the first, above all of the producer's so far; the others follow without gaps.
        """
        assert not node.special
        assert isinstance(node, Queue)
        count = len(ends)
        if producer is not None:
            assert number > producer.last
            producer.accept_run(number + count - 1)
        lane = node.main
        seq = lane.last_seq + 1
        lane.last_seq += count
        size = ends[-1]
        node.stored += count
        node.bytes += size
        commit = self._kernel.gathering
        fact = MessagesStored(node.id, seq, count, pack_ends(ends), ids, 0 if producer is None else producer.id, number)
        commit.facts.append(fact)
        commit.bodies.append(content)
        commit.body_bytes += size
        commit.stored.append(MessageRun(node, seq, content, ends, tokens, fact))
        commit.run_messages += count - 1
        commit.queues.add(node)

    def publish_closely(self, node: Node, outgoing: Outgoing) -> bool:
        """Publish what is not plain, or to what is not; whether it was accepted."""
        duplicate_id = b"" if node.deleted else self._duplicates.duplicate_id_of(node, outgoing)
        if self._drop_repeated(node, duplicate_id, outgoing):
            return True
        why = refusal(node)
        if why is not None:
            self._kernel.emit(Refuse(outgoing.token, *why))
            return False
        self._enqueue(node, duplicate_id, outgoing)
        return True

    def publish_of_batch(self, node: Node, outgoing: Outgoing) -> None:
        """Publish a message of what has been accepted as a whole: no limit counts any more."""
        duplicate_id = self._duplicates.duplicate_id_of(node, outgoing)
        if not self._drop_repeated(node, duplicate_id, outgoing):
            self._enqueue(node, duplicate_id, outgoing)

    def _drop_repeated(self, node: Node, duplicate_id: bytes, outgoing: Outgoing) -> bool:
        first = self._duplicates.first_of(node, duplicate_id) if duplicate_id else None
        if first is not None:
            self._duplicates.drop(node, duplicate_id, outgoing, first)
        return first is not None

    def _enqueue(self, node: Node, duplicate_id: bytes, outgoing: Outgoing) -> None:
        if duplicate_id:
            self._duplicates.keep_id(node, duplicate_id, outgoing)
        self._router.enqueue(node, outgoing)
