"""A message in memory: its place, its holder, and its delivery state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from legato.core.message_states import ARRIVING, STATES

if TYPE_CHECKING:
    from legato.core.consumers import Consumer
    from legato.core.facts import MessageStored
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
