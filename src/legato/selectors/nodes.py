"""Syntax tree of selectors: values and conditions, each with its place in the text."""

from __future__ import annotations

import msgspec


class Literal(msgspec.Struct, frozen=True):
    """A string, an exact (`int`) or approximate (`float`) number, or a boolean."""

    value: str | int | float | bool
    at: int


class Identifier(msgspec.Struct, frozen=True):
    """A header field or a property; what it holds is known only when a message comes."""

    name: str
    at: int


class Arithmetic(msgspec.Struct, frozen=True):
    """`operator` is one of `+ - * /`."""

    operator: str
    left: Value
    right: Value
    at: int


class Negative(msgspec.Struct, frozen=True):
    """A number with the other sign."""

    operand: Value
    at: int


class Comparison(msgspec.Struct, frozen=True):
    """`operator` is one of `= <> < <= > >=`."""

    operator: str
    left: Value
    right: Value
    at: int


class Between(msgspec.Struct, frozen=True):
    """`value [NOT] BETWEEN low AND high`, both included."""

    value: Value
    low: Value
    high: Value
    negated: bool
    at: int


class OneOf(msgspec.Struct, frozen=True):
    """`identifier [NOT] IN (strings)`."""

    identifier: Identifier
    strings: tuple[str, ...]
    negated: bool
    at: int


class Like(msgspec.Struct, frozen=True):
    """`identifier [NOT] LIKE pattern [ESCAPE escape]`."""

    identifier: Identifier
    pattern: str
    escape: str
    negated: bool
    at: int


class IsNull(msgspec.Struct, frozen=True):
    """`identifier IS [NOT] NULL`."""

    identifier: Identifier
    negated: bool
    at: int


class Both(msgspec.Struct, frozen=True):
    """All of them, joined by AND."""

    parts: tuple[Condition, ...]
    at: int


class Either(msgspec.Struct, frozen=True):
    """One of them at least, joined by OR."""

    parts: tuple[Condition, ...]
    at: int


class Opposite(msgspec.Struct, frozen=True):
    """NOT."""

    part: Condition
    at: int


Value = Literal | Identifier | Arithmetic | Negative
Condition = Comparison | Between | OneOf | Like | IsNull | Both | Either | Opposite | Identifier | Literal
Node = Value | Condition


def children_of(node: Node) -> tuple[Node, ...]:
    """The nodes directly within one."""
    match node:
        case Both(parts=parts) | Either(parts=parts):
            return parts
        case Arithmetic(left=left, right=right) | Comparison(left=left, right=right):
            return (left, right)
        case Between(value=value, low=low, high=high):
            return (value, low, high)
        case OneOf(identifier=identifier) | Like(identifier=identifier) | IsNull(identifier=identifier):
            return (identifier,)
        case Negative(operand=operand):
            return (operand,)
        case Opposite(part=part):
            return (part,)
    return ()
