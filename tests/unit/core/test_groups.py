"""Owners of message groups, of which so many are remembered."""

from collections.abc import Collection

import pytest

from legato.core.groups import Groups
from legato.core.message import Message


class Owner:
    """Counts how often somebody asks what it has."""

    def __init__(self, *unsettled: int) -> None:
        self._unsettled = unsettled
        self.asked = 0

    @property
    def unsettled(self) -> Collection[int]:
        self.asked += 1
        return self._unsettled


def test_beyond_the_bound_a_new_group_costs_no_look_at_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer with a prefetch has something all the time, and owns them all: each new group took 20 ms."""
    monkeypatch.setattr("legato.core.groups.GROUPS_MAX", 1000)
    groups = Groups[Message]()
    busy = Owner(1)
    for number in range(1100):
        groups.give(f"{number}", busy, closes=False)
    assert 0 < busy.asked <= 100 * 20
    another = Owner(2)
    assert sum(not groups.is_others(f"{number}", another) for number in range(1100)) == 100
    assert groups.is_others("1099", another)


def test_the_oldest_group_without_anything_in_flight_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("legato.core.groups.GROUPS_MAX", 100)
    groups = Groups[Message]()
    busy, idle, another = Owner(1), Owner(), Owner(2)
    for number in range(100):
        groups.give(f"{number}", idle if number in {10, 50} else busy, closes=False)
    for number in range(100, 105):
        groups.give(f"{number}", busy, closes=False)
    free = {number for number in range(100) if not groups.is_others(f"{number}", another)}
    assert len(free) == 5
    assert {10, 50} < free
