"""Messages between Legato and FastStream: JSON on the wire, headers as properties."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from faststream.exceptions import HandlerException
from faststream.message import AckStatus, StreamMessage, decode_message
from faststream.message.source_type import SourceType

from legato.client import Message, TextMessage
from legato.client.aio import Session
from legato.client.messages.json_text import JSON_TYPE
from legato.client.messages.properties import DELIVERY_COUNT
from legato.client.messages.sendable import encoded_message
from legato.errors import MessageFormatError
from legato.faststream.address import text_of

HEADERS = "faststream_headers"
"""The property that has, as JSON, the headers that no property can hold, such as those with a dash in their name."""
REJECTED = "rejected by the handler"
_OF_THIS_MESSAGE = ("_AMQ_DUPL_ID", DELIVERY_COUNT)
"""Properties that are no headers: handlers publish other messages with the headers of the one that they had, and what
has the duplicate id of another message is dropped."""


@dataclass
class Delivery:
    """A message as a subscriber received it, with the session that settles it; there is none without a broker."""

    message: Message
    address: str
    session: Session | None = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    nacked: bool = False
    """Whether it is to be delivered again; its subscriber gives it back after a pause."""
    why: str = ""
    delay_s: float | None = None
    subscription: str = ""
    """Of a topic: which of its subscriptions had it; the others have messages of the same id."""
    results: Counter[str] = field(default_factory=Counter)
    """What its handler's publishers have published, by address."""
    turn: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    """Who settles it has the turn of its session, which others may use."""
    give_back: Callable[[], None] | None = None
    """Of a message that no worker had, but somebody asked for: has it delivered again."""
    readable: bool = False
    """Whether it has been parsed: what cannot be no handler, nor FastStream, can settle."""

    def next_result_id(self, address: str) -> str | None:
        """The duplicate id of the next result of its handler for an address: the same whenever the handler runs again.

        None if the message has no id.
        """
        message_id = self.message.message_id
        if message_id is None:
            return None
        self.results[address] += 1
        count = self.results[address]
        received = f"{message_id}:{quote(self.subscription, safe='')}" if self.subscription else message_id
        return f"{received}:{address}" if count == 1 else f"{received}:{address}:{count}"

    def reject(self) -> None:
        """Make it a dead letter at once."""
        if self.session is not None:
            self.session.reject(self.message, self.why)
        self.settled.set()

    def nack(self, delay_s: float | None = None) -> None:
        """Have it delivered again, as a failed delivery, after so many seconds or after the subscriber's pause."""
        self.nacked, self.delay_s = True, delay_s
        self.why = self.why or _failure()
        self.settled.set()
        if self.give_back is not None:
            self.give_back()


class LegatoMessage(StreamMessage[Delivery]):
    """What a handler can have as `message`; `raw_message.message` is Legato's own."""

    @property
    def delivery_count(self) -> int:
        """How often it was delivered, this time included."""
        return self.raw_message.message.delivery_count

    async def ack(self) -> None:
        """Acknowledge it; returns once that is durable, over a failover too."""
        raw = self.raw_message
        if self.committed is None and raw.session is not None:
            async with raw.turn():
                await raw.message.try_acknowledge()
        await super().ack()
        raw.settled.set()

    async def nack(self, delay_s: float | None = None) -> None:
        """Have it delivered again, as a failed delivery.

        Args:
            delay_s: after so many seconds; by default after the subscriber's pause.
        """
        first = self.committed is None
        await super().nack()
        if first:
            self.raw_message.nack(delay_s)

    async def reject(self, reason: str = "") -> None:
        """Make it a dead letter at once.

        Args:
            reason: that the dead letter tells; by default the exception that is being handled, if there is one.
        """
        raw = self.raw_message
        if self.committed is None and raw.session is not None:
            why = reason or raw.why or _failure() or REJECTED
            async with raw.turn():
                raw.session.reject(raw.message, why)
        await super().reject()
        raw.settled.set()

    @property
    def is_settled(self) -> bool:
        """Whether it was acknowledged, given back or rejected."""
        return self.committed in tuple(AckStatus)


def _failure() -> str:
    """The exception that is being handled; of those that only say how to settle, the one that they were raised for."""
    error = sys.exception()
    while isinstance(error, HandlerException):
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "" if error is None else repr(error)


def _as_text(value: Any) -> str:
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise MessageFormatError(f"A header is text or what JSON can hold; bytes are UTF-8: {error}.") from error


def build(
    body: bytes,
    content_type: str | None,
    *,
    headers: Mapping[str, Any] | None = None,
    correlation_id: str | None = None,
) -> Message:
    """A message to be sent; JSON and text are text on the wire, so that every tool can show them."""
    message = encoded_message(body, content_type)
    if correlation_id:
        message.correlation_id = correlation_id
    others = {}
    for name, value in (headers or {}).items():
        try:
            message.set_property(name, value)
        except MessageFormatError:
            others[name] = value
    if others:
        message.set_property(HEADERS, json.dumps(others, default=_as_text))
    return message


async def parse(delivery: Delivery) -> LegatoMessage:
    """FastStream's view of a message."""
    message = delivery.message
    headers = dict(message.properties)
    headers |= json.loads(str(headers.pop(HEADERS, "{}")))
    for name in _OF_THIS_MESSAGE:
        headers.pop(name, None)
    body = message.body
    content_type = message.content_type
    if isinstance(body, str):
        body = body.encode()
    elif not isinstance(body, bytes):
        body, content_type = json.dumps(body, default=str).encode(), JSON_TYPE
    correlation_id = message.correlation_id
    parsed = LegatoMessage(
        raw_message=delivery,
        body=body,
        headers=headers,
        reply_to=text_of(message.reply_to),
        content_type=content_type,
        correlation_id=correlation_id.hex() if isinstance(correlation_id, bytes) else correlation_id,
        message_id=message.message_id,
        source_type=SourceType.CONSUME,
    )
    delivery.readable = True
    return parsed


async def decode(message: StreamMessage[Delivery]) -> Any:
    """The body: what its content type says, and of a message without one JSON if it is that, else its text."""
    if message.content_type is None and isinstance(message.raw_message.message, TextMessage):
        try:
            return json.loads(message.body)
        except ValueError:
            return message.body.decode()
    return decode_message(message)
