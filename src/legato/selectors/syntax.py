"""Parse selectors into nodes, with errors that show the place."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedEOF, UnexpectedToken

from legato import limits
from legato.errors import InvalidSelectorError
from legato.selectors.literals import LiteralError, integer_of, real_of, string_of
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
from legato.selectors.patterns import escapes_well
from legato.selectors.values import negative

DEPTH_MAX = 64
"""Brackets, signs and operations within one another."""
CHARACTERS_MAX = limits.SELECTOR_CHARACTERS_MAX

_KEYWORDS = {
    word.upper(): kind
    for kind in ("_OR", "_AND", "_NOT", "_BETWEEN", "_IN", "_LIKE", "_ESCAPE", "_IS", "_NULL", "TRUE", "FALSE")
    for word in [kind.strip("_")]
}
_NO_FIELDS = frozenset(("JMSDestination", "JMSReplyTo", "JMSExpiration", "JMSRedelivered", "JMSDeliveryTime"))
"""Header fields that a selector may not name (Jakarta Messaging 3.8.1.1)."""
_START = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"))
_PART = _START | {"Nd", "Mn", "Mc", "Cf"}
_SHOWN_MAX = 40
_LONG_MAX = (1 << 63) - 1


class _Wrong(Exception):
    """A mistake and its place."""

    def __init__(self, at: int, words: str) -> None:
        super().__init__(words)
        self.at = at
        self.words = words


def parse(text: str, characters_max: int = CHARACTERS_MAX) -> Condition:
    """The condition that a selector states, of at most so many characters.

    Raises:
        InvalidSelectorError: `text` is none; the message shows the place.
    """
    if len(text) > characters_max:
        raise InvalidSelectorError(f"The selector has more than {characters_max} characters.")
    try:
        root = _condition(_parser().parse(text))  # type: ignore[arg-type]
        _check_depth(root)
        return root
    except UnexpectedCharacters as error:
        at = error.pos_in_stream or 0
        raise InvalidSelectorError(_sentence(text, at, _unreadable(text, at))) from None
    except (UnexpectedToken, UnexpectedEOF) as error:
        token = getattr(error, "token", None)
        if token is None or token.type == "$END":
            raise InvalidSelectorError(f"The selector ends too early: {_shown(text[-_SHOWN_MAX:])} ...") from None
        raise InvalidSelectorError(_sentence(text, _at(token), f"{str(token)!r} cannot stand here")) from None
    except _Wrong as error:
        raise InvalidSelectorError(_sentence(text, error.at, error.words)) from None


def _unreadable(text: str, at: int) -> str:
    if text[at] == "'":
        return "the string that begins here has no end"
    if text[at] == '"':
        return "a string stands in single quotes"
    return f"{text[at]!r} has no meaning in a selector"


def _sentence(text: str, at: int, words: str) -> str:
    before = text[max(0, at - _SHOWN_MAX) : at]
    after = text[at : at + _SHOWN_MAX]
    return f"The selector is not valid at character {at + 1}: {words}: {_shown(before)} >>> {_shown(after)}"


def _shown(text: str) -> str:
    return " ".join(text.split())


def _keyword(token: Token) -> Token:
    """A name, or the keyword that it is."""
    kind = _KEYWORDS.get(token.upper())
    if kind is not None:
        return Token.new_borrow_pos(kind, token, token)
    if not token.isascii():
        for place, character in enumerate(token):
            allowed = _PART if place else _START
            if character > "\x7f" and unicodedata.category(character) not in allowed:
                raise _Wrong(_at(token) + place, f"{character!r} cannot stand in a name")
    return token


def _at(token: Token) -> int:
    return token.start_pos or 0


def _value(node: Node) -> Value:
    """A node that may be compared."""
    if isinstance(node, Literal) and type(node.value) is int and node.value > _LONG_MAX:
        raise _Wrong(node.at, "the number does not fit a long")
    if not isinstance(node, Literal | Identifier | Arithmetic | Negative):
        raise _Wrong(node.at, "this is a condition, where a value is needed")
    return node


def _number(node: Node) -> Value:
    """A node that may be reckoned with."""
    value = _value(node)
    if isinstance(value, Literal) and type(value.value) not in (int, float):
        raise _Wrong(node.at, "this is no number")
    return value


def _kind(value: Value) -> str:
    """Type of a value, empty if only the message decides it."""
    match value:
        case Literal(value=str()):
            return "string"
        case Literal(value=bool()):
            return "boolean"
        case Identifier():
            return ""
    return "number"


def _condition(node: Node) -> Condition:
    """A node that is true, false or unknown."""
    if isinstance(node, Arithmetic | Negative) or (isinstance(node, Literal) and type(node.value) is not bool):
        raise _Wrong(node.at, "this is a value, where a condition is needed")
    return node


def _named(node: Node, operator: str) -> Identifier:
    if not isinstance(node, Identifier):
        raise _Wrong(node.at, f"only a name can stand before {operator}")
    return node


class _Nodes(Transformer[Token, Node]):
    """Called by the parser for each rule, from the inside out: what the grammar cannot say of types is checked here."""

    def identifier(self, children: list[Token]) -> Node:
        token = children[0]
        if token in _NO_FIELDS:
            raise _Wrong(_at(token), f"{token} cannot be selected by")
        return Identifier(str(token), _at(token))

    def string(self, children: list[Token]) -> Node:
        return Literal(string_of(children[0]), _at(children[0]))

    def integer(self, children: list[Token]) -> Node:
        return self._literal(integer_of, children[0])

    def real(self, children: list[Token]) -> Node:
        return self._literal(real_of, children[0])

    def _literal(self, read: Callable[[str], int | float], token: Token) -> Node:
        try:
            return Literal(read(token), _at(token))
        except LiteralError as error:
            raise _Wrong(_at(token), str(error)) from None

    def true(self, children: list[Token]) -> Node:
        return Literal(True, _at(children[0]))

    def false(self, children: list[Token]) -> Node:
        return Literal(False, _at(children[0]))

    def positive(self, children: list[Node]) -> Node:
        return _number(children[0])

    def negative(self, children: list[Node]) -> Node:
        operand = children[0]
        if isinstance(operand, Literal) and type(operand.value) in (int, float):
            negated = negative(operand.value)
            assert negated is not None, "a number has a negative"
            return Literal(negated, operand.at)
        return Negative(_number(operand), operand.at)

    def plus(self, children: list[Node]) -> Node:
        return self._arithmetic("+", children)

    def minus(self, children: list[Node]) -> Node:
        return self._arithmetic("-", children)

    def times(self, children: list[Node]) -> Node:
        return self._arithmetic("*", children)

    def divided(self, children: list[Node]) -> Node:
        return self._arithmetic("/", children)

    def _arithmetic(self, operator: str, children: list[Node]) -> Node:
        left, right = children
        return Arithmetic(operator, _number(left), _number(right), left.at)

    def compared(self, children: list[Any]) -> Node:
        left, token, right = children
        if token in ("=", "<>"):
            kinds = {_kind(_value(left)), _kind(_value(right))} - {""}
            if len(kinds) == 2:
                raise _Wrong(left.at, "values of different types are compared")
            return Comparison(str(token), left, right, left.at)
        return Comparison(str(token), _number(left), _number(right), left.at)

    def between(self, children: list[Node], negated: bool = False) -> Node:
        value, low, high = children
        return Between(_number(value), _number(low), _number(high), negated, value.at)

    def not_between(self, children: list[Node]) -> Node:
        return self.between(children, True)

    def strings(self, children: list[Token]) -> tuple[str, ...]:
        return tuple(map(string_of, children))

    def one_of(self, children: list[Any], negated: bool = False) -> Node:
        node, strings = children
        return OneOf(_named(node, "IN"), strings, negated, node.at)

    def none_of(self, children: list[Any]) -> Node:
        return self.one_of(children, True)

    def pattern(self, children: list[Token]) -> tuple[str, str]:
        pattern, escape = string_of(children[0]), ""
        if len(children) == 2:
            escape = string_of(children[1])
            if len(escape) != 1:
                raise _Wrong(_at(children[1]), "the escape character is one character")
            if not escapes_well(pattern, escape):
                raise _Wrong(_at(children[0]), "the pattern ends with the escape character, which escapes nothing")
        return pattern, escape

    def like(self, children: list[Any], negated: bool = False) -> Node:
        node, (pattern, escape) = children
        return Like(_named(node, "LIKE"), pattern, escape, negated, node.at)

    def not_like(self, children: list[Any]) -> Node:
        return self.like(children, True)

    def absent(self, children: list[Node], negated: bool = False) -> Node:
        return IsNull(_named(children[0], "IS NULL"), negated, children[0].at)

    def present(self, children: list[Node]) -> Node:
        return self.absent(children, True)

    def opposite(self, children: list[Node]) -> Node:
        return Opposite(_condition(children[0]), children[0].at)

    def both(self, children: list[Node]) -> Node:
        return Both(tuple(map(_condition, children)), children[0].at)

    def either(self, children: list[Node]) -> Node:
        return Either(tuple(map(_condition, children)), children[0].at)


def _check_depth(root: Node) -> None:
    """Python's own compiler has a limit too, and says nothing a user understands."""
    layer: list[Any] = [root]
    for _ in range(DEPTH_MAX):
        layer = [child for node in layer for child in children_of(node)]
        if not layer:
            return
    raise _Wrong(layer[0].at, f"more than {DEPTH_MAX} operations within one another")


def prepare() -> None:
    """Make the parser now, which takes a tenth of a second: else the first selector waits for it."""
    _parser()


@cache
def _parser() -> Lark:
    return Lark(
        files(__package__).joinpath("grammar.lark").read_text("utf-8"),
        parser="lalr",
        lexer="basic",
        start="selector",
        maybe_placeholders=False,
        transformer=_Nodes(),
        lexer_callbacks={"IDENTIFIER": _keyword},
    )
