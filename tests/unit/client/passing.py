"""A message as a consumer would get it, without a broker."""

from __future__ import annotations

from typing import Any

import proton

from legato.client import DeliveryMode, Message, Queue
from legato.client.mapping.received import read_message
from legato.client.mapping.translate import Envelope

ORDERS = Queue("orders")
HEADERS: dict[str, Any] = {
    "_message_id": "ID:m:1",
    "_timestamp": 1_700_000_000_123,
    "_expiration": 0,
    "_delivery_mode": DeliveryMode.PERSISTENT,
    "_priority": 4,
}


def encoded(message: Message, ttl_ms: int = 0, **headers: Any) -> bytes:
    """What a producer sends."""
    if message.priority >= 0:  # a received message reads its headers first, as a producer has it do
        message.__dict__.update(HEADERS | {f"_{name}": value for name, value in headers.items()})
    return Envelope(ORDERS).encode(message, ttl_ms)


def read(data: bytes) -> Any:
    """What a consumer makes of it."""
    return read_message(data, ORDERS, lambda message: None)


def passed(message: Message) -> Any:
    """`message` after it was sent and received."""
    return read(encoded(message))


def body_bytes(data: bytes) -> bytes:
    """The body sections of an encoded message whose body is the last part of it."""
    message = proton.Message()
    message.decode(data)
    sections: bytes = read(data)._source.body_sections()
    assert data.endswith(sections)
    return sections


def as_proton(data: bytes) -> Any:
    """A message as Proton's own decoder sees it."""
    message = proton.Message()
    message.decode(data)
    return message
