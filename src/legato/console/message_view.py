"""Messages as pages show them: header, properties, and a body that is text, JSON, or bytes."""

from __future__ import annotations

import codecs
import json
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from legato.administration.exact_json import read_json, write_json
from legato.client import BytesMessage, Message, TextMessage

BODY_CHARACTERS_MAX = 100_000
BYTES_READ_MAX = 1 << 20
"""Of a body of bytes, which may be a large one in a file."""
JSON_CHARACTERS_MAX = 4 * BODY_CHARACTERS_MAX
"""A longer text is shown as it is: read as JSON it may take sixty times its memory."""
SUMMARY_CHARACTERS_MAX = 200
SUMMARY_JSON_CHARACTERS_MAX = 10_000


def body_text(message: Message, json_max: int = JSON_CHARACTERS_MAX) -> tuple[str, int]:
    """A body as text to read, and how much of it is left out: JSON with its lines, bytes that are no text in
    hexadecimal digits.

    Args:
        json_max: a longer text is not read as JSON.
    """
    if isinstance(message, BytesMessage):
        with message.open() as file:
            begin = file.read(BYTES_READ_MAX)
        left = message.body_length - len(begin)
        try:
            # Without the rest of a character that was cut.
            text = codecs.getincrementaldecoder("utf-8")().decode(begin, final=not left)
        except UnicodeDecodeError:
            shown = begin[: BODY_CHARACTERS_MAX // 3]
            return shown.hex(" "), left + len(begin) - len(shown)
        return (text, left) if left else (_read(text, json_max), 0)
    if (large := large_body(message)) is not None:
        return "", large
    body: Any = message.body
    if isinstance(body, str):
        return _read(body, json_max), 0
    if body is None:
        return "", 0
    try:
        return json.dumps(body, indent=2, ensure_ascii=False, default=str), 0
    except (ValueError, TypeError, RecursionError):
        return str(body), 0


def large_body(message: Message) -> int | None:
    """The bytes of a body that is in a file, if it is."""
    source = message._source
    region = None if source is None else source.stream
    return None if region is None else region.size


def _read(text: str, json_max: int) -> str:
    """A text, with the lines of JSON if it is such."""
    if len(text) > json_max:
        return text
    try:
        return write_json(read_json(text), indent=2)
    except ValueError:
        return text


def editable_body(message: Message) -> str | None:
    """A body as text to change; None if it is of no kind that can be changed here."""
    if not isinstance(message, TextMessage | BytesMessage):
        return None
    if isinstance(message, BytesMessage):
        if message.body_length > BYTES_READ_MAX:
            return None
        try:
            bytes(message.body or b"").decode()
        except UnicodeDecodeError:
            return None
    text, left = body_text(message)
    return text if len(text) <= BODY_CHARACTERS_MAX and not left else None


def summary(message: Message) -> dict[str, Any]:
    """A line of a list of messages."""
    body, left = body_text(message, SUMMARY_JSON_CHARACTERS_MAX)
    text = " ".join(body[: 4 * SUMMARY_CHARACTERS_MAX].split())
    return {
        "id": message.message_id or "",
        "type": type(message).__name__,
        "sent_us": message.timestamp * 1000,
        "priority": message.priority,
        "redelivered": message.redelivered,
        "body": text[:SUMMARY_CHARACTERS_MAX] + ("…" if left or len(text) > SUMMARY_CHARACTERS_MAX else ""),
    }


def shown_message(message: Message, leave_out: Collection[str] = ()) -> dict[str, Any]:
    """A message whole, but for some properties."""
    text, left = body_text(message)
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
        "cut": max(len(text) - BODY_CHARACTERS_MAX, 0) + left,
    }


def _time(milliseconds: int) -> str:
    if not milliseconds:
        return ""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)
