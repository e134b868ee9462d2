"""Compiled selectors, kept for those who ask for the same again."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from legato.selectors.compiler import compile_condition
from legato.selectors.nodes import Both, Comparison, Condition, Identifier, Like, Literal, Node, OneOf, children_of
from legato.selectors.patterns import prefix_of
from legato.selectors.syntax import parse

_CACHE_SELECTORS = 1024


class Selector:
    """A message selector (Jakarta Messaging 3.8.1), ready to be used."""

    __slots__ = ("identifiers", "matches", "required", "text")

    text: str
    """As it was given."""
    identifiers: frozenset[str]
    """The header fields and properties that it names."""
    required: tuple[tuple[str, tuple[bytes, ...]], ...]
    """Identifiers with texts in UTF-8: each is a string that contains one of its texts in every message that matches.

    That this is so of a message's bytes can be tested at nearly no cost, before anything is looked up.
    """
    matches: Callable[[Callable[[str], Any]], bool]
    """Whether a message matches, given a lookup of its identifiers.

    The lookup returns a value of exactly the types str, int, float, bool, or None if there is none; a value of any
    other type is like nothing.
    """

    def __init__(self, text: str) -> None:
        condition = parse(text) if text.strip() else Literal(True, 0)
        self.text = text
        self.identifiers = frozenset(_names(condition))
        self.required = tuple(_required(condition)) if text.strip() else ()
        self.matches = compile_condition(condition)

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"


@lru_cache(_CACHE_SELECTORS)
def compile_selector(text: str) -> Selector:
    """Compile a selector; an empty or blank one matches every message.

    Raises:
        InvalidSelectorError: it does not follow the syntax of Jakarta Messaging 3.8.1; the message shows the place.
    """
    return Selector(text)


def _names(condition: Condition) -> set[str]:
    names: set[str] = set()
    nodes: list[Node] = [condition]
    while nodes:
        node = nodes.pop()
        if isinstance(node, Identifier):
            names.add(node.name)
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
