"""A message in memory: its place, its holder, and its delivery state. A run: neighbours that nobody tells apart yet."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from legato.core.message_states import ARRIVING, STATES

if TYPE_CHECKING:
    from legato.core.consumers import Consumer
    from legato.core.facts import MessagesStored, MessageStored
    from legato.core.queues import Queue


class Message(msgspec.Struct, eq=False, gc=False):
    """One message of one queue, in the window or in flight; a Struct because none is quicker to make.

    `body` is None while in flight: the store has it, should it come back. `token` is the publisher's, and `fact` what
    stores it by itself, until the message is durable. `handle` names the delivery on the consumer's link, for the
    shell. Outside the garbage collector: what it refers to never refers back to it once it is settled.
    """

    queue: Queue
    seq: int
    body: bytes | None
    size: int
    token: Any = None
    fact: MessageStored | None = None
    count: int = 0
    flagged: bool = False
    presented: bool = False
    consumer: Consumer | None = None
    delivered_us: int = 0
    handle: int = 0
    excluded: set[int] | None = None
    expires_us: int = 0
    waiting: bool = False
    """It came back and nobody has it."""
    lost: int = 0
    """Of `count`, how many deliveries ended with their connection or broker: who still has one may take it back."""
    unrecorded: bool = False
    """The last one of these ended with the broker before this one: on record it is still going on."""
    state: int = ARRIVING
    """One of `core.message_states`."""

    def __lt__(self, other: Message) -> bool:
        return self.seq < other.seq

    def __repr__(self) -> str:
        holder = f" held by consumer {self.consumer.id}" if self.consumer else ""
        return f"<Message {self.queue.name}/{self.seq} {STATES[self.state][0]} count={self.count}{holder}>"


class MessageRun:
    """Messages of default priority that ask for nothing, from `seq` on without gaps.

    Args:
        content: their bytes.
        ends: where each ends in `content`.
        tokens: their publisher's, one for each, until they are durable; None if nobody is to be told.
        fact: what stores them.
    """

    __slots__ = ("content", "count", "ends", "fact", "queue", "seq", "size", "tokens")

    def __init__(
        self,
        queue: Queue,
        seq: int,
        content: bytes,
        ends: array[int],
        tokens: Sequence[Any] | None,
        fact: MessagesStored,
    ) -> None:
        self.queue = queue
        self.seq = seq
        self.count = len(ends)
        self.content = content
        self.ends = ends
        self.size = ends[-1]
        self.tokens = tokens
        self.fact = fact

    @property
    def last_seq(self) -> int:
        """The sequence of the last one."""
        return self.seq + self.count - 1

    def messages(self) -> list[Message]:
        """The messages, told apart; they have just become durable."""
        content, queue = self.content, self.queue
        return [
            Message(queue, seq, content[begin:end], end - begin)
            for seq, (begin, end) in enumerate(pairwise((0, *self.ends)), self.seq)
        ]
