"""Places of messages by numbers, as somebody enters them."""

import pytest

from legato.spark.auditor.story_words import named_by_numbers


def test_a_place_is_named_by_two_numbers() -> None:
    assert named_by_numbers("12/345") == {(12, 345)}


@pytest.mark.parametrize(
    "text", ["12", "/1", "1/", "a/1", "1/²", "1/" + "9" * 19, "1/" + "9" * 5000, "9" * 5000 + "/1"]
)
def test_what_is_no_number_of_the_ledgers_names_no_place(text: str) -> None:
    assert named_by_numbers(text) == set()
