"""Paths into the body of a dead letter, as somebody enters them."""

import pytest

from legato.administration.dead_letter_editor import with_changes
from legato.errors import JMSError


def test_a_number_leads_into_a_list() -> None:
    assert with_changes({"lines": [1, 2]}, ["lines.1=3"]) == {"lines": [1, 3]}


@pytest.mark.parametrize("number", ["2", "-1", "²", "9" * 5000])
def test_what_is_no_number_of_a_place_in_the_list_leads_nowhere(number: str) -> None:
    with pytest.raises(JMSError, match="leads nowhere"):
        with_changes({"lines": [1, 2]}, [f"lines.{number}=3"])
