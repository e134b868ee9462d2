"""Replicas under virtual time: promises are kept, all stores are equal in the end, nobody answers for another."""

from pathlib import Path

import pytest
import simulator.replicas
from simulator.faults import find
from simulator.replicas.planted import FAULTS, ReplicaFault
from simulator.replicas.run import ReplicatedSimulation, simulate

from tests.simulation.test_seeds import kept_seeds, one_of

QUICK = (
    "acknowledge-before-quorum",
    "append-again-behind-what-is-there",
    "claim-undrained",
    "commit-before-the-log",
    "prune-by-the-own-clock",
)
"""Planted faults that one of the first few seeds finds."""
SEEDS_FILE = Path(simulator.replicas.__file__).with_name("seeds.txt")


@pytest.mark.parametrize(("seed", "steps", "edition"), one_of(2, kept_seeds(SEEDS_FILE)))
def test_a_seed_that_finds_a_mistake_finds_nothing_without_it(seed: int, steps: int | None, edition: int) -> None:
    assert simulate(seed, steps, edition=edition).violation == ""


@pytest.mark.parametrize("seed", one_of(4, range(1, 13)))
def test_every_promise_is_kept_and_replicas_are_equal(seed: int) -> None:
    assert simulate(seed).violation == ""


def test_the_same_seed_is_the_same_run() -> None:
    first = simulate(7, 1_000)
    simulate(8, 300)
    assert simulate(7, 1_000) == first


def test_trouble_of_all_kinds_is_met() -> None:
    """A run that nothing happens to proves nothing."""
    run = ReplicatedSimulation(18, 2_000)
    outcome = run.run()
    assert outcome.violation == ""
    assert outcome.counts["takeovers"] > 0
    assert outcome.counts["elections of the log"] > 1
    assert outcome.counts["confirmed"] > 20
    assert len(run.truth.records) > 20


@pytest.mark.parametrize("fault", [each for each in FAULTS if each.title in QUICK], ids=lambda fault: fault.title)
def test_a_planted_fault_is_found_by_one_of_the_first_seeds(fault: ReplicaFault) -> None:
    assert find(fault, range(1, 21), run=simulate) is not None
