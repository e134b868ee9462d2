"""Steps: the client's calls as generators that yield what they wait for, for threads and asyncio.

A step is a `Wait` or an `Await`; who runs the steps decides how to wait. Threads block (`drive`);
`legato.client.aio` awaits. Steps are told of whatever interrupts their waiting, a cancellation for example, by the
exception being raised where they wait.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from legato.client.gate import Gate
from legato.errors import JMSError

_T = TypeVar("_T")


class Wait:
    """Wait until `ready()` is true, at most `timeout_s` seconds; the answer says whether it is.

    Args:
        for_listener: whether it is a listener of the application that is waited for, and not the broker.
    """

    __slots__ = ("for_listener", "gate", "ready", "timeout_s")

    def __init__(
        self,
        gate: Gate,
        ready: Callable[[], object],
        timeout_s: float | None = None,
        *,
        for_listener: bool = False,
    ) -> None:
        self.gate = gate
        self.ready = ready
        self.timeout_s = timeout_s
        self.for_listener = for_listener


class Await:
    """A function of the application returned something: in asyncio it is awaited if it can be."""

    __slots__ = ("result",)

    def __init__(self, result: object) -> None:
        self.result = result


Steps = Generator[Wait | Await, Any, _T]
"""What returns a value of that type after some steps."""

NOTHING: tuple[()] = ()
"""What steps that never wait `yield from`."""


def drive(steps: Steps[_T]) -> _T:
    """Take the steps in this thread, and return what they return."""
    try:
        try:
            step = next(steps)
            while True:
                try:
                    answer = step.gate.wait(step.ready, step.timeout_s) if isinstance(step, Wait) else None
                except BaseException as interruption:
                    step = steps.throw(interruption)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            value: _T = end.value
            return value
    except BaseException:
        # Perhaps the interruption hit these very lines: the steps hear that they are over.
        steps.close()
        raise


def mend(whose: Any, interruption: BaseException) -> None:
    """A call was interrupted, at any line, by a signal handler that raises: have whose it is clean up after it.

    What a call itself raises it has cleaned up after.
    """
    interrupted = getattr(whose, "_interrupted", None)
    if interrupted is None or isinstance(interruption, JMSError):
        return
    try:
        interrupted(interruption)
    except BaseException:
        # Another one; what is cleaned up may be cleaned up again.
        interrupted(interruption)
        raise


def leave_block(whose: Any, error: BaseException | None) -> None:
    """End a `with` block of what can be closed: in a hurry if an exception leaves it (`calls.leaving`)."""
    if error is None:
        whose.close()
        return
    try:
        drive(whose._leave(error))
    except BaseException as interruption:
        mend(whose, interruption)
        raise
