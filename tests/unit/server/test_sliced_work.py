"""Long work in slices: short works do not wait for one another, and those are dropped for which nobody waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import cast

from legato.clock import Clock
from legato.errors import StoreError
from legato.server.process.sliced_work import SLICE_MS, Spreading


class Loop:
    """Turns of a loop, and a clock that goes on by work only."""

    def __init__(self) -> None:
        self.ms = 0
        self._soon: list[Callable[[], None]] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        """See `asyncio.AbstractEventLoop.call_soon`."""
        self._soon.append(call)

    def monotonic_ms(self) -> int:
        """See `Clock.monotonic_ms`."""
        return self.ms

    def turn(self) -> int:
        """Have done what is due; returns for how long."""
        began_ms, (soon, self._soon) = self.ms, (self._soon, [])
        for call in soon:
            call()
        return self.ms - began_ms


def spreading_on(loop: Loop) -> Spreading:
    return Spreading(cast(asyncio.AbstractEventLoop, loop), cast(Clock, loop), lambda: True, lambda: None)


def test_short_works_are_done_as_fast_as_they_come() -> None:
    """With one work a turn, however short, questions of one peer pile up without end."""
    loop = Loop()
    spreading = spreading_on(loop)
    done: list[int] = []

    def work(number: int) -> Iterator[None]:
        yield
        done.append(number)

    for turn in range(20):
        for number in range(30):
            spreading.add(work(turn * 30 + number))
        loop.turn()
    assert done == list(range(600))


def test_a_turn_ends_when_the_slice_is_used_up_and_everybody_goes_on_in_turn() -> None:
    loop = Loop()
    spreading = spreading_on(loop)
    order: list[str] = []

    def work(name: str, steps: int) -> Iterator[None]:
        for _ in range(steps):
            loop.ms += 4
            order.append(name)
            yield

    for name in "abc":
        spreading.add(work(name, 4))
    turns_ms = []
    while turn_ms := loop.turn():
        turns_ms.append(turn_ms)
    assert max(turns_ms) < SLICE_MS + 4
    assert "".join(order).startswith("aaabbbccc")
    assert sorted(order) == sorted("abc" * 4)


def test_what_is_begun_is_done_at_once_as_far_as_it_fits_into_a_slice() -> None:
    loop = Loop()
    spreading = spreading_on(loop)
    done: list[str] = []

    def work(name: str, steps: int) -> Iterator[None]:
        for _ in range(steps):
            loop.ms += 4
            done.append(name)
            yield

    spreading.begin(work("a", 2))
    assert (done, loop.turn()) == (["a"] * 2, 0)
    spreading.begin(work("b", 7))
    assert done == ["a"] * 2 + ["b"] * 3
    while loop.turn():
        pass
    assert done == ["a"] * 2 + ["b"] * 7


def test_work_is_dropped_for_which_nobody_waits_any_more() -> None:
    loop = Loop()
    spreading = spreading_on(loop)
    waits = {"gone": True, "here": True}
    done: list[str] = []
    closed: list[str] = []

    def work(name: str) -> Iterator[None]:
        try:
            for _ in range(5):
                loop.ms += SLICE_MS
                yield
            done.append(name)
        finally:
            closed.append(name)

    for name in waits:
        spreading.add(work(name), is_wanted=lambda name=name: waits[name])  # type: ignore[misc]
    loop.turn()
    waits["gone"] = False
    while loop.turn():
        pass
    assert done == ["here"]
    assert closed == ["gone", "here"]


def test_what_fails_costs_the_others_nothing() -> None:
    loop = Loop()
    spreading = spreading_on(loop)
    told: list[str] = []
    done: list[str] = []

    def failing() -> Iterator[None]:
        yield
        raise StoreError("the disk is full")

    def work() -> Iterator[None]:
        yield
        done.append("other")

    spreading.add(failing(), told.append)
    spreading.add(work())
    loop.turn()
    assert told == ["The broker cannot do this now: the disk is full."]
    assert done == ["other"]
