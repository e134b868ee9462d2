"""Messages as pages show them: header, properties, and a body that is text, JSON, or bytes."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from legato.administration.exact_json import read_json, write_json
from legato.client import BytesMessage, Message, TextMessage

BODY_CHARACTERS_MAX = 100_000
SUMMARY_CHARACTERS_MAX = 200


def body_text(message: Message) -> str:
    """A body as text to read: JSON with its lines, bytes that are no text in hexadecimal digits."""
    body: Any = message.body
    if isinstance(body, bytes | bytearray):
        try:
            body = bytes(body).decode()
        except UnicodeDecodeError:
            return bytes(body[: BODY_CHARACTERS_MAX // 3]).hex(" ")
    if isinstance(body, str):
        try:
            return write_json(read_json(body), indent=2)
        except ValueError:
            return body
    if body is None:
        return ""
    try:
        return json.dumps(body, indent=2, ensure_ascii=False, default=str)
    except (ValueError, TypeError, RecursionError):
        return str(body)


def editable_body(message: Message) -> str | None:
    """A body as text to change; None if it is of no kind that can be changed here."""
    if not isinstance(message, TextMessage | BytesMessage):
        return None
    if isinstance(message, BytesMessage):
        try:
            bytes(message.body or b"").decode()
        except UnicodeDecodeError:
            return None
    text = body_text(message)
    return text if len(text) <= BODY_CHARACTERS_MAX else None


def summary(message: Message) -> dict[str, Any]:
    """A line of a list of messages."""
    text = " ".join(body_text(message)[: 4 * SUMMARY_CHARACTERS_MAX].split())
    return {
        "id": message.message_id or "",
        "type": type(message).__name__,
        "sent_us": message.timestamp * 1000,
        "priority": message.priority,
        "redelivered": message.redelivered,
        "body": text[:SUMMARY_CHARACTERS_MAX] + ("…" if len(text) > SUMMARY_CHARACTERS_MAX else ""),
    }


def shown_message(message: Message, leave_out: Collection[str] = ()) -> dict[str, Any]:
    """A message whole, but for some properties."""
    text = body_text(message)
    header = {
        "message id": message.message_id,
        "kind": type(message).__name__,
        "sent": _time(message.timestamp),
        "expires": _time(message.expiration),
        "priority": message.priority,
        "persistent": "yes" if message.delivery_mode == 2 else "no",
        "deliveries": message.delivery_count,
        "redelivered": "yes" if message.redelivered else "no",
        "correlation id": message.correlation_id,
        "type": message.type,
        "reply to": message.reply_to,
    }
    return {
        "id": message.message_id or "",
        "header": {name: str(value) for name, value in header.items() if value not in (None, "")},
        "properties": {str(name): str(value) for name, value in message.properties.items() if name not in leave_out},
        "body": text[:BODY_CHARACTERS_MAX],
        "cut": max(len(text) - BODY_CHARACTERS_MAX, 0),
    }


def _time(milliseconds: int) -> str:
    if not milliseconds:
        return ""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)
