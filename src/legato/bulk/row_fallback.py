"""Row-by-row fallback for messages that the vectorised decoder cannot handle."""

from __future__ import annotations

from typing import Any

import msgspec

from legato.bulk.schema import time_us
from legato.client.mapping.received import Received
from legato.client.messages import BytesMessage, DeliveryMode, Message
from legato.client.messages.destinations import destination_of
from legato.errors import JMSError, ProtocolError

_NOWHERE = destination_of("")
_NULL_BODY = b"\x00\x53\x77\x40"


def decode_row(message: bytes, *, properties: bool) -> dict[str, Any]:
    """A message's columns (`columns.COLUMNS`); if it cannot be decoded, all null and the message as its body."""
    try:
        received = Received(message, _NOWHERE)
        headers = received.headers()
        body = _body_of(received)
    except (ProtocolError, JMSError):
        return dict.fromkeys(_NAMES) | {"body": message}
    correlation_id = headers["correlation_id"]
    persistent = headers["delivery_mode"] == DeliveryMode.PERSISTENT
    return {
        "message_id": headers["message_id"],
        "timestamp": time_us(headers["timestamp"]),
        "expiration": time_us(headers["expiration"]),
        "priority": headers["priority"],
        "delivery_mode": "PERSISTENT" if persistent else "NON_PERSISTENT",
        "correlation_id": correlation_id.hex() if isinstance(correlation_id, bytes) else correlation_id,
        "reply_to": None if headers["reply_to"] is None else headers["reply_to"].name,
        "type": headers["type"],
        "group_id": headers["properties"].get("JMSXGroupID"),
        "properties": _properties_of(headers["properties"]) if properties else None,
        "body": body,
    }


def properties_of(message: bytes) -> dict[str, Any]:
    """The application properties of a message that can be decoded, as they are; JMSX ones have columns of their own."""
    return _own(Received(message, _NOWHERE).headers()["properties"])


_NAMES = (
    *("message_id", "timestamp", "expiration", "priority", "delivery_mode", "correlation_id", "reply_to", "type"),
    *("group_id", "properties", "body"),
)


def _properties_of(values: dict[str, Any]) -> list[tuple[str, str | None]] | None:
    """Application properties as text."""
    return [(name, _text_of(value)) for name, value in _own(values).items()] or None


def _own(values: dict[str, Any]) -> dict[str, Any]:
    return {str(name): value for name, value in values.items() if not str(name).startswith("JMSX")}


def _text_of(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _body_of(received: Received) -> bytes | None:
    """Bytes as they are, text as UTF-8, the body of a map or stream message as JSON, of others none."""
    if received.kind is Message or not received.has_body:
        return None
    body = received.body()
    if body is None or (not body and received.body_sections().startswith(_NULL_BODY)):
        # Jakarta Messaging reads a null body of bytes as an empty one; here they are apart.
        return None
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    if isinstance(body, str):
        return body.encode()
    try:
        return msgspec.json.encode(body)
    except (TypeError, msgspec.MsgspecError):
        return str(body).encode() if received.kind is not BytesMessage else None
