"""Every output: what the world may see now, because its facts are durable (or it needed none)."""

from __future__ import annotations

from typing import Any

import msgspec

from legato.core.consumers import Browser, Consumer
from legato.core.message import Message
from legato.core.queues import Queue


class Effect(msgspec.Struct, gc=False):
    """Base of all effects. Tokens and ports are the shell's own objects, handed back."""


class Deliver(Effect):
    """Send these messages to the consumer, in order."""

    consumer: Consumer
    messages: list[Message]


class Paced(Effect):
    """The consumer was given as much as may wait for its socket: say `resume` when that was taken."""

    consumer: Consumer


class Show(Effect):
    """Send copies of these messages to the browser, settled."""

    browser: Browser
    messages: list[Message]


class Drained(Effect):
    """All that could be delivered was: give the rest of the credit back (AMQP 2.6.7)."""

    receiver: Consumer | Browser


class Confirm(Effect):
    """These publications are durable (or were already)."""

    tokens: list[Any]


class ConfirmDuplicates(Effect):
    """These publications were not stored, because a message with the same duplicate id is durable."""

    tokens: list[Any]


class SettleSends(Effect):
    """The transaction ended in which these messages were sent; `duplicates` are those of them that it dropped."""

    txn: bytes
    tokens: list[Any]
    duplicates: list[Any]


class Refuse(Effect):
    """This publication was not stored."""

    token: Any
    condition: str
    description: str


class ConfirmAcknowledged(Effect):
    """These acknowledgements are durable, and their senders asked to be told."""

    messages: list[tuple[Consumer, Message]]


class Discharged(Effect):
    """The transaction ended as asked."""

    token: Any


class DischargeRefused(Effect):
    """The transaction did not commit and never will."""

    token: Any
    condition: str
    description: str


class Room(Effect):
    """An address at which producers had to wait has room again."""

    queue: Queue


class ScanAgain(Effect):
    """Not everything was looked at: call `go_on` soon, when others had their turn."""


class Finished(Effect):
    """Administrative work is done."""

    token: Any
    count: int


class StagePublished(Effect):
    """A staged batch is durable, `count` messages by this request: 0 if it had been before."""

    token: Any
    count: int


class StageRefused(Effect):
    """A staged batch found no room; nothing of it was stored."""

    token: Any
    description: str
