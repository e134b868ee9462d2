"""What the reports of a run add up to."""

import pytest

from legato.demo.progress import RunState
from legato.demo.reports import Collected, FailedOver, Processed, Sent, decode_report
from legato.processes.reports import encode_report


def test_totals_of_several_processes_add_up_and_later_reports_replace_earlier_ones() -> None:
    state = RunState(flights=1000)
    state.take("producer-1", Sent(confirmed=10))
    state.take("producer-2", Sent(confirmed=5))
    state.take("producer-1", Sent(confirmed=30))
    state.take("worker-1", Processed(flights=20))
    state.take("worker-2", Processed(flights=5))
    state.take("collector", Collected(records=7, seen_again=1))
    assert (state.sent, state.processed, state.collected) == (35, 25, 7)
    assert state.progress == pytest.approx((35 + 25) / 2000)


def test_a_takeover_shows_the_longest_gap_that_a_client_saw() -> None:
    state = RunState(flights=1)
    for name, gap_ms in (("worker-1", 40.0), ("worker-2", 90.0), ("collector", 60.0)):
        state.take(name, FailedOver(gap_ms=gap_ms, epoch=2))
    assert state.takeovers[2].gap_ms == 90.0
    assert state.takeovers[2].clients == 3


def test_the_rate_counts_the_last_seconds_only() -> None:
    state = RunState(flights=10_000)
    assert state.rate == 0.0
    for second, flights in enumerate((0, 5000, 5100, 5200, 5300, 5400)):
        state.take("worker-1", Processed(flights=flights))
        state.sample(float(second))
    assert state.rate == pytest.approx(100.0)


@pytest.mark.parametrize("report", [Sent(confirmed=3), FailedOver(gap_ms=1.5, epoch=2), Processed(flights=1)])
def test_a_report_survives_its_line(report: Sent) -> None:
    assert decode_report(encode_report(report)) == report
