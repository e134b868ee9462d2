"""The steady clock: no jump takes it forward, and no pause."""

import pytest

from legato.core.steady import STEP_MAX_US, SteadyClock

TICK_US = 100_000
DAY_US = 86_400_000_000
WALL_US = 1_700_000_000_000_000


def test_it_advances_by_what_lies_between_ticks() -> None:
    clock = SteadyClock(WALL_US)
    for tick in range(11):
        clock.tick(WALL_US + 5 * DAY_US + tick * TICK_US)
    assert clock.now_us == WALL_US + 10 * TICK_US


@pytest.mark.parametrize("jump_us", [25 * 3_600_000_000, 8 * DAY_US, 400 * DAY_US])
def test_a_jump_or_a_pause_counts_as_one_step(jump_us: int) -> None:
    clock = SteadyClock(0)
    clock.tick(WALL_US)
    clock.tick(WALL_US + jump_us)
    clock.tick(WALL_US + jump_us + TICK_US)
    assert clock.now_us == STEP_MAX_US + TICK_US


@pytest.mark.parametrize("jump_us", [1, 25 * 3_600_000_000, 8 * DAY_US])
def test_it_stands_still_while_the_wall_clock_goes_back_and_goes_on_from_there(jump_us: int) -> None:
    clock = SteadyClock(0)
    for wall_us in (WALL_US, WALL_US - jump_us, WALL_US - jump_us + TICK_US):
        clock.tick(wall_us)
    assert clock.now_us == TICK_US


def test_it_goes_on_where_an_epoch_left_it() -> None:
    """The time in which no broker served does not count: nobody could have come back in it."""
    clock = SteadyClock(42)
    clock.tick(WALL_US)
    assert clock.now_us == 42


def test_it_can_be_read_between_two_ticks() -> None:
    clock = SteadyClock(42)
    assert clock.at(WALL_US) == 42
    clock.tick(WALL_US)
    assert [clock.at(WALL_US + us) for us in (-1, 0, 7, DAY_US)] == [42, 42, 49, 42 + STEP_MAX_US]
    assert clock.now_us == 42
