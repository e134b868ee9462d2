"""Turns of the loop: connections with much to do share a part of each, and nobody waits for all of them."""

from __future__ import annotations

from collections.abc import Callable

from legato.server.connections.turns import HALF_LIFE_MS, HEAVY_MS, LIGHT_TURN_MS, TURN_MS, Turns, Usage


class Loop:
    """Turns of a loop, and a clock that goes on by work only."""

    def __init__(self) -> None:
        self.ms = 0
        self.turns = Turns(lambda call: self.soon.append(call), lambda: self.ms)
        self.soon: list[Callable[[], None]] = []

    def turn(self) -> int:
        """What the next turn does; returns how long it takes."""
        began, (soon, self.soon) = self.ms, (self.soon, [])
        for call in soon:
            call()
        return self.ms - began


class Worker:
    """Somebody with work in slices."""

    def __init__(self, loop: Loop, slices: int, slice_ms: int, *, is_heavy: bool = True) -> None:
        self._loop = loop
        self._slice_ms = slice_ms
        self._is_heavy = is_heavy
        self.left = slices
        loop.turns.add(self, is_heavy=is_heavy)

    def go_on(self) -> None:
        """One slice."""
        self._loop.ms += self._slice_ms
        self.left -= 1
        if self.left:
            self._loop.turns.add(self, is_heavy=self._is_heavy)


def test_however_many_have_much_to_do_a_turn_is_short() -> None:
    loop = Loop()
    workers = [Worker(loop, slices=3, slice_ms=4) for _ in range(50)]
    turns = []
    while loop.soon:
        turns.append(loop.turn())
    assert max(turns) <= TURN_MS + 4
    assert all(worker.left == 0 for worker in workers)


def test_each_of_them_has_its_turn_before_any_has_a_second_one() -> None:
    loop = Loop()
    workers = [Worker(loop, slices=2, slice_ms=5) for _ in range(6)]
    for _ in range(3):
        loop.turn()
    assert [worker.left for worker in workers] == [1] * 6


def test_those_with_little_to_do_go_first_and_those_with_much_still_go_on() -> None:
    loop = Loop()
    heavy = Worker(loop, slices=100, slice_ms=TURN_MS)
    many = [Worker(loop, slices=1, slice_ms=1, is_heavy=False) for _ in range(LIGHT_TURN_MS * 2)]
    loop.turn()
    assert sum(worker.left == 0 for worker in many) == LIGHT_TURN_MS
    assert heavy.left == 99
    loop.turn()
    assert all(worker.left == 0 for worker in many)


def test_in_a_turn_in_which_much_was_done_only_what_is_light_is_served_at_once() -> None:
    loop = Loop()
    assert loop.turns.may_serve(is_heavy=True)
    loop.turns.took(TURN_MS)
    assert not loop.turns.may_serve(is_heavy=True)
    assert loop.turns.may_serve(is_heavy=False)
    loop.turns.took(LIGHT_TURN_MS)
    assert not loop.turns.may_serve(is_heavy=False)
    loop.turn()
    assert loop.turns.may_serve(is_heavy=True)


def test_nobody_overtakes_those_who_wait() -> None:
    loop = Loop()
    Worker(loop, slices=1, slice_ms=1)
    assert not loop.turns.may_serve(is_heavy=True)
    assert loop.turns.may_serve(is_heavy=False)


def test_a_connection_is_heavy_while_it_takes_much_and_until_it_is_known() -> None:
    usage = Usage(0)
    assert usage.is_heavy(0)
    later = round(HALF_LIFE_MS * 3)
    assert not usage.is_heavy(later)
    usage.add(round(HEAVY_MS) + 1, later)
    assert usage.is_heavy(later)
    assert not usage.is_heavy(later + round(HALF_LIFE_MS))
