"""The verdict of a drill: one complaint of anybody is enough."""

import json
from pathlib import Path

import pytest

from legato.drill.charts import clients_chart, gaps_chart, rates, takeovers_chart
from legato.drill.checker import Finding
from legato.drill.history import HistoryFinding
from legato.drill.outcome import outcome_of, verdict_line, write_json
from legato.drill.page import write_page
from legato.drill.pair import EpochSpan
from legato.drill.result import Gap, RunResult, Struck

CLEAN = Finding("orders", sent=10, received=10)


def test_a_drill_in_which_all_is_well_passes() -> None:
    outcome = outcome_of(7, RunResult(), [CLEAN], None, HistoryFinding(stored=10, consumed=10))
    assert outcome.passes
    assert outcome.audited == "log"
    assert verdict_line(outcome).startswith("✓")


@pytest.mark.parametrize(
    ("result", "finding", "history"),
    [
        (RunResult(complaints=["broker-a ended by itself"]), CLEAN, HistoryFinding()),
        (RunResult(), Finding("orders", 10, 9, lost=1, examples=["lost: message 3"]), HistoryFinding()),
        (RunResult(), CLEAN, HistoryFinding(lost=1, complaints=["2 messages wait, and 1 does"])),
        (RunResult(), Finding("orders"), HistoryFinding()),
        (RunResult(), Finding("orders", 10, 9, died=1, examples=["died: message 3"]), HistoryFinding()),
    ],
    ids=["a broker ended", "a client misses a message", "the log does not add up", "nothing came", "a message died"],
)
def test_one_complaint_is_enough(result: RunResult, finding: Finding, history: HistoryFinding) -> None:
    outcome = outcome_of(7, result, [finding], None, history)
    assert not outcome.passes
    assert verdict_line(outcome).startswith("✗")


def test_every_wrong_finding_has_an_example_that_is_a_complaint(tmp_path: Path) -> None:
    outcome = outcome_of(7, RunResult(), [Finding("orders", 10, 9, lost=1, examples=["lost: message 3"])], None, None)
    assert outcome.complaints == ["lost: message 3"]
    write_json(outcome, tmp_path / "result.json")
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["faults"], result["lost"], result["duplicated"], result["wrong_flags"]) == (0, 1, 0, 0)


def test_the_page_of_a_drill_that_failed_does_not_say_that_all_is_well(tmp_path: Path) -> None:
    result = RunResult(strikes=[Struck("kill", 1.0, 2.0)], seconds=10.0, complaints=["<b>broken</b>"])
    outcome = outcome_of(7, result, [CLEAN], None, None)
    write_page(tmp_path / "report.html", outcome, result, None)
    page = (tmp_path / "report.html").read_text()
    assert "Every message is accounted for" not in page
    assert "&lt;b&gt;broken&lt;/b&gt;" in page
    assert "kill" in page


def test_rates_are_differences_of_totals_a_second() -> None:
    stored, seen = rates([(0.2, 5, 0), (0.9, 10, 4), (1.5, 30, 30)], 2.0)
    assert stored == [10, 20, 0]
    assert seen == [4, 26, 0]


def test_faults_are_marked_in_the_picture() -> None:
    chart = clients_chart(RunResult(strikes=[Struck("full-disk", 1.0, 2.0)], samples=[(0.5, 9, 9)], seconds=5.0))
    assert "<title>full-disk, after 1.0 s, for 2.0 s</title>" in chart


def test_a_gap_is_put_down_to_the_fault_that_it_began_with() -> None:
    result = RunResult(
        strikes=[Struck("kill", 1.0, 2.0, kind="kill"), Struck("cut", 8.0, 1.0, kind="cut")],
        gaps=[Gap("a", 3.0, 1500.0, 2), Gap("b", 9.5, 200.0, 2), Gap("a", 0.1, 50.0, 1)],
    )
    outcome = outcome_of(7, result, [CLEAN], None, None)
    assert outcome.longest_gaps_ms == {"kill": 1500.0, "cut": 200.0}
    assert outcome.longest_gap_ms == 1500.0


def test_every_gap_and_every_epoch_is_in_its_picture() -> None:
    result = RunResult(
        seconds=10.0,
        gaps=[Gap("a", 3.0, 1500.0, 2), Gap("b", 9.5, 200.0, 2)],
        epochs=[EpochSpan("broker-a", 1, -1.0, 3.0), EpochSpan("broker-b", 2, 3.0, None)],
    )
    assert "<title>a: 1.5 s until 3.0 s</title>" in gaps_chart(result)
    assert "<title>broker-b, epoch 2: 7.0 s</title>" in takeovers_chart(result)
    result.gaps *= 2_000
    assert len(gaps_chart(result)) < 130_000
