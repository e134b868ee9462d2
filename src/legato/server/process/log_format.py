"""Format of the log: one bounded line for each message, as text or as JSON, with its time in UTC."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

MESSAGE_CHARACTERS_MAX = 1000
_MARKS = ("= ", "! ", "< ", "- ", "+ ")
"""What messages begin with in the sources: the level says as much."""


class Lines(logging.Formatter):
    """Lines of text: time, level, logger, message; a traceback comes behind them as it is."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """See `logging.Formatter`."""
        return _time(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        message = _bounded(record.message)
        if not message.isprintable():
            message = "".join(
                character if character.isprintable() else character.encode("unicode_escape").decode()
                for character in message
            )
        record.message = message
        return super().formatMessage(record)


class JsonLines(logging.Formatter):
    """Lines of JSON with the same, and the traceback under `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": _bounded(record.getMessage()),
            "pid": record.process,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def formatter(log_format: Literal["text", "json"]) -> logging.Formatter:
    """The formatter of that name."""
    return JsonLines() if log_format == "json" else Lines()


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _bounded(message: str) -> str:
    if message.startswith(_MARKS):
        message = message[2:]
    if len(message) > MESSAGE_CHARACTERS_MAX:
        more = len(message) - MESSAGE_CHARACTERS_MAX
        message = f"{message[:MESSAGE_CHARACTERS_MAX]} ... and {more} characters more"
    return message
