"""The log: one line for each message, with its time, as text or as JSON; what peers call themselves forges no line, and
makes none long (SECURITY finding 19)."""

import json
import logging
import re
import sys
from datetime import datetime

import pytest

from legato.quoting import SENTENCE_CHARACTERS_MAX as MESSAGE_CHARACTERS_MAX
from legato.server.client_description import CHARACTERS_MAX, ClientDescription
from legato.server.process.log_format import JsonLines, Lines, formatter


def record(message: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("legato.opening", logging.INFO, "", 0, message, arguments, None)


def line(message: str, *arguments: object) -> str:
    return formatter("text").format(record(message, *arguments))


def told(text: str) -> str:
    """The message of a line."""
    return text.partition("legato.opening: ")[2]


def test_a_line_begins_with_its_time_level_and_logger() -> None:
    time, level, logger, message = line("= backup").split(" ")
    assert datetime.fromisoformat(time).utcoffset() is not None
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time)
    assert (level, logger, message) == ("INFO", "legato.opening:", "backup")


def test_plain_messages_are_as_they_are() -> None:
    assert told(line("< %s opened as %s", "1.2.3.4:5", "Zoë")) == "1.2.3.4:5 opened as Zoë"


@pytest.mark.parametrize("name", ["a\nE forged", "\x1b[31mred", "\u202egnp", "\x00", "\r", "\u2028"])
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_control_characters_are_shown_and_not_obeyed(name: str, log_format: str) -> None:
    shown = formatter(log_format).format(record("< %s", name))  # type: ignore[arg-type]
    assert len(shown.splitlines()) == 1 or log_format == "json"
    assert shown.isprintable() or log_format == "json"
    assert "\n" not in shown
    assert "\x1b" not in shown
    assert "\r" not in shown


@pytest.mark.parametrize("format_line", [Lines().format, JsonLines().format])
def test_a_message_has_a_bounded_length(format_line: object) -> None:
    assert callable(format_line)
    assert len(format_line(record("< %s", "x" * 1_000_000))) < MESSAGE_CHARACTERS_MAX + 200
    assert len(format_line(record("< %s", "\x1b" * 1_000_000))) < 10 * MESSAGE_CHARACTERS_MAX + 200


def test_a_line_of_json_has_everything_and_the_traceback() -> None:
    try:
        raise ValueError("what was wrong")
    except ValueError:
        failed = record("! %s", "it failed")
        failed.exc_info = sys.exc_info()
    found = json.loads(formatter("json").format(failed))
    assert found.keys() == {"time", "level", "logger", "message", "pid", "exception"}
    assert found["message"] == "it failed"
    assert "what was wrong" in found["exception"]


def test_what_a_client_says_of_itself_is_bounded_and_may_be_nonsense() -> None:
    assert str(ClientDescription.of({"product": "Legato", "version": "1.0", "hostname": "box", "pid": 7})) == (
        "host box, process 7, Legato 1.0"
    )
    assert str(ClientDescription.of({"product": 7, "hostname": None, "pid": "x"})) == ""
    assert len(ClientDescription.of({"product": "x" * 10_000}).product) == CHARACTERS_MAX
