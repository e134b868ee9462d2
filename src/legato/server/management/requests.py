"""Arguments of management requests, and answers that come later."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from legato.errors import LegatoError

_NUMBER_MAX = 1 << 62
Spread = Callable[[Iterator[None], Callable[[str], None], Callable[[], bool]], None]
"""Does work in steps, some in each turn of the loop; is told what to call if that fails, and how to learn whether
anybody still waits for it."""


class Rejection(LegatoError):
    """A request that cannot be understood."""

    status = 400


class Settled(NamedTuple):
    """A result that is made, and told, when other processes see everything that was asked so far."""

    make: Callable[[], Any]
    """Returns the result, or a `Pending` one."""


class Pending:
    """A result that comes later; `done` is called with it, or `failed` with why there is none.

    Args:
        unmet: why it was not done as a whole; empty if it was.

    Attributes:
        is_awaited: whether who asked is still there.
    """

    def __init__(self, name: str, verb: str, unmet: Callable[[], str] = lambda: "") -> None:
        self._name = name
        self._verb = verb
        self._unmet = unmet
        self.done: Callable[[Any], None] = lambda result: None
        self.failed: Callable[[str], None] = lambda why: None
        self.is_awaited: Callable[[], bool] = lambda: True

    def fail(self, why: str) -> None:
        """The work cannot be done."""
        self.failed(why)

    def stop_at(self, count: int, why: str) -> None:
        """There was no room for more."""
        self.failed(f"{self._verb}: {count:,}; the others stay where they are: {why}")

    def finish(self, count: int) -> None:
        """The work is done."""
        if why := self._unmet():
            self.failed(f"{self._verb}: {count:,}; {why}")
        else:
            self.done({"name": self._name, self._verb: count})


def text(arguments: dict[str, Any], key: str) -> str:
    """A string that must be given.

    Raises:
        Rejection: it is not.
    """
    value = arguments.get(key)
    if not isinstance(value, str) or not value:
        raise Rejection(f"The request needs {key}.")
    return str(value)


def number(arguments: dict[str, Any], key: str, default: int) -> int:
    """A whole number.

    Raises:
        Rejection: it is none, or negative.
    """
    value = arguments.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _NUMBER_MAX:
        raise Rejection(f"{key} is a whole number, 0 or more.")
    return int(value)


def flag(arguments: dict[str, Any], key: str) -> bool:
    """A boolean, false if it is not given.

    Raises:
        Rejection: it is none.
    """
    value = arguments.get(key, False)
    if not isinstance(value, bool):
        raise Rejection(f"{key} is true or false.")
    return value


def texts(arguments: dict[str, Any], key: str, count_max: int) -> list[str]:
    """Texts: JSON text of a list; none if it is not given.

    Raises:
        Rejection: it is something else, or has more than `count_max`.
    """
    found = _json(arguments.get(key, "[]"))
    if not isinstance(found, list) or len(found) > count_max or not all(isinstance(each, str) for each in found):
        raise Rejection(f"{key} is a JSON list of texts, at most {count_max}.")
    return found


def properties(arguments: dict[str, Any]) -> dict[str, str | int]:
    """Properties for messages: JSON text of an object with texts, whole numbers and truth values.

    Raises:
        Rejection: it is something else, or a number of more than 64 bits.
    """
    found = _json(arguments.get("properties", "{}"))
    if not isinstance(found, dict) or not all(_is_plain(each) for entry in found.items() for each in entry):
        raise Rejection("properties is a JSON object of texts, whole numbers and truth values.")
    return found


def _json(given: Any) -> Any:
    """What a text says in JSON; None if that is nothing."""
    try:
        return json.loads(given)
    except (TypeError, ValueError, RecursionError):
        return None


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        # JSON can spell halves of characters, which nothing can store.
        return not any("\ud800" <= character <= "\udfff" for character in value)
    return isinstance(value, int) and -_NUMBER_MAX <= value <= _NUMBER_MAX
