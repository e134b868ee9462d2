"""The examples of the reference are true."""

from pathlib import Path

import pytest

from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, Properties, encode_message
from legato.amqp.codec.selection import matcher
from legato.amqp.codec.types import Int
from legato.errors import InvalidSelectorError
from legato.selectors import compile_selector
from legato.selectors.syntax import CHARACTERS_MAX, DEPTH_MAX

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "selectors.md").read_text("utf-8")
MESSAGE = encode_message(
    header=Header(durable=True),
    properties=Properties(message_id="ID:1", subject="car"),
    application_properties={
        "colour": "red",
        "weight": Int(3),
        "price": 9.5,
        "urgent": True,
        "phone": "12993",
        "orders": "2",
    },
    body=DataBody(b"x"),
)
EXAMPLES = [line.split("|")[1:3] for line in PAGE.split("## Examples")[1].splitlines() if line.startswith("| `")]


@pytest.mark.parametrize(("selector", "answer"), EXAMPLES)
def test_an_example_matches_as_it_says(selector: str, answer: str) -> None:
    assert matcher(selector.strip(" `"))(MESSAGE) is (answer.strip() == "yes")


def test_there_are_examples_of_both_answers() -> None:
    assert {answer.strip() for _, answer in EXAMPLES} == {"yes", "no"}


def test_the_error_shown_is_the_one_raised() -> None:
    with pytest.raises(InvalidSelectorError) as caught:
        compile_selector("colour = AND weight > 2")
    assert str(caught.value) in PAGE


def test_the_limits_are_those_that_hold() -> None:
    assert f"at most {CHARACTERS_MAX} characters, and at most {DEPTH_MAX} operations" in PAGE
