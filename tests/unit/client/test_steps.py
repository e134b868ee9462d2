"""Steps: one source, taken by threads and by tasks."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

import pytest

from legato.client import aio
from legato.client.aio.steps import Opening
from legato.client.aio.steps import drive as drive_in_task
from legato.client.aio.world import TaskTurn
from legato.client.connection import Connection
from legato.client.gate import Gate
from legato.client.session import Session
from legato.client.steps import Await, Steps, Wait, drive

WAIT_S = 60.0
Take = Callable[[Steps[Any]], Any]


def in_thread(steps: Steps[Any]) -> Any:
    return drive(steps)


def in_task(steps: Steps[Any]) -> Any:
    return asyncio.run(drive_in_task(steps))


BOTH = pytest.mark.parametrize("take", [in_thread, in_task])


@BOTH
def test_steps_return_their_value(take: Take) -> None:
    def steps() -> Steps[int]:
        assert (yield Wait(Gate(), lambda: True)) is True
        yield Await(None)
        return 3

    assert take(steps()) == 3


@BOTH
def test_a_wait_ends_when_its_time_is_over(take: Take) -> None:
    def steps() -> Steps[bool]:
        return bool((yield Wait(Gate(), lambda: False, 0.01)))

    assert take(steps()) is False


@BOTH
def test_a_wait_ends_when_another_thread_opens_the_gate(take: Take) -> None:
    gate, opened = Gate(), threading.Event()
    looked: list[None] = []

    def open_soon() -> None:
        opened.set()
        gate.open()

    def ready() -> bool:
        looked.append(None)
        if len(looked) == 1:
            threading.Thread(target=open_soon).start()
        return opened.is_set() and len(looked) > 1

    def steps() -> Steps[bool]:
        return bool((yield Wait(gate, ready, WAIT_S)))

    assert take(steps()) is True


@BOTH
def test_errors_leave_the_steps_as_they_are_raised(take: Take) -> None:
    def steps() -> Steps[None]:
        yield Wait(Gate(), lambda: True)
        raise ValueError("why")

    with pytest.raises(ValueError, match="why"):
        take(steps())


@BOTH
def test_steps_hear_of_what_interrupts_their_waiting(take: Take) -> None:
    heard: list[BaseException] = []

    def ready() -> bool:
        raise KeyError("interrupted")

    def steps() -> Steps[str]:
        try:
            yield Wait(Gate(), ready)
        except KeyError as error:
            heard.append(error)
        return "went on"

    assert take(steps()) == "went on"
    assert len(heard) == 1


def test_a_task_awaits_what_an_applications_function_returned() -> None:
    heard: list[str] = []

    async def listener() -> None:
        await asyncio.sleep(0)
        heard.append("listener")

    def steps() -> Steps[None]:
        yield Await(listener())
        heard.append("after")

    in_task(steps())
    assert heard == ["listener", "after"]


def test_a_cancelled_task_ends_its_steps_in_order() -> None:
    gate = Gate()
    ended: list[str] = []

    def steps() -> Steps[None]:
        try:
            yield Wait(gate, lambda: False)
        finally:
            ended.append("cleaned up")

    async def main() -> None:
        task = asyncio.create_task(drive_in_task(steps()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ended == ["cleaned up"]
    assert not gate.is_awaited


class Closing:
    closed = False

    async def close(self) -> None:
        self.closed = True


def test_what_opens_can_be_awaited_or_entered() -> None:
    def steps(made: Closing) -> Steps[Closing]:
        yield Wait(Gate(), lambda: True)
        return made

    async def main() -> None:
        made = Closing()
        assert await Opening(steps(made)) is made
        async with Opening(steps(made)) as entered:
            assert entered is made
            assert not made.closed
        assert made.closed

    asyncio.run(main())


def test_tasks_take_turns_and_a_task_may_take_its_turn_again() -> None:
    async def main() -> None:
        turn = TaskTurn()
        order: list[str] = []

        async def other() -> None:
            assert not turn.acquire(False)
            await drive_in_task(turn.awaited())
            order.append("other")
            turn.release()

        assert turn.acquire(False)
        assert turn.acquire(False)
        task = asyncio.create_task(other())
        await asyncio.sleep(0)
        turn.release()
        await asyncio.sleep(0)
        order.append("first")
        turn.release()
        await task
        assert order == ["first", "other"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("blocking_class", "asyncio_class"),
    [(getattr(__import__("legato.client", fromlist=["x"]), name), getattr(aio, name)) for name in aio.__all__],
)
def test_the_twins_have_the_same_methods(blocking_class: type, asyncio_class: type) -> None:
    def names(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert names(blocking_class) == names(asyncio_class)
    for name in names(blocking_class):
        ours, theirs = getattr(blocking_class, name), getattr(asyncio_class, name)
        if callable(ours):
            assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters), name
            assert theirs.__doc__, name


def test_public_methods_say_what_they_do() -> None:
    for kind in (Connection, Session):
        for name in dir(kind):
            if not name.startswith("_") and getattr(kind, name) is not None:
                assert getattr(kind, name).__doc__, f"{kind.__name__}.{name}"
