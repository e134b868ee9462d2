"""The checks of an audit as the reference shows them, and as they are told of."""

import string

import pytest
from tools.audit_checks_page import PAGE, page

from legato.spark.checks.catalogue import CHECKS
from legato.spark.checks.check import FRAMES, Check, check


def test_the_page_of_checks_is_what_the_tool_writes() -> None:
    assert PAGE.read_text() == page(), "make audit-checks"


def test_checks_have_names_of_their_own_and_ask_frames_that_there_are() -> None:
    assert len({each.name for each in CHECKS}) == len(CHECKS)
    assert {name for each in CHECKS for name in (each.frame, *each.others)} <= FRAMES.keys()


@pytest.mark.parametrize("each", CHECKS, ids=lambda each: each.name)
def test_each_wording_can_be_filled_in(each: Check) -> None:
    names = [name for text in each.wording for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    assert all(name.isidentifier() for name in names)


def test_a_function_that_asks_a_frame_that_there_is_not_is_no_check() -> None:
    with pytest.raises(AssertionError, match="letters"):
        check("x", of="facts", holds="", one="", many="", each="")(lambda facts, letters: facts)
