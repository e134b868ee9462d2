"""The log line of what ends a broker, for logs that are lines of JSON: whoever collects them would lose a plain one."""

from __future__ import annotations

import logging
import os
import tomllib
from pathlib import Path

from legato.cli.failures import EXIT_FAILED, explain
from legato.cli.output import say
from legato.server.process.log_format import JsonLines

VARIABLE = "LEGATO_SERVER_LOG_FORMAT"


def wants_json(file: Path | None) -> bool:
    """Whether the log is lines of JSON, also if the configuration has mistakes elsewhere.

    Args:
        file: the configuration; None if there is none.
    """
    if (variable := os.environ.get(VARIABLE)) is not None:
        return variable == "json"
    try:
        section = {} if file is None else tomllib.loads(file.read_text(encoding="utf-8")).get("server")
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(section, dict) and section.get("log_format") == "json"


def log_fatal(error: Exception) -> int:
    """Say in a line of JSON what ends the broker; returns the exit code."""
    explanation = explain(error)
    message, code = explanation or ("an unforeseen error ends the broker", EXIT_FAILED)
    logger = logging.getLogger("legato")
    exc_info = None if explanation else (type(error), error, error.__traceback__)
    record = logger.makeRecord(logger.name, logging.CRITICAL, "", 0, "%s", (message,), exc_info)
    say(JsonLines().format(record), err=True)
    return code
