"""Kombu's messages as Legato's, and back."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import msgspec
from kombu import message as kombu_message
from kombu.utils.json import dumps, loads

from legato.client import BytesMessage, Message, TextMessage
from legato.errors import MessageFormatError

HEADERS, PROPERTIES, EXCHANGE, ROUTING_KEY = "kombu_headers", "kombu_properties", "kombu_exchange", "kombu_routing_key"
PRIORITY_MIN, PRIORITY_MAX = 0, 9
TRANSIENT_MODE = 1
"""Kombu's delivery mode of a message that need not be stored."""
_CARRIED = ("correlation_id", "priority", "expiration", "delivery_tag", "delivery_info")
"""Properties that Legato carries in headers of its own, or that are made anew for each delivery."""


_TEXTS = ("application/json", "text/")


class Sending(msgspec.Struct, frozen=True):
    """How a message is sent."""

    priority: int
    time_to_live_ms: int
    delivery_delay_ms: int


class ReceivedMessage(kombu_message.Message):  # type: ignore[misc]
    """A message that a channel received."""


def encode(message: dict[str, Any], exchange: str, routing_key: str) -> Message:
    """The Legato message for what `prepare_message()` made; each queue gets one of its own."""
    headers, properties = message["headers"], message["properties"]
    sent = _body(message["body"], message["content-type"] or "", message["content-encoding"] or "", headers)
    sent.content_type = message["content-type"]
    correlation_id = properties.get("correlation_id")
    if correlation_id:
        sent.correlation_id = str(correlation_id)
    task = headers.get("task")
    if isinstance(task, str):
        sent.type = task
    carried = {name: value for name, value in properties.items() if name not in _CARRIED and value is not None}
    if message["content-encoding"]:
        carried["content_encoding"] = message["content-encoding"]
    sent.set_property(HEADERS, dumps(headers))
    sent.set_property(PROPERTIES, dumps(carried))
    sent.set_property(EXCHANGE, exchange)
    sent.set_property(ROUTING_KEY, routing_key)
    return sent


def _body(body: Any, content_type: str, encoding: str, headers: dict[str, Any]) -> Message:
    """JSON and text are text on the wire, so that every tool can show and edit them."""
    if isinstance(body, str):
        return TextMessage(body)
    body = bytes(body)
    if content_type.startswith(_TEXTS) and encoding.lower() in ("utf-8", "us-ascii") and "compression" not in headers:
        try:
            return TextMessage(body.decode())
        except UnicodeDecodeError:
            pass
    return BytesMessage(body)


def sending(message: dict[str, Any], *, hold_eta: bool) -> Sending:
    """How the message is sent.

    Args:
        hold_eta: whether the broker keeps a Celery task back until its ETA; otherwise the worker does.
    """
    properties = message["properties"]
    try:
        priority = int(properties.get("priority") or PRIORITY_MIN)
    except (TypeError, ValueError):
        priority = PRIORITY_MIN
    expiration = properties.get("expiration")
    return Sending(
        priority=min(max(priority, PRIORITY_MIN), PRIORITY_MAX),
        # In AMQP 0.9.1 a TTL of 0 expires unless a consumer is there; the shortest here is 1 ms.
        time_to_live_ms=max(int(expiration), 1) if expiration is not None else 0,
        delivery_delay_ms=_delay_ms(message["headers"]) if hold_eta else 0,
    )


def _delay_ms(headers: dict[str, Any]) -> int:
    """Milliseconds until the ETA of a Celery task (protocol 2); 0 if it has none."""
    eta = headers.get("eta")
    if not eta or "task" not in headers:
        return 0
    try:
        when = eta if isinstance(eta, datetime) else datetime.fromisoformat(str(eta))
    except ValueError:
        return 0  # the worker, which knows more spellings, keeps it
    if when.tzinfo is None:
        return 0  # it is in the time zone of the worker's configuration
    return max(0, round((when.timestamp() - time.time()) * 1000))


def decode(message: Message, channel: Any, *, queue: str, tag: int, consumer_tag: str | None) -> ReceivedMessage:
    """What kombu's consumers get; a message of a sender that is no kombu has its properties as headers.

    Raises:
        Exception: of any class; the message is not written as a kombu writes one.
    """
    properties = message.properties
    carried: dict[str, Any] = {}
    headers: dict[str, Any] = {}
    if HEADERS in properties:
        headers = _object(HEADERS, str(properties[HEADERS]))
        carried = _object(PROPERTIES, str(properties.get(PROPERTIES) or "{}"))
    else:
        headers = dict(properties)
    body = message.body
    content_type = message.content_type
    encoding = carried.pop("content_encoding", None)
    if not isinstance(body, bytes):
        content_type = content_type or "text/plain"
        encoding = encoding or "utf-8"
        body = (body if isinstance(body, str) else "" if body is None else dumps(body)).encode()
    carried |= {
        "correlation_id": message.correlation_id,
        "delivery_mode": carried.get("delivery_mode") or int(message.delivery_mode),
        "priority": message.priority,
        "delivery_tag": tag,
    }
    info = {
        "exchange": properties.get(EXCHANGE) or "",
        "routing_key": properties.get(ROUTING_KEY) or queue,
        "redelivered": message.redelivered,
        "priority": message.priority,
        "consumer_tag": consumer_tag,
        "delivery_count": message.delivery_count,
    }
    return ReceivedMessage(
        body=body,
        channel=channel,
        delivery_tag=tag,
        content_type=content_type or "application/data",
        content_encoding=encoding or "binary",
        headers=headers,
        properties=carried,
        delivery_info=info,
    )


def _object(name: str, text: str) -> dict[str, Any]:
    try:
        value = loads(text)
    except ValueError as error:
        raise MessageFormatError(f"The property {name} is no JSON: {error}.", linked=error) from error
    if not isinstance(value, dict):
        raise MessageFormatError(f"The property {name} is no JSON object.")
    return value
