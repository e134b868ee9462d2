"""Compile conditions to Python expressions, one for "is true" and one for "is false".

Where both say no, the condition is unknown. AND, OR and NOT of three values so become Python's own `and` and `or` of
two: NOT asks its part for the other of the two, and nothing has to be combined when a message is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from legato import limits
from legato.selectors import values
from legato.selectors.nodes import (
    Arithmetic,
    Between,
    Both,
    Comparison,
    Condition,
    Either,
    Identifier,
    IsNull,
    Like,
    Literal,
    Negative,
    Node,
    OneOf,
    Opposite,
    Value,
    children_of,
)
from legato.selectors.patterns import cost_of, matcher_of

Lookup = Callable[[str], Any]

_ARITHMETIC = {"+": "plus", "-": "minus", "*": "times", "/": "divided"}
_COMPARISONS = {"=": "equal", "<>": "unequal", "<": "less", "<=": "at_most"}
_MIRRORED = {">": "<", ">=": "<="}
_FUNCTIONS = (*_ARITHMETIC.values(), *_COMPARISONS.values(), "negative")
_TURNED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_SYMBOLS = {"=": "==", "<>": "!="}
_EXACT_BELOW = 1 << 53
"""Whole numbers below are the same as doubles."""


def compile_condition(condition: Condition) -> Callable[[Lookup], bool]:
    """A function of a lookup of identifiers that says whether the condition is true."""
    writer = _Writer(_text_max(condition))
    expression = writer.true(condition)
    source = f"def matches(lookup):\n    return {expression}\n"
    exec(compile(source, "<selector>", "exec"), writer.names)
    matches: Callable[[Lookup], bool] = writer.names["matches"]
    return matches


class _Writer:
    """Writes expressions of `lookup`; what else they refer to is in `names`, and `v` is a value used at once."""

    def __init__(self, text_max: int) -> None:
        self._text_max = text_max
        self.names: dict[str, Any] = {name: getattr(values, name) for name in _FUNCTIONS}
        self._values = 0
        """How many have a name of their own, as they are used twice."""

    def true(self, node: Condition) -> str:
        """An expression that says whether a condition is true."""
        match node:
            case Both(parts=parts):
                return self._joined(" and ", map(self.true, parts))
            case Either(parts=parts):
                return self._joined(" or ", map(self.true, parts))
            case Opposite(part=part):
                return self.false(part)
            case Literal(value=value):
                return repr(value is True)
            case Identifier():
                return f"{self._value(node)} is True"
            case Comparison():
                return self._plain_comparison(node) or f"{self._comparison(node)} is True"
            case Between():
                return self._between(node, True)
            case IsNull(identifier=identifier, negated=negated):
                return f"{self._value(identifier)} is {'not ' if negated else ''}None"
            case OneOf() | Like():
                return f"{self._text_test(node)} is True"

    def false(self, node: Condition) -> str:
        """An expression that says whether a condition is false."""
        match node:
            case Both(parts=parts):
                return self._joined(" or ", map(self.false, parts))
            case Either(parts=parts):
                return self._joined(" and ", map(self.false, parts))
            case Opposite(part=part):
                return self.true(part)
            case Literal(value=value):
                return repr(value is False)
            case Identifier():
                return f"{self._value(node)} is False"
            case Comparison():
                return f"{self._comparison(node)} is False"
            case Between():
                return self._between(node, False)
            case IsNull(identifier=identifier, negated=negated):
                return f"{self._value(identifier)} is {'' if negated else 'not '}None"
            case OneOf() | Like():
                return f"{self._text_test(node)} is False"

    def _joined(self, word: str, parts: Any) -> str:
        return "(" + word.join(parts) + ")"

    def _value(self, node: Value) -> str:
        match node:
            case Literal(value=value):
                return self._constant(value)
            case Identifier(name=name):
                return f"lookup({name!r})"
            case Negative(operand=operand):
                return f"negative({self._value(operand)})"
            case Arithmetic(operator=operator, left=left, right=right):
                return f"{_ARITHMETIC[operator]}({self._value(left)}, {self._value(right)})"

    def _constant(self, value: Any) -> str:
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def _comparison(self, node: Comparison) -> str:
        left, right, operator = self._value(node.left), self._value(node.right), node.operator
        if operator in _MIRRORED:
            left, right, operator = right, left, _MIRRORED[operator]
        return f"{_COMPARISONS[operator]}({left}, {right})"

    def _plain_comparison(self, node: Comparison) -> str:
        """The most usual comparisons, of an identifier and a literal, without a call; empty for others."""
        left, right, operator = node.left, node.right, node.operator
        if isinstance(left, Literal):
            left, right, operator = right, left, _TURNED[operator]
        if not isinstance(left, Identifier) or not isinstance(right, Literal):
            return ""
        value, literal, symbol = self._value(left), right.value, _SYMBOLS.get(operator, operator)
        if isinstance(literal, str):
            return f"{value} == {literal!r}" if operator == "=" else f"{_is_string(value)} and v != {literal!r}"
        if isinstance(literal, bool):
            return f"{value} is {literal if operator == '=' else not literal}"
        return f"{_is_number(value)} and v {symbol} {literal!r}" if _exact(right) else ""

    def _between(self, node: Between, truth: bool) -> str:
        """BETWEEN is short for two comparisons (Jakarta Messaging 3.8.1.1); the value is looked up once."""
        low, high = node.low, node.high
        if truth and not node.negated and (lowest := _exact(low)) and (highest := _exact(high)):
            return f"{_is_number(self._value(node.value))} and {lowest} <= v <= {highest}"
        self._values += 1
        name = f"v{self._values}"
        value = f"({name} := {self._value(node.value)})"
        if node.negated:
            parts = f"less({value}, {self._value(low)})", f"less({self._value(high)}, {name})"
        else:
            parts = f"at_most({self._value(low)}, {value})", f"at_most({name}, {self._value(high)})"
        word = " and " if truth is not node.negated else " or "
        return self._joined(word, [f"{part} is {truth}" for part in parts])

    def _text_test(self, node: OneOf | Like) -> str:
        test = _like(node, self._text_max) if isinstance(node, Like) else _one_of(node)
        return f"{self._constant(test)}({self._value(node.identifier)})"


def _exact(node: Value) -> str:
    """A literal that Python compares with other numbers as Java does, which makes doubles of whole ones; or empty."""
    match node:
        case Literal(value=bool()):
            return ""
        case Literal(value=int() | float() as number) if abs(number) < _EXACT_BELOW:
            return repr(number)
    return ""


def _is_number(value: str) -> str:
    return f"((v := {value}).__class__ is int or v.__class__ is float)"


def _is_string(value: str) -> str:
    return f"(v := {value}).__class__ is str"


def _one_of(node: OneOf) -> Callable[[Any], bool | None]:
    strings, negated = frozenset(node.strings), node.negated

    def test(value: Any) -> bool | None:
        if value.__class__ is not str:
            return None if value is None else False
        return (value in strings) is not negated

    return test


def _text_max(condition: Condition) -> int:
    """How long a text may be that the patterns of a selector are held against; with a longer one LIKE is unknown."""
    cost = 1
    nodes: list[Node] = [condition]
    while nodes:
        node = nodes.pop()
        if isinstance(node, Like):
            cost += cost_of(node.pattern, node.escape)
        nodes.extend(children_of(node))
    return limits.LIKE_STEPS_MAX // cost


def _like(node: Like, text_max: int) -> Callable[[Any], bool | None]:
    matches, negated = matcher_of(node.pattern, node.escape), node.negated

    def test(value: Any) -> bool | None:
        if value.__class__ is not str:
            return None if value is None else False
        if len(value) > text_max:
            return None
        return matches(value) is not negated

    return test
