"""A message as the heap knows it: its place, who holds it now, and what a crash must not make us forget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from legato.core.consumers import Consumer
    from legato.core.queues import Queue


class Message:
    """One message of one queue, in the window or in flight.

    `body` is None while in flight: the store has it, should it come back. `token` is the publisher's, until the
    message is durable. `handle` names the delivery on the consumer's link, for the shell.
    """

    __slots__ = (
        "body",
        "consumer",
        "count",
        "delivered_us",
        "excluded",
        "flagged",
        "handle",
        "presented",
        "queue",
        "seq",
        "size",
        "token",
    )

    def __init__(self, queue: Queue, seq: int, body: bytes | None, size: int, token: Any = None) -> None:
        self.queue = queue
        self.seq = seq
        self.body = body
        self.size = size
        self.token = token
        self.count = 0
        self.flagged = False
        self.presented = False
        self.consumer: Consumer | None = None
        self.delivered_us = 0
        self.handle = 0
        self.excluded: set[int] | None = None

    def __lt__(self, other: Message) -> bool:
        return self.seq < other.seq

    def __repr__(self) -> str:
        holder = f" held by consumer {self.consumer.id}" if self.consumer else ""
        return f"<Message {self.queue.name}/{self.seq} count={self.count}{holder}>"
