"""A fleet in figures, a small one: the goals hold, and broken hashes, placements and pauses miss them."""

from random import Random
from typing import Any

import numpy as np
import pytest
from simulator.fleet import __main__ as command
from simulator.fleet import fleet, spreading
from simulator.fleet.fleet import Fleet, Plan
from simulator.fleet.returning import Crowd, all_back, come_back, window_s
from simulator.fleet.spreading import hashes, owners, spread_of

from legato.client.failover.uri import Options
from legato.groups import rendezvous
from legato.groups.rendezvous import Candidate, winner

SMALL = Plan(groups=40, machines=24, racks=8, addresses=12_000, clients=2_000)


def test_a_small_fleet_meets_the_goals() -> None:
    report = Fleet(SMALL).run()
    assert report.misses() == []
    assert set(report.moves) == {
        "addresses, groups added",
        "addresses, groups removed",
        "members, a rack lost",
        "members, machines added",
    }
    assert report.moves["addresses, groups added"].moved > 0
    assert report.returns["all primaries killed at once"].clients == SMALL.clients


def test_what_is_counted_is_what_the_product_does() -> None:
    names = [f"group-{number}" for number in range(25)]
    weights = [1 + number % 4 for number in range(25)]
    addresses = [f"orders.{number}" for number in range(1_000)]
    found = owners(hashes(addresses), hashes(names), np.array(weights, dtype=float), (20, 25))
    for count in (20, 25):
        candidates = [Candidate(*each) for each in zip(names[:count], weights[:count], strict=True)]
        assert [names[number] for number in found[count]] == [winner(each, candidates).name for each in addresses]


def by_remainder(addresses: Any, groups: Any, weights: Any, counts: Any) -> Any:
    return {count: (addresses % np.uint64(count)).astype(np.int32) for count in counts}


@pytest.mark.parametrize(
    ("module", "name", "broken", "missed"),
    [
        (spreading, "hash_of", lambda name: rendezvous.hash_of(name) & 0xFF, "addresses"),
        (fleet, "owners", by_remainder, "addresses, groups added"),
        (fleet, "place", lambda groups, machines, members, former=None: unheeding(groups, machines), "members"),
    ],
)
def test_a_broken_placement_misses_them(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, broken: Any, missed: str
) -> None:
    monkeypatch.setattr(module, name, broken)
    assert any(miss.startswith(missed) for miss in Fleet(SMALL).run().misses())


def unheeding(groups: Any, machines: Any) -> Any:
    """Each member by its hash alone."""
    return {
        group: tuple(sorted((m.name for m in machines), key=lambda name: rendezvous.hash_of(f"{group} {name}"))[:3])
        for group in groups
    }


def test_clients_come_back_over_the_time_that_the_broker_asks_for() -> None:
    assert window_s(2_000, 500, 60) == 4.0
    crowd = Crowd(2_000, serves_s=0.1, machine_is_gone=False, cores=1.0)
    asked = come_back(crowd, window_s(2_000, 500, 60), 0.0005, Options(), Random(1))
    at_once = come_back(crowd, 0.0, 0.0005, Options(), Random(1))
    assert 3.5 < asked.last_s < 5
    assert asked.waiting_max < at_once.waiting_max / 4


def test_clients_that_nobody_asked_to_wait_give_up_and_come_again() -> None:
    crowds = [Crowd(2_000, serves_s=0.1, machine_is_gone=False, cores=1.0)]
    paced = all_back(crowds, 100, 0, 0.008, Random(2))
    unpaced = all_back(crowds, 0, 0, 0.008, Random(2))
    assert paced.tries_each == 1.0
    assert unpaced.tries_each > 1.5
    assert unpaced.last_s > paced.last_s


def test_a_machine_that_is_gone_costs_its_clients_a_second() -> None:
    gone = come_back(Crowd(10, 0.1, True, 1.0), 0.0, 0.001, Options(), Random(3))
    there = come_back(Crowd(10, 0.1, False, 1.0), 0.0, 0.001, Options(), Random(3))
    assert gone.last_s == pytest.approx(1.0, abs=0.1)
    assert there.last_s < 0.3


def test_the_spread_is_over_the_mean_for_each_weight() -> None:
    assert spread_of([10, 20], [1, 2]).most == pytest.approx(1.0)
    assert spread_of([1, 1, 4]).most == pytest.approx(2.0)


def test_the_command_says_what_was_missed(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--groups", "20", "--machines", "12", "--racks", "4", "--clients", "400", "--addresses"]
    assert command.main([*few, "8000"]) == 0
    assert command.main([*few, "200"]) == 1
    out = capsys.readouterr().out
    assert "MISSED: addresses: p99 is" in out
    assert "Clients back" in out
