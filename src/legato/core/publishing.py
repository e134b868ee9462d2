"""Publishing: stores messages, each once if their producer numbers them (promise 1)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from legato.core.backpressure import refusal
from legato.core.duplicate_records import StoredOriginal
from legato.core.duplicates import Duplicates
from legato.core.effects import Refuse
from legato.core.fact_runs import pack_ends
from legato.core.facts import MessagesStored, MessageStored
from legato.core.kernel import Kernel
from legato.core.message import Message, MessageRun
from legato.core.numbered_producers import NumberedProducers
from legato.core.outgoing import Outgoing
from legato.core.producers import Producer
from legato.core.refusals import FULL
from legato.core.router import Router
from legato.core.topics import Node, Topic
from legato.core.traits import PLAIN, Traits

_OVERTAKEN = (
    "It was refused before, when there was no room for it, and what its producer sent after it is stored. Send it as a "
    "new message if it may come after that."
)


def takes_run(node: Node) -> bool:
    """Whether messages that ask for nothing may be stored at an address as a run."""
    return node.takes_runs if isinstance(node, Topic) else not node.special


class Prepared(NamedTuple):
    """A message that is to be stored with others."""

    node: Node
    outgoing: Outgoing
    duplicate_id: bytes
    first: StoredOriginal | None
    """The message that has its duplicate id already."""
    reserved: int
    """Its place in the schedule, 0 if it is for now."""


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
        container: str = "",
    ) -> None:
        """Store messages that ask for nothing, at an address that `takes_run`: as `publish` of each.

        Args:
            content: their bytes.
            ends: where each ends in `content`.
            ids: their message ids, ASCII and of equal length.
            tokens: one for each; None if nobody is to be told.
            producer: who numbers them, if anybody does.
            number: that of the first, above all of the producer's so far; the others follow without gaps.
            container: the publisher's, for no-local subscriptions.
        """
        assert takes_run(node)
        count = len(ends)
        if producer is not None:
            assert number > producer.last
            producer.accept_run(number + count - 1)
        if isinstance(node, Topic):
            self._router.fan_out_run(
                node, content, ends, ids, tokens, 0 if producer is None else producer.id, number, container
            )
            return
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

    def prepare(self, sends: Sequence[tuple[Node, Outgoing]]) -> list[Prepared]:
        """Read all that has to be known to store some messages together: nothing is left that can fail.

        Raises:
            StoreError: something cannot be read; nothing is changed by then.
        """
        prepared: list[Prepared] = []
        own: set[tuple[int, bytes]] = set()
        try:
            for node, outgoing in sends:
                duplicate_id = self._duplicates.duplicate_id_of(node, outgoing)
                first = self._duplicates.first_of(node, duplicate_id) if duplicate_id else None
                is_repeated = first is not None or (node.id, duplicate_id) in own
                if duplicate_id:
                    own.add((node.id, duplicate_id))
                reserved = 0 if is_repeated else self._router.reserve(outgoing)
                prepared.append(Prepared(node, outgoing, duplicate_id, first, reserved))
        except BaseException:
            for each in prepared:
                self._router.give_up(each.reserved)
            raise
        return prepared

    def publish_prepared(self, prepared: Prepared) -> None:
        """Store a message of those that were prepared together, in their order; no limit counts any more."""
        node, outgoing, duplicate_id, first, reserved = prepared
        if duplicate_id:
            # It may be one of the messages before it.
            first = first or self._duplicates.window(node).pending.get(duplicate_id)
            if first is not None:
                self._duplicates.drop(node, duplicate_id, outgoing, first)
                return
            self._duplicates.keep_id(node, duplicate_id, outgoing)
        self._router.enqueue(node, outgoing, reserved)
