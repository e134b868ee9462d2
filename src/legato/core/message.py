"""A message in memory: its place, its holder, and its delivery state. A run: neighbours that nobody tells apart yet."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from legato.core.message_states import ARRIVING, AVAILABLE, DELIVERED, LEAVING, STATES

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
    """Messages of default priority that ask for nothing, from `seq` on without gaps: arriving, available, or delivered.

    Those delivered settle from the first one on, as long as they do so in order. When one of them is needed by itself,
    `apart` makes all of them messages, which they stay.

    Args:
        content: their bytes, as one or, of copies and of large ones that were read from disk, by themselves; None while
            in flight.
        ends: where each ends, if they lie one behind the other.
        tokens: their publisher's, one for each, until they are durable; None if nobody is to be told.
        fact: what stores them, until it is durable.

    Attributes:
        consumer: who has them, until they are settled.
        handle: names the first one's delivery on the consumer's link, for the shell; the others follow.
        settled: so many of them are, the first ones.
    """

    __slots__ = (
        "_apart",
        "consumer",
        "content",
        "count",
        "delivered_us",
        "ends",
        "fact",
        "handle",
        "queue",
        "seq",
        "settled",
        "size",
        "tokens",
    )

    def __init__(
        self,
        queue: Queue,
        seq: int,
        content: bytes | memoryview | list[bytes] | None,
        ends: array[int],
        tokens: Sequence[Any] | None = None,
        fact: MessagesStored | None = None,
    ) -> None:
        self.queue = queue
        self.seq = seq
        self.count = len(ends)
        self.content = content
        self.ends = ends
        self.size = ends[-1]
        self.tokens = tokens
        self.fact = fact
        self.consumer: Consumer | None = None
        self.delivered_us = 0
        self.handle = 0
        self.settled = 0
        self._apart: list[Message] | None = None

    @property
    def last_seq(self) -> int:
        """The sequence of the last one."""
        return self.seq + self.count - 1

    @property
    def is_whole(self) -> bool:
        """Whether nobody has told its messages apart."""
        return self._apart is None

    def size_of(self, at: int, count: int) -> int:
        """The size of `count` of them, from the one at `at` on."""
        return self.ends[at + count - 1] - (self.ends[at - 1] if at else 0)

    def split(self, count: int) -> MessageRun:
        """The first ones, as a run of their own; this one is of the others from now on. It waits."""
        content, size = self.content, self.ends[count - 1]
        assert content is not None
        if isinstance(content, list):
            taken: memoryview | list[bytes] = content[:count]
            self.content = content[count:]
        else:
            view = memoryview(content)
            taken, self.content = view[:size], view[size:]
        first = MessageRun(self.queue, self.seq, taken, self.ends[:count])
        self.seq += count
        self.count -= count
        self.ends = array("I", [end - size for end in self.ends[count:]])
        self.size -= size
        return first

    def messages(self) -> list[Message]:
        """Messages that say what this says of them; nobody else has them."""
        content, queue = self.content, self.queue
        made = []
        for seq, (begin, end) in enumerate(pairwise((0, *self.ends)), self.seq):
            if isinstance(content, list):
                body: bytes | None = content[seq - self.seq]
            else:
                body = None if content is None else bytes(content[begin:end])
            made.append(Message(queue, seq, body, end - begin, state=AVAILABLE))
        if self.consumer is not None or self.settled:
            for place, message in enumerate(made):
                is_settled = place < self.settled
                message.consumer = None if is_settled else self.consumer
                message.state = LEAVING if is_settled else DELIVERED
                message.delivered_us = self.delivered_us
                message.handle = self.handle + place if self.handle else 0
        return made

    def apart(self) -> list[Message]:
        """Its messages, told apart for good; those settled are nobody's."""
        if self._apart is None:
            self._apart = self.messages()
        return self._apart


class RunPart(NamedTuple):
    """`length` deliveries of a run from the one at `at` on, which were acknowledged together."""

    run: MessageRun
    at: int
    length: int
