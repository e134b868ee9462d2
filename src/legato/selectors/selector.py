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
_REWRITTEN = "ID:AMQP_"
"""Ids with this prefix stand for other types on the wire (AMQP JMS mapping)."""


class Selector:
    """A message selector (Jakarta Messaging 3.8.1), ready to be used."""

    __slots__ = ("identifiers", "matches", "required", "text")

    text: str
    """As it was given."""
    identifiers: frozenset[str]
    """The header fields and properties that it names."""
    required: tuple[tuple[bytes, ...], ...]
    """Of each group, a message that matches contains one in its bytes: a test that costs nearly nothing."""
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


def _required(condition: Condition) -> list[tuple[bytes, ...]]:
    """What must be in the message for the condition to be true."""
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
    if name == "JMSDeliveryMode" or any(not text or _might_be_rewritten(name, text) for text in texts):
        return []
    return [tuple(dict.fromkeys(text.encode("utf-8", "surrogatepass") for text in texts))]


def _might_be_rewritten(name: str, text: str) -> bool:
    """Whether the text of an id is made from other bytes."""
    return name.startswith("JMS") and (text.startswith(_REWRITTEN) or _REWRITTEN.startswith(text))
