"""Comparison and arithmetic of values: True, False or None for unknown; numbers follow Java's rules."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

_LONG_MIN, _LONG_MAX = -(1 << 63), (1 << 63) - 1
_NUMBERS = frozenset((int, float))
_ALL = frozenset((int, float, str, bool))

Comparison = Callable[[Any, Any], bool | None]


def _comparison(holds: Callable[[Any, Any], bool], kinds: frozenset[type]) -> Comparison:
    """A comparison of values of the same one of `kinds`, or of two numbers, of which an exact one becomes a double.

    It is false for all others, whatever is asked, and unknown if one is missing (Jakarta Messaging 3.8.1.2, 3.8.1.3).
    """

    def compare(left: Any, right: Any) -> bool | None:
        kind, other = left.__class__, right.__class__
        if kind is other and kind in kinds:
            return holds(left, right)
        if left is None or right is None:
            return None
        if kind is int and other is float:
            return holds(float(left), right)
        if kind is float and other is int:
            return holds(left, float(right))
        return False

    return compare


equal = _comparison(operator.eq, _ALL)
unequal = _comparison(operator.ne, _ALL)
less = _comparison(operator.lt, _NUMBERS)
at_most = _comparison(operator.le, _NUMBERS)


def _numbers(left: Any, right: Any) -> bool:
    kind, other = left.__class__, right.__class__
    return (kind is int or kind is float) and (other is int or other is float)


def _number(value: int | float) -> int | float:
    """An exact number keeps its lowest 64 bits, as Java's long."""
    if value.__class__ is int and not _LONG_MIN <= value <= _LONG_MAX:
        return (int(value) - _LONG_MIN) % (1 << 64) + _LONG_MIN
    return value


def plus(left: Any, right: Any) -> int | float | None:
    """`+`; unknown unless both are numbers, like all arithmetic."""
    return _number(left + right) if _numbers(left, right) else None


def minus(left: Any, right: Any) -> int | float | None:
    """`-`."""
    return _number(left - right) if _numbers(left, right) else None


def times(left: Any, right: Any) -> int | float | None:
    """`*`."""
    return _number(left * right) if _numbers(left, right) else None


def divided(left: Any, right: Any) -> int | float | None:
    """`/`: exact numbers are divided towards zero, and by zero to unknown; approximate ones as IEEE 754 says."""
    if not _numbers(left, right):
        return None
    if left.__class__ is int and right.__class__ is int:
        if not right:
            return None
        quotient = abs(left) // abs(right)
        return _number(quotient if (left < 0) == (right < 0) else -quotient)
    dividend, divisor = float(left), float(right)
    if divisor:
        return dividend / divisor
    if not dividend or math.isnan(dividend) or math.isnan(divisor):
        return math.nan
    return math.copysign(math.inf, math.copysign(1.0, dividend) * math.copysign(1.0, divisor))


def negative(value: Any) -> int | float | None:
    """`-` before a number."""
    return _number(-value) if value.__class__ is int or value.__class__ is float else None
