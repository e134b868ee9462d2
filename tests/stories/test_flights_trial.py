"""The verdict on `examples/flights_pipeline.py` tells every way in which something is not there exactly once."""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def truth(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield importlib.import_module("flights_trial.truth")
    for name in [name for name in sys.modules if name.startswith("flights_trial")]:
        del sys.modules[name]


def table_of(truth: Any, count: int = 3_000) -> dict[Any, Any]:
    flights = importlib.import_module("flights_trial.sending").flights_in_order(count)
    table: dict[Any, Any] = truth.true_delays(flights)
    return table


def test_the_truth_is_not_at_fault(truth: Any) -> None:
    table = table_of(truth)
    alerts = list(truth.true_alerts(table))
    verdict = truth.judge(table, list(table.items()), alerts)
    assert (verdict.flights, verdict.faults) == (3_000, [])
    assert alerts


def test_a_flight_that_is_lost_or_counted_twice_is_told(truth: Any) -> None:
    table = table_of(truth)
    alerts = list(truth.true_alerts(table))
    window, delays = next(iter(table.items()))
    for wrong in (delays._replace(flights=delays.flights - 1), delays._replace(delay_min=delays.delay_min + 7)):
        [fault] = truth.judge(table, list({**table, window: wrong}.items()), alerts).faults
        assert str(window) in fault


def test_rows_and_alerts_that_are_missing_or_there_twice_are_told(truth: Any) -> None:
    table = table_of(truth)
    alerts = list(truth.true_alerts(table))
    rows = list(table.items())
    faults = truth.judge(table, [*rows[1:], rows[1]], [*alerts[1:], alerts[1]]).faults
    assert [fault.rpartition(": ")[2] for fault in faults] == [
        "is in the table more than once",
        "is missing in the table",
        "has more than one alert",
        "has no alert",
    ]
    on_time = next(window for window in table if window not in alerts)
    assert "is not that late" in truth.judge(table, rows, [*alerts, on_time]).faults[0]


def test_the_page_shows_the_pipeline_as_it_is() -> None:
    page = (EXAMPLES.parent / "docs" / "howto" / "pipeline.md").read_text()
    pipelines = "".join((EXAMPLES / name).read_text() for name in ("flights_pipeline.py", "orders_pipeline.py"))
    shown = re.findall(r"^```py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert shown
    assert [block for block in shown if block not in pipelines] == []
