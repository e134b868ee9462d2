"""One source for two worlds: what the client does is written as steps that say what they wait for.

A step is a `Wait` or an `Await`; who runs the steps decides how to wait. Threads block (`drive`);
`legato.client.aio` awaits. Steps are told of whatever interrupts their waiting, a cancellation for example, by the
exception being raised where they wait.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any, Concatenate, ParamSpec, TypeVar

from legato.client.gate import Gate
from legato.errors import JMSError

_T = TypeVar("_T")
_S = TypeVar("_S")
_P = ParamSpec("_P")


class Wait:
    """Wait until `ready()` is true, at most `timeout_s` seconds; the answer says whether it is."""

    __slots__ = ("gate", "ready", "timeout_s")

    def __init__(self, gate: Gate, ready: Callable[[], object], timeout_s: float | None = None) -> None:
        self.gate = gate
        self.ready = ready
        self.timeout_s = timeout_s


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


def blocking(steps: Callable[Concatenate[_S, _P], Steps[_T]]) -> Callable[Concatenate[_S, _P], _T]:
    """The method that blocks, made from the method whose steps it takes."""

    def call(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return drive(steps(self, *args, **kwargs))
        except BaseException as interruption:
            mend(self, interruption)
            raise

    return public(steps, call)


_Method = TypeVar("_Method", bound=Callable[..., Any])


def public(steps: Callable[..., Any], method: _Method) -> _Method:
    """Give `method` the name and documentation of the steps that it is made from."""
    functools.update_wrapper(method, steps)
    for attribute in ("__name__", "__qualname__"):
        head, dot, name = getattr(steps, attribute).rpartition(".")
        setattr(method, attribute, head + dot + name.lstrip("_"))
    signature = inspect.signature(steps)
    returned = str(signature.return_annotation).removeprefix("Steps[").removesuffix("]")
    method.__signature__ = signature.replace(return_annotation=returned)  # type: ignore[attr-defined]
    return method
