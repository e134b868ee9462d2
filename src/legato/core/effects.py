"""Effects: what the world may see now, because its facts are durable (or it needed none)."""

from __future__ import annotations

from typing import Any

import msgspec

from legato.core.consumers import Browser, Consumer
from legato.core.message import Message, MessageRun, RunPart
from legato.core.queues import Queue


class Effect(msgspec.Struct, gc=False):
    """Base of all effects. Tokens and ports are the shell's own objects, handed back."""


class Deliver(Effect):
    """Send these messages to the consumer, in order."""

    consumer: Consumer
    messages: list[Message | MessageRun]


class Paced(Effect):
    """The consumer has as much as may wait for its socket: call `resume` when the socket has taken it."""

    consumer: Consumer


class Show(Effect):
    """Send copies of these messages to the browser, settled."""

    browser: Browser
    messages: list[Message]


class Drained(Effect):
    """Everything deliverable was delivered: give the rest of the credit back (AMQP 2.6.7)."""

    receiver: Consumer | Browser


class Confirm(Effect):
    """These publications are durable (or were already).

    A token may be that of a run: the sequence of the tokens of its messages.
    """

    tokens: list[Any]


class ConfirmDuplicates(Effect):
    """These publications were not stored, because a message with the same duplicate id is durable."""

    tokens: list[Any]


class SettleSends(Effect):
    """The transaction of these sends ended; `duplicates` are the messages that it dropped."""

    txn: bytes
    tokens: list[Any]
    duplicates: list[Any]


class Refuse(Effect):
    """This publication was not stored."""

    token: Any
    condition: str
    description: str


class ConfirmAcknowledged(Effect):
    """These acknowledgements are durable, and their senders requested a confirmation."""

    messages: list[tuple[Consumer, Message | RunPart]]


class Discharged(Effect):
    """The transaction ended as asked."""

    token: Any


class DischargeRefused(Effect):
    """The transaction did not commit and never will."""

    token: Any
    condition: str
    description: str


class Room(Effect):
    """An address with waiting producers has room again."""

    queue: Queue


class ScanAgain(Effect):
    """A scan is not complete: call `go_on` soon, after other work."""


class Finished(Effect):
    """Administrative work is done and durable: with so many messages.

    `refused` says why others found no room where they were to go, and are in their places again; empty if all did.
    """

    token: Any
    count: int
    refused: str = ""


class StagePublished(Effect):
    """A staged batch is durable, `count` messages by this request: 0 if it had been before."""

    token: Any
    count: int


class StageRefused(Effect):
    """A staged batch found no room; nothing of it was stored."""

    token: Any
    description: str
