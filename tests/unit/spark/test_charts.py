"""The numbers on axes and in tiles are round, short and true."""

import itertools

import pytest

from legato.spark.quantities import duration, human
from legato.spark.report.charts import nice_ticks
from legato.spark.report.departures_chart import causes_chart
from legato.spark.report.flow_charts import flows_section, stages_chart
from legato.spark.result import AuditResult, FlowsAudit, LatencySummary, QueueAudit, StageAudit, Timeline


@pytest.mark.parametrize("highest", [0.3, 1, 7, 40, 99.9, 100, 12_345, 3e6])
def test_ticks_are_few_evenly_spaced_and_reach_the_highest_value(highest: float) -> None:
    ticks = nice_ticks(highest)
    assert ticks[0] == 0
    assert ticks[-2] < highest <= ticks[-1] * (1 + 1e-9)
    assert 2 <= len(ticks) <= 6
    assert {round(b - a, 9) for a, b in itertools.pairwise(ticks)} == {round(ticks[1], 9)}


def test_an_axis_of_nothing_still_has_ticks() -> None:
    assert nice_ticks(0) == [0, 1]


@pytest.mark.parametrize(
    ("us", "text"),
    [(0, "0 µs"), (999, "999 µs"), (1500, "1.5 ms"), (253_000, "253 ms"), (1_180_000, "1.18 s"), (6e8, "10 min")],
)
def test_a_duration_is_told_in_the_unit_that_suits_it(us: float, text: str) -> None:
    assert duration(us) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.5, "0.5"), (12, "12"), (9_999, "9,999"), (20_100, "20.1k"), (1.24e6, "1.24M")]
)
def test_a_count_is_short_enough_for_a_tile(value: float, text: str) -> None:
    assert human(value) == text


def test_a_bar_for_each_queue_and_cause_the_longest_first() -> None:
    """Dead letters by cause are a picture too."""
    queues = [
        QueueAudit(1, "orders", 9, 0, 0, 5, 0, 0, 0, 0, dead_letters={"rejected": 5}),
        QueueAudit(2, "<b>", 9, 0, 0, 0, 0, 0, 0, 0, moves={"expired": 7}),
    ]
    page = causes_chart(AuditResult(0, 0, 0, 0, queues, [], [], Timeline(0, 1)))
    assert page.index("&lt;b&gt; · expired: 7") < page.index("orders · rejected: 5")
    assert page.count("<rect") == 2
    assert causes_chart(AuditResult(0, 0, 0, 0, [], [], [], Timeline(0, 1))) == ""


def test_the_slowest_stage_comes_first_with_a_bar_from_the_median_to_the_99th_percentile() -> None:
    quick = StageAudit("quick", 5, 5, 0, 0, [LatencySummary("queueing", 5, 0.1, 0.5, 1, 2)])
    slow = StageAudit("a <slow> one", 5, 5, 0, 0, [LatencySummary("processing", 5, 10, 50, 100, 200)])
    chart = stages_chart(FlowsAudit([quick, slow], []))
    assert chart.index("a &lt;slow&gt; one") < chart.index("quick")
    assert "at the service: p50 10 ms, p95 50 ms, p99 100 ms, 5 calls" in chart
    assert stages_chart(FlowsAudit([StageAudit("never called", 0, 0, 0, 0)], [])) == ""


def test_a_page_without_flows_does_not_speak_of_them() -> None:
    assert flows_section(None) == ""
