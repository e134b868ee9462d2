"""Runner of the client's steps in an event loop: it awaits, and can be cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from legato.client.gate import Gate
from legato.client.steps import Steps, Wait

_T = TypeVar("_T")


async def drive(steps: Steps[_T]) -> _T:
    """Take the steps in this task, and return what they return."""
    try:
        step = next(steps)
        while True:
            try:
                answer = False
                if isinstance(step, Wait):
                    answer = await _wait(step.gate, step.ready, step.timeout_s)
                elif inspect.isawaitable(step.result):
                    await step.result
            except BaseException as interruption:
                step = steps.throw(interruption)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        value: _T = end.value
        return value


async def leave_block(whose: Any, error: BaseException | None) -> None:
    """End an `async with` block of what can be closed: in a hurry if an exception leaves it (`calls.leaving`)."""
    if error is None:
        await whose.close()
    else:
        await drive(whose._leave(error))


async def _wait(gate: Gate, ready: Callable[[], object], timeout_s: float | None) -> bool:
    """Wait as `Gate.wait` does for threads."""
    loop = asyncio.get_running_loop()
    deadline = None if timeout_s is None else loop.time() + timeout_s
    opened = asyncio.Event()

    def wake() -> None:
        # A loop that is closed has nobody to wake.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(opened.set)

    gate.call_when_opened(wake)
    try:
        while not ready():
            opened.clear()
            if ready():
                break
            try:
                async with asyncio.timeout_at(deadline):
                    await opened.wait()
            except TimeoutError:
                return bool(ready())
    finally:
        gate.forget(wake)
    return True


class Opening(Generic[_T]):
    """Something about to be made: `await` it, or use it with `async with`, which also closes it."""

    def __init__(self, steps: Steps[_T]) -> None:
        self._steps = steps
        self._made: Any = None

    def __repr__(self) -> str:
        return "<what is about to be made: `await` it, or enter it with `async with`>"

    if not TYPE_CHECKING:  # Type checkers know better: there is no such attribute.

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"{name!r} belongs to what is about to be made: write `await` in front of the call that makes it, "
                "or `async with ... as`."
            )

    def __await__(self) -> Generator[Any, None, _T]:
        return drive(self._steps).__await__()

    async def __aenter__(self) -> _T:
        made = await self
        self._made = made
        return made

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self._made.close()
        else:
            await self._made.__aexit__(kind, error, traceback)
