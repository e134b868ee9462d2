"""Errors that Spark shows to users, without the stack traces that Spark prints above them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from legato.errors import LegatoError

_P = ParamSpec("_P")
_R = TypeVar("_R")


def told_at_once(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Have a method raise Legato's errors as if it had come upon them itself.

    Spark shows a trace of all calls first: nothing in it helps with a mistake in an option, or a broker that is away.
    """

    @wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return method(*args, **kwargs)
        except LegatoError as error:
            told = error
        raise told.with_traceback(None) from None

    return call
