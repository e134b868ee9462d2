"""Patterns of LIKE: `%` is any text, `_` any character, and an escape character takes their meaning away."""

from __future__ import annotations

import re
from collections.abc import Callable

_Piece = str | None
"""A character, None for any character."""


def escapes_well(pattern: str, escape: str) -> bool:
    """Whether each escape character has a character to escape."""
    at = 0
    while at < len(pattern):
        at += 2 if pattern[at] == escape else 1
    return at == len(pattern)


def prefix_of(pattern: str, escape: str) -> str:
    """The characters that every text which matches begins with."""
    prefix = []
    for piece in _segments(pattern, escape)[0]:
        if piece is None:
            break
        prefix.append(piece)
    return "".join(prefix)


def matcher_of(pattern: str, escape: str) -> Callable[[str], object]:
    """A function that says whether a text matches the pattern: something true, or something false.

    Its time grows with the length of text and pattern, whatever they are: between two `%` the first place that fits is
    as good as any later one, so that nothing is tried twice (the atomic groups).
    """
    first, *others = _segments(pattern, escape)
    expression = _expression(first)
    if others:
        *inner, last = others
        expression += "".join(f"(?>.*?{_expression(segment)})" for segment in inner if segment)
        expression += ".*" + _expression(last)
    return re.compile(expression, re.DOTALL).fullmatch


def _segments(pattern: str, escape: str) -> list[list[_Piece]]:
    """The parts of a pattern between its `%`."""
    segments: list[list[_Piece]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if escape and character == escape:
            segments[-1].append(next(characters))
        elif character == "%":
            segments.append([])
        else:
            segments[-1].append(None if character == "_" else character)
    return segments


def _expression(segment: list[_Piece]) -> str:
    return "".join("." if piece is None else re.escape(piece) for piece in segment)
