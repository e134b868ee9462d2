"""A check that cannot fail proves nothing: the simulator finds what was broken on purpose."""

import inspect

import pytest
from simulator.faults import find, main
from simulator.planted import FAULTS, Fault

QUICK = (
    "confirm-before-commit",
    "is-never-a-duplicate",
    "without-header",
    "fail-twice",
    "acknowledge-nothing",
    "give-up-and-publish",
    "always-committed",
    "resend-as-new",
    "nothing-due",
    "last-back-first",
)
"""Those that one of the first few seeds finds."""

LATER = ("takers-but-one", "window-before-what-came-back")
"""Those for which it takes more seeds."""

RARE = {"forget-the-oldest-first": 301, "window-before-what-came-back": 401}
"""Those that few of many seeds find, with the first of a hundred of which one does."""


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, id=fault.title, marks=pytest.mark.slow if fault.title in (*LATER, *RARE) else ())
        for fault in FAULTS
        if fault.title in (*QUICK, *LATER, *RARE)
    ],
)
def test_a_planted_fault_is_found_by_one_of_the_first_seeds(fault: Fault) -> None:
    first = RARE.get(fault.title, 1)
    assert find(fault, range(first, first + 100)) is not None


def test_a_fault_that_nothing_finds_makes_the_command_fail(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["always-committed", "--seeds", "0"]) == 1
    assert "0 of 1 planted faults found" in capsys.readouterr().out


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.title)
def test_a_planted_fault_can_be_called_as_what_it_replaces(fault: Fault) -> None:
    """Else it is found because its call is an error, whatever the simulator looks at."""
    replaced = inspect.getattr_static(fault.owner, fault.name)
    function = getattr(replaced, "fget", None) or getattr(replaced, "__func__", replaced)
    called = inspect.signature(inspect.unwrap(function))
    planted = inspect.signature(fault.replacement)
    positional = [each.name for each in called.parameters.values() if each.kind is not each.KEYWORD_ONLY]
    named = [each.name for each in called.parameters.values() if each.kind is each.KEYWORD_ONLY]
    planted.bind(*positional, **dict.fromkeys(named))
