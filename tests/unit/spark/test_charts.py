"""The numbers on axes and in tiles are round, short and true."""

import itertools

import pytest

from legato.spark.quantities import duration, human
from legato.spark.report.charts import latency_curve, latency_curves, nice_ticks, time_ticks
from legato.spark.report.departures_chart import causes_chart
from legato.spark.report.flow_charts import flows_section, stages_chart
from legato.spark.result import AuditResult, FlowsAudit, LatencyCell, LatencySummary, QueueAudit, StageAudit, Timeline


@pytest.mark.parametrize("highest", [0.3, 1, 7, 40, 99.9, 100, 12_345, 3e6])
def test_ticks_are_few_evenly_spaced_and_reach_the_highest_value(highest: float) -> None:
    ticks = nice_ticks(highest)
    assert ticks[0] == 0
    assert ticks[-2] < highest <= ticks[-1] * (1 + 1e-9)
    assert 2 <= len(ticks) <= 6
    assert {round(b - a, 9) for a, b in itertools.pairwise(ticks)} == {round(ticks[1], 9)}


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        (3, ["0", "500 ms", "1 s", "1.5 s", "2 s", "2.5 s", "3 s"]),
        (800, ["0", "2 min", "4 min", "6 min", "8 min", "10 min", "12 min"]),
        (86_400, ["0", "3 h", "6 h", "9 h", "12 h", "15 h", "18 h", "21 h", "24 h"]),
        (30 * 86_400, ["0", "7 d", "14 d", "21 d", "28 d"]),
    ],
)
def test_an_axis_of_time_has_ticks_that_are_round_on_a_clock(seconds: float, labels: list[str]) -> None:
    """It had 3.33, 6.67 and 13.3 min."""
    assert [duration(tick * 1e6) if tick else "0" for tick in time_ticks(seconds)] == labels


@pytest.mark.parametrize("years", [1, 20])
def test_a_ledger_of_years_has_few_ticks(years: int) -> None:
    assert 5 <= len(time_ticks(years * 365 * 86_400.0)) <= 9


@pytest.mark.parametrize(
    ("count", "names"),
    [
        (2, ["q2", "q1"]),
        (6, ["q6", "q5", "q4", "q3", "q2", "q1"]),
        (30, ["q30", "q29", "q28", "q27", "q26", "25 other queues"]),
    ],
)
def test_each_curve_has_a_colour_of_its_own(count: int, names: list[str]) -> None:
    """Thirty queues were thirty curves in six colours."""
    queues = [QueueAudit(number, f"q{number}", 9, 9, 0, 0, 0, 0, 0, 0) for number in range(1, count + 1)]
    cells = [LatencyCell(number, 0, 60, number) for number in range(1, count + 1)]
    result = AuditResult(9, 0, 9, 9, queues, [], [], Timeline(0, 1_000_000, [], cells))
    curves = latency_curves(result)
    assert [curve.name for curve in curves] == names
    assert len({curve.colour for curve in curves}) == len(curves)
    assert sum(sum(curve.messages.values()) for curve in curves) == count * (count + 1) // 2
    assert latency_curve(result).count("<title>") == len(names)


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
