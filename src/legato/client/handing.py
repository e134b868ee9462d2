"""Blocking calls that return something which must not be lost if a signal handler raises: a message, a consumer.

The steps leave it where the next call finds it. The last step of the call is to leave it there no longer, and to return
it: between these two Python calls no signal handler. Whatever is interrupted before has not had it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from legato.client.steps import Steps, drive, mend, public

_T = TypeVar("_T")
_S = TypeVar("_S")
_P = ParamSpec("_P")


def handing(
    steps: Callable[..., Steps[Any]], documented: Callable[Concatenate[_S, _P], Steps[_T]]
) -> Callable[Concatenate[_S, _P], _T]:
    """The method of a consumer that blocks and returns a message, made from steps without its last step.

    Args:
        documented: those with the last step, and with its name and documentation.
    """

    def call(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            end = cast(Any, self)._end
            value: _T = drive(steps(self, *args, **kwargs))
            end.handing = None; return value  # fmt: skip  # noqa: E702
        except BaseException as interruption:
            mend(self, interruption)
            raise

    return public(documented, call)


def making(steps: Callable[Concatenate[_S, _P], Steps[_T]]) -> Callable[Concatenate[_S, _P], _T]:
    """The method of a session or context that blocks and returns a consumer, made from its steps."""

    def call(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            whose = cast(Any, self)
            value = drive(steps(self, *args, **kwargs))
            whose._making = None; return value  # fmt: skip  # noqa: E702
        except BaseException as interruption:
            mend(self, interruption)
            raise

    return public(steps, call)
