"""What peers call themselves forges no line of the log, and makes none long (SECURITY finding 19)."""

import logging

import pytest

from legato.server.process.run import MESSAGE_CHARACTERS_MAX, Lines


def line(message: str, *arguments: object) -> str:
    record = logging.LogRecord("legato", logging.INFO, "", 0, message, arguments, None)
    return Lines("%(levelname).1s %(message)s").format(record)


def test_plain_messages_are_as_they_are() -> None:
    assert line("< %s opened as %s", "1.2.3.4:5", "Zoë") == "I < 1.2.3.4:5 opened as Zoë"


@pytest.mark.parametrize("name", ["a\nE forged", "\x1b[31mred", "\u202egnp", "\x00", "\r", "\u2028"])
def test_control_characters_are_shown_and_not_obeyed(name: str) -> None:
    told = line("< %s", name)
    assert told.isprintable()
    assert len(told.splitlines()) == 1


def test_a_message_has_a_bounded_length() -> None:
    assert len(line("< %s", "x" * 1_000_000)) < MESSAGE_CHARACTERS_MAX + 100
    assert len(line("< %s", "\x1b" * 1_000_000)) < 10 * MESSAGE_CHARACTERS_MAX + 100
