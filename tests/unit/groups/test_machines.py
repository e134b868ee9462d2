"""Groups on machines: even, over different racks, and what is there stays."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.errors import ConfigError
from legato.groups.machines import Machine, Seats, moved, place
from tests.support.examples import examples

GROUPS = [f"g{number}" for number in range(60)]


def machines(count: int, in_a_rack: int = 3, prefix: str = "m") -> list[Machine]:
    return [Machine(f"{prefix}{number}", f"{prefix}-rack{number // in_a_rack}") for number in range(count)]


def racks_of(seats: Seats, there: list[Machine]) -> dict[str, list[str]]:
    rack = {machine.name: machine.rack for machine in there}
    return {group: [rack[name] for name in names] for group, names in seats.items()}


def loads(seats: Seats) -> Counter[str]:
    return Counter(name for names in seats.values() for name in names)


def test_members_and_primaries_are_even_and_in_different_racks() -> None:
    there = machines(18)
    seats = place(GROUPS, there, 3)
    assert set(loads(seats).values()) == {10}
    assert set(Counter(names[0] for names in seats.values()).values()) <= {3, 4}
    assert all(len(set(racks)) == 3 for racks in racks_of(seats, there).values())


def test_the_same_fleet_is_placed_in_the_same_way() -> None:
    assert place(GROUPS, machines(18), 3) == place(GROUPS, machines(18), 3)


def test_nothing_moves_where_nothing_changed() -> None:
    seats = place(GROUPS, machines(18), 3)
    assert place(GROUPS, machines(18), 3, seats) == seats


def test_a_lost_rack_moves_only_what_it_had() -> None:
    there = machines(18)
    before = place(GROUPS, there, 3)
    left = there[3:]
    after = place(GROUPS, left, 3, before)
    assert moved(before, after) == sum(loads(before)[machine.name] for machine in there[:3])
    assert set(loads(after).values()) == {12}
    assert all(len(set(racks)) == 3 for racks in racks_of(after, left).values())


def test_new_machines_get_their_share_and_nothing_else_moves() -> None:
    before = place(GROUPS, machines(18), 3)
    every = [*machines(18), *machines(2, prefix="n")]
    after = place(GROUPS, every, 3, before)
    assert moved(before, after) == 18
    assert set(loads(after).values()) == {9}


def test_machines_bear_what_they_weigh() -> None:
    there = [Machine(f"m{number}", f"r{number}", 2.0 if number < 3 else 1.0) for number in range(12)]
    found = loads(place(GROUPS, there, 3))
    assert {found[f"m{number}"] for number in range(3)} == {24}
    assert {found[f"m{number}"] for number in range(3, 12)} == {12}


def test_members_share_a_rack_only_if_there_are_too_few() -> None:
    there = machines(6)
    racks = racks_of(place(GROUPS, there, 3), there)
    assert all(len(set(found)) == 2 for found in racks.values())


def test_too_few_machines_are_an_error() -> None:
    with pytest.raises(ConfigError, match="as many machines; there are 2"):
        place(GROUPS, machines(2), 3)


@given(st.integers(3, 12), st.integers(1, 4), st.integers(1, 40), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_a_fleet_that_changes_stays_even(count: int, in_a_rack: int, groups: int, data: st.DataObject) -> None:
    names = GROUPS[:groups]
    there = machines(count, in_a_rack)
    seats = place(names, there, 3)
    for step in range(3):
        gone = data.draw(st.sets(st.sampled_from(there), max_size=len(there) - 3))
        there = [machine for machine in there if machine not in gone]
        there += machines(data.draw(st.integers(0, 3)), in_a_rack, f"n{step}-")
        before, seats = seats, place(names, there, 3, seats)
        assert set(seats) == set(names)
        assert all(len(set(found)) == 3 for found in seats.values())
        lost = sum(name in {m.name for m in gone} for found in before.values() for name in found)
        # What moves beyond what was lost evens machines out.
        assert moved(before, seats) >= lost
