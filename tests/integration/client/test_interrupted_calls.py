"""Blocking calls that a signal handler interrupts by raising; `tests.stress` has the commands that do more of it."""

from __future__ import annotations

import pytest

from legato.client import AcknowledgeMode
from tests.stress import interrupting, signalling
from tests.support.broker import BrokerPair

EVERY = 53
"""Each story is told for so few of its lines here; all stories together begin at all kinds of lines."""

CASES = [(name, mode) for name, (_, modes) in interrupting.STORIES.items() for mode in modes]


@pytest.mark.parametrize(
    ("name", "mode", "begin"),
    [pytest.param(*case, 1 + (7 * at) % EVERY, id=f"{case[0]}, {case[1].name}") for at, case in enumerate(CASES)],
)
def test_a_call_interrupted_at_any_line_loses_nothing_and_hangs_nobody(
    calm_pair: BrokerPair, name: str, mode: AcknowledgeMode, begin: int
) -> None:
    told, _ = interrupting.tell_each(calm_pair.url, name, mode, every=EVERY, begin=begin)
    assert told, "the call has fewer lines than thought"


# Python ignores, and tells of, what is raised in the callback of a weak reference.
@pytest.mark.filterwarnings("ignore:.*Exception ignored in.*:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "mode",
    [
        AcknowledgeMode.AUTO,
        AcknowledgeMode.DUPS_OK,
        AcknowledgeMode.CLIENT,
        AcknowledgeMode.SESSION_TRANSACTED,
    ],
)
def test_calls_interrupted_at_random_instants_lose_nothing_and_hang_nobody(
    calm_pair: BrokerPair, mode: AcknowledgeMode
) -> None:
    wrong, alarm = signalling.stress(calm_pair.url, mode, messages=1000, interruptions=50)
    assert wrong == []
    assert alarm.inside > 0
