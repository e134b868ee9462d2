"""The arithmetic that judges every benchmark."""

import pytest
from bench.figures import Goal, Pair, interleave, percentile, spread, summary
from hypothesis import given
from hypothesis import strategies as st

figures = st.lists(st.floats(min_value=0.001, max_value=1e9), min_size=1)


def test_the_median_of_an_odd_number_is_the_middle_one_whatever_the_order() -> None:
    assert spread([9.0, 1.0, 4.0]).median == 4.0


def test_the_median_of_an_even_number_is_between_the_middle_two() -> None:
    assert spread([10.0, 1.0, 4.0, 2.0]).median == 3.0


@given(figures)
def test_a_spread_encloses_its_median(values: list[float]) -> None:
    found = spread(values)
    assert found.minimum == min(values)
    assert found.maximum == max(values)
    assert found.minimum <= found.median <= found.maximum


def test_nothing_has_no_spread() -> None:
    with pytest.raises(ValueError, match="no values"):
        spread([])


def test_a_percentile_is_a_value_that_was_measured() -> None:
    hundred = [float(n) for n in range(100, 0, -1)]
    assert percentile(hundred, 50) == 50.0
    assert percentile(hundred, 99) == 99.0
    assert percentile(hundred, 100) == 100.0
    assert percentile([7.0], 1) == 7.0


def test_with_few_values_a_high_percentile_is_the_worst_of_them() -> None:
    assert percentile([float(n) for n in range(1, 16)], 99) == 15.0


@given(figures, st.floats(min_value=0.1, max_value=100))
def test_at_least_that_share_of_the_values_does_not_exceed_a_percentile(values: list[float], percent: float) -> None:
    bound = percentile(values, percent)
    assert sum(value <= bound for value in values) >= len(values) * percent / 100 - 1e-9
    assert sum(value < bound for value in values) < len(values) * percent / 100 + 1e-9


@pytest.mark.parametrize("percent", [0, -1, 101])
def test_a_percentile_outside_its_range_is_refused(percent: float) -> None:
    with pytest.raises(ValueError, match="percentile"):
        percentile([1.0], percent)


def test_the_sides_alternate_and_the_subject_runs_first() -> None:
    order: list[str] = []

    def run(side: str, figure: float) -> float:
        order.append(side)
        return figure

    pairs = interleave(lambda: run("subject", 3.0), lambda: run("peer", 2.0), 3)
    assert order == ["subject", "peer"] * 3
    assert [pair.ratio for pair in pairs] == [1.5, 1.5, 1.5]


def test_no_pairs_is_refused() -> None:
    with pytest.raises(ValueError, match="pair"):
        interleave(lambda: 1.0, lambda: 1.0, 0)


def test_the_ratio_judged_is_the_median_of_the_pairs_ratios() -> None:
    """A slow minute of the machine slows both sides of a pair: the ratio of medians would mix minutes."""
    pairs = [Pair(60.0, 100.0), Pair(6.0, 10.0), Pair(65.0, 100.0)]
    found = summary(pairs, Goal(0.6, at_least=True))
    assert found["ratio"] == found["median"] == 0.6
    assert (found["min"], found["max"]) == (0.6, 0.65)
    assert (found["figure"], found["peer"]) == (60.0, 100.0)


@pytest.mark.parametrize(
    ("goal", "ratio", "met"),
    [
        (Goal(0.6, at_least=True), 0.6, True),
        (Goal(0.6, at_least=True), 0.599, False),
        (Goal(1.2, at_least=False), 1.2, True),
        (Goal(1.2, at_least=False), 1.201, False),
    ],
)
def test_a_goal_includes_its_bound(goal: Goal, ratio: float, met: bool) -> None:
    assert goal.met(ratio) is met


def test_without_a_goal_nothing_is_met_or_missed() -> None:
    assert summary([Pair(1.0, 2.0)], None)["met"] is None
