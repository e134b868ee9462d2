"""Errors that Spark shows to users: one of Legato's is a line, without the stack traces that Spark puts above it."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from legato import errors
from legato.errors import LegatoError

_P = ParamSpec("_P")
_R = TypeVar("_R")

_HIDE_TRACES = "SPARK_HIDE_TRACEBACK"
"""PySpark's workers look for it in their environment when they report an error (`handle_worker_exception`)."""


def told_at_once(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Have a method raise Legato's errors as if it had come upon them itself; one that yields, too.

    Spark shows a trace of all calls first: nothing in it helps with a mistake in an option, or a broker that is away.
    """
    if inspect.isgeneratorfunction(method):

        @wraps(method)
        def iterate(*args: _P.args, **kwargs: _P.kwargs) -> Iterator[Any]:
            try:
                yield from cast(Iterator[Any], method(*args, **kwargs))
                return
            except LegatoError as error:
                told = _told(error)
            raise told from None

        return cast(Callable[_P, _R], iterate)

    @wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return method(*args, **kwargs)
        except LegatoError as error:
            told = _told(error)
        raise told from None

    return call


def _told(error: LegatoError) -> LegatoError:
    """An error as it is to be raised."""
    if is_spark_worker():
        # This process ends with the error, so no trace of another one is hidden.
        os.environ[_HIDE_TRACES] = "1"
        if type(error).__module__ != errors.__name__:
            # The name of a public class is what users look for, and find.
            public = next(kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
            error = public(str(error))
    return error.with_traceback(None)


def is_spark_worker() -> bool:
    """Whether this process was started by Spark, to run code of ours: the programs of users are none of its own."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
