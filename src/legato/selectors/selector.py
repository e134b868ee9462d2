"""Compiled selectors, and a cache of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from legato.selectors.compiler import compile_condition
from legato.selectors.nodes import Both, Comparison, Condition, Identifier, Like, Literal, Node, OneOf, children_of
from legato.selectors.patterns import prefix_of
from legato.selectors.syntax import CHARACTERS_MAX, parse

_CACHE_CHARACTERS = 1 << 15
"""Of the texts of selectors that are kept; each takes some hundred times its text."""


class Selector:
    """A message selector (Jakarta Messaging 3.8.1), ready to be used."""

    __slots__ = ("identifiers", "lookups", "matches", "required", "text")

    text: str
    """As it was given."""
    identifiers: frozenset[str]
    """The header fields and properties that it names."""
    lookups: int
    """How often it names any, at most as often as it looks one up for a message."""
    required: tuple[tuple[str, tuple[bytes, ...]], ...]
    """Identifiers with texts in UTF-8: each is a string that contains one of its texts in every message that matches.

    That this is so of a message's bytes can be tested at nearly no cost, before anything is looked up.
    """
    matches: Callable[[Callable[[str], Any]], bool]
    """Whether a message matches, given a lookup of its identifiers.

    The lookup returns a value of exactly the types str, int, float, bool, or None if there is none; a value of any
    other type is like nothing.
    """

    def __init__(self, text: str, characters_max: int = CHARACTERS_MAX) -> None:
        condition = parse(text, characters_max) if text.strip() else Literal(True, 0)
        self.text = text
        names = _names(condition)
        self.identifiers = frozenset(names)
        self.lookups = len(names)
        self.required = tuple(_required(condition)) if text.strip() else ()
        self.matches = compile_condition(condition)

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"


_kept: dict[str, Selector] = {}


def compile_selector(text: str, characters_max: int = CHARACTERS_MAX) -> Selector:
    """Compile a selector; an empty or blank one matches every message.

    Raises:
        InvalidSelectorError: it does not follow the syntax of Jakarta Messaging 3.8.1; the message shows the place.
    """
    selector = _kept.get(text) if len(text) <= characters_max else None
    if selector is None:
        selector = Selector(text, characters_max)
        if sum(map(len, list(_kept))) + len(text) > _CACHE_CHARACTERS:
            _kept.clear()
        _kept[text] = selector
    return selector


def _names(condition: Condition) -> list[str]:
    """The identifiers, each as often as it is there."""
    names: list[str] = []
    nodes: list[Node] = [condition]
    while nodes:
        node = nodes.pop()
        if isinstance(node, Identifier):
            names.append(node.name)
        nodes.extend(children_of(node))
    return names


def _required(condition: Condition) -> list[tuple[str, tuple[bytes, ...]]]:
    match condition:
        case Both(parts=parts):
            return [group for part in parts for group in _required(part)]
        case (
            Comparison(operator="=", left=Identifier(name=name), right=Literal(value=str(text)))
            | Comparison(operator="=", left=Literal(value=str(text)), right=Identifier(name=name))
        ):
            texts: tuple[str, ...] = (text,)
        case OneOf(identifier=Identifier(name=name), strings=texts, negated=False):
            pass
        case Like(identifier=Identifier(name=name), pattern=pattern, escape=escape, negated=False):
            texts = (prefix_of(pattern, escape),)
        case _:
            return []
    if not all(texts):
        return []
    return [(name, tuple(text.encode("utf-8", "surrogatepass") for text in dict.fromkeys(texts)))]
