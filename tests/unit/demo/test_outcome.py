"""A run holds only if every number does."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from legato.demo.outcome import Outcome, TakeoverGap, write_json

GOOD: dict[str, Any] = {
    "sent": 100,
    "consumed": 100,
    "forwarded": 100,
    "lost": 0,
    "duplicated": 0,
    "dead_lettered": 0,
    "totals_equal": True,
    "database_equal": True,
    "takeovers": [TakeoverGap(2, 31.5)],
    "msgs_per_s": 1000.0,
    "asked_for": 100,
    "kills": 1,
    "seed": 7,
}


def test_a_perfect_run_holds() -> None:
    assert Outcome(**GOOD).holds


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sent", 99),
        ("consumed", 99),
        ("forwarded", 101),
        ("lost", 1),
        ("duplicated", 1),
        ("dead_lettered", 1),
        ("totals_equal", False),
        ("database_equal", False),
        ("takeovers", []),
    ],
)
def test_one_wrong_number_is_enough(name: str, value: object) -> None:
    outcome = Outcome(**(GOOD | {name: value}))
    assert not outcome.holds
    assert len(outcome.complaints()) == 1


def test_the_json_has_the_names_that_scripts_rely_on(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "result.json"
    write_json(Outcome(**GOOD), file)
    written = msgspec.json.decode(file.read_bytes())
    assert written["takeovers"] == [{"epoch": 2, "gap_ms": 31.5}]
    names = {"sent", "consumed", "forwarded", "lost", "duplicated", "dead_lettered", "totals_equal", "msgs_per_s"}
    names |= {"database_equal"}
    assert names <= written.keys()
