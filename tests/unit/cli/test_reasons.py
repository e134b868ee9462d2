"""What a dead letter died of, told from the text that its receiver sent."""

import traceback

import pytest

from legato.administration.dead_letters import exception_of


def told(error: BaseException) -> str:
    """What a listener's client sends of an exception."""
    try:
        raise error
    except BaseException as raised:
        return "".join(traceback.format_exception(raised))


@pytest.mark.parametrize("cut", [0, 10, 30], ids="cut at {}".format)
def test_the_reason_is_the_exception_not_the_first_line_of_its_traceback(cut: int) -> None:
    text = told(ValueError("no price"))
    assert text.startswith("Traceback")
    assert exception_of(text[cut:]) == "ValueError: no price"


def test_the_last_of_several_exceptions_is_the_reason() -> None:
    error = KeyError("customer")
    error.__cause__ = ValueError("no such row")
    assert exception_of(told(error)) == "KeyError: 'customer'"


def test_a_message_of_several_lines_stays_whole() -> None:
    assert exception_of(told(ValueError("first\n  second"))) == "ValueError: first\n  second"


@pytest.mark.parametrize("text", ["", "maximum deliveries", "ValueError: no\n  at line 3", '  File "x.py", line 1'])
def test_what_is_no_traceback_stays_as_it_is(text: str) -> None:
    assert exception_of(text) == text
