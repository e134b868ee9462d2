"""Promises 1 to 7 under virtual time: seeds that once found something, and a few that are as good as any."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import simulator
from simulator.plan import ADMINISTRATOR, FILLING_KIND, LATER_KINDS, TRANSACTING_KIND, Plan, draw
from simulator.run import simulate

SEEDS_FILE = Path(simulator.__file__).with_name("seeds.txt")


def kept_seeds(file: Path) -> list[tuple[int, int | None, int]]:
    """Seed, steps and edition of its plan, of each line of a file; None for the steps the seed draws."""
    lines = [line.partition("#")[0].split() for line in file.read_text().splitlines()]
    return [(int(line[0]), None if line[1] == "-" else int(line[1]), int(line[2])) for line in lines if line]


def one_of(count: int, cases: Iterable[Any]) -> list[Any]:
    """All cases; all but each `count`th are for `make test-full` only."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow if number % count else ())
        for number, case in enumerate(cases)
    ]


@pytest.mark.parametrize(("seed", "steps", "edition"), one_of(4, kept_seeds(SEEDS_FILE)))
def test_a_seed_that_once_found_something_finds_nothing_now(seed: int, steps: int | None, edition: int) -> None:
    assert simulate(seed, steps, edition=edition).violation == ""


def _differ(one: Plan, other: Plan, name: str) -> bool:
    return bool(getattr(one, name) != getattr(other, name))


def test_what_came_later_changes_no_run_of_a_former_plan() -> None:
    """Those seeds stand for what they found."""
    for seed in range(1, 400):
        plan, former, second = draw(seed, edition=4), draw(seed, edition=1), draw(seed, edition=2)
        newest = draw(seed)
        newer = {"kinds", "contracts", "large", "links_end", "deletes", "uploads"}
        assert [name for name in plan.__struct_fields__ if name not in newer and _differ(plan, newest, name)] == []
        assert newest.kinds[: len(plan.kinds)] == plan.kinds
        assert newest.contracts[: len(plan.contracts)] == plan.contracts
        assert set(newest.kinds[len(plan.kinds) :]) <= {FILLING_KIND, TRANSACTING_KIND, ADMINISTRATOR}
        assert newest.large >= plan.large
        assert not any([plan.links_end, plan.deletes, plan.uploads])
        assert second == msgspec.structs.replace(plan, groups_close=False, showers=False)
        assert plan.kinds[: len(former.kinds)] == former.kinds
        assert (plan.queues, plan.topic, plan.steps) == (former.queues, former.topic, former.steps)
        assert not set(former.kinds) & LATER_KINDS.keys()
        later = [former.prunes, former.bytes_late, former.clocks_leap, former.accompanied, former.large]
        assert not any(later)
        assert not any([former.preempted, former.silent, former.run_min])


@pytest.mark.parametrize("seed", one_of(3, range(1, 13)))
def test_every_promise_is_kept_through_kills_cuts_and_takeovers(seed: int) -> None:
    outcome = simulate(seed, 2_500)
    assert outcome.violation == ""
    assert outcome.steps > 2_500


@pytest.mark.parametrize("seed", one_of(4, range(101, 141)))
def test_runs_of_all_lengths_keep_every_promise(seed: int) -> None:
    assert simulate(seed).violation == ""


def test_the_same_seed_is_the_same_run() -> None:
    """In another process too, whatever ran before; else no failure could be replayed."""
    first = simulate(7, 2_000)
    simulate(8, 500)
    assert simulate(7, 2_000) == first
