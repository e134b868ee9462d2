"""Format of the log: one bounded line for each message, as text or as JSON, with its time in UTC."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, Literal

from legato.quoting import SENTENCE_CHARACTERS_MAX, escaped, lines

_MARKS = ("= ", "! ", "< ", "- ", "+ ")
"""What messages begin with in the sources: the level says as much."""


class Lines(logging.Formatter):
    """Lines of text: time, level, logger, message; a traceback comes behind them, indented."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """See `logging.Formatter`."""
        return _time(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        record.message = _message(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        """See `logging.Formatter`; no line of it can be taken for another message."""
        return "\n".join(f"  {line}" for line in lines(super().formatException(ei)).split("\n"))


class JsonLines(logging.Formatter):
    """Lines of JSON with the same, and the traceback under `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record.getMessage()),
            "pid": record.process,
        }
        if record.exc_info:
            line["exception"] = lines(self.formatException(record.exc_info))
        return json.dumps(line)


def formatter(log_format: Literal["text", "json"]) -> logging.Formatter:
    """The formatter of that name."""
    return JsonLines() if log_format == "json" else Lines()


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message(message: str) -> str:
    if message.startswith(_MARKS):
        message = message[2:]
    return escaped(message, SENTENCE_CHARACTERS_MAX)
