"""Kill instants are random, spread over the run, and repeatable."""

from itertools import pairwise
from random import Random

import pytest

from legato.demo.kills import DELAY_MAX_S, FIRST_AT, LAST_AT, plan_kills


@pytest.mark.parametrize("count", [1, 2, 7])
def test_kills_come_in_order_and_inside_the_run(count: int) -> None:
    for seed in range(200):
        kills = plan_kills(count, Random(seed))
        assert len(kills) == count
        assert all(FIRST_AT <= kill.at <= LAST_AT and 0 <= kill.delay_s <= DELAY_MAX_S for kill in kills)
        assert all(one.at < next_one.at for one, next_one in pairwise(kills))


def test_a_seed_repeats_its_kills_and_another_does_not() -> None:
    assert plan_kills(3, Random(7)) == plan_kills(3, Random(7))
    assert plan_kills(3, Random(7)) != plan_kills(3, Random(8))


def test_no_kills_may_be_asked_for() -> None:
    assert plan_kills(0, Random(1)) == []
