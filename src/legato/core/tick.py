"""What one commit will hold, and what the world will see once it is durable."""

from __future__ import annotations

from typing import Any

from legato.core.consumers import Consumer
from legato.core.facts import AnyFact
from legato.core.message import Message
from legato.core.producers import Producer
from legato.core.queues import Queue
from legato.core.transaction import Transaction


class Tick:
    """Facts gathered since the last commit was begun, with their consequences.

    `stored[i]` belongs to the i-th `MessageStored` of `facts`, as `bodies[i]` does.
    """

    __slots__ = (
        "acknowledged",
        "bodies",
        "body_bytes",
        "confirms",
        "dead",
        "discharges",
        "facts",
        "left",
        "marks",
        "returned",
        "stored",
    )

    def __init__(self) -> None:
        self.facts: list[AnyFact] = []
        self.bodies: list[bytes] = []
        self.body_bytes = 0
        self.stored: list[Message] = []
        self.confirms: list[Any] = []
        """Tokens to confirm beside those of `stored`: duplicates."""
        self.acknowledged: list[tuple[Consumer, Message]] = []
        """Acknowledgements whose sender asked to be told."""
        self.returned: list[Message] = []
        self.dead: list[Message] = []
        """`dead[i]` belongs to the i-th `MessageDeadLettered` of `facts`."""
        self.left: list[Producer] = []
        """Producers that have no link any more: once their numbers are durable, the store remembers them."""
        self.marks: list[tuple[Queue, int]] = []
        self.discharges: list[tuple[Any, Transaction, bool]] = []
        """Token, transaction, whether it commits."""

    def __bool__(self) -> bool:
        return bool(self.facts or self.confirms or self.discharges)

    def give_back(self, message: Message) -> None:
        """The message returns to its place once this tick is durable."""
        message.queue.returning += 1
        self.returned.append(message)

    def keep(self, queue: Queue, seqs: set[int]) -> dict[int, Message]:
        """Those of the messages that were to return with this tick: they stay with who asks."""
        kept = {message.seq: message for message in self.returned if message.queue is queue and message.seq in seqs}
        if kept:
            self.returned = [message for message in self.returned if kept.get(message.seq) is not message]
            queue.returning -= len(kept)
        return kept

    def append(self, newer: Tick) -> None:
        """Add what was gathered after this tick's facts failed."""
        self.facts += newer.facts
        self.bodies += newer.bodies
        self.body_bytes += newer.body_bytes
        self.stored += newer.stored
        self.confirms += newer.confirms
        self.acknowledged += newer.acknowledged
        self.returned += newer.returned
        self.dead += newer.dead
        self.marks += newer.marks
        self.left += newer.left
        self.discharges += newer.discharges
