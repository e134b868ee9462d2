"""LIKE patterns: `%` matches any text, `_` any character; an escape character makes them literal."""

from __future__ import annotations

import re
from collections.abc import Callable

_PLAIN_COST = 8
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


def cost_of(pattern: str, escape: str) -> int:
    """About how many steps of a search the pattern takes for each character of a text."""
    _, *others = _segments(pattern, escape)
    wild = [len(segment) for segment in others[:-1] if None in segment]
    return _PLAIN_COST + max(wild, default=0)


def matcher_of(pattern: str, escape: str) -> Callable[[str], bool]:
    """A function that says whether a text matches the pattern.

    Between two `%` the first place that fits is as good as any later one, so that nothing is looked at twice. What has
    no `_` is found in a time that grows with the text alone; else it grows with `cost_of` too.
    """
    first, *others = (_Segment(segment) for segment in _segments(pattern, escape))
    if not others:
        return lambda text: len(text) == first.size and first.is_at(text, 0)
    *inner, last = others
    middle = [segment for segment in inner if segment.size]
    size_min = first.size + sum(segment.size for segment in middle) + last.size

    def matches(text: str) -> bool:
        end = len(text) - last.size
        if len(text) < size_min or not first.is_at(text, 0) or not last.is_at(text, end):
            return False
        at = first.size
        for segment in middle:
            at = segment.end_in(text, at, end)
            if at < 0:
                return False
        return at <= end

    return matches


class _Segment:
    """The text between two `%`."""

    __slots__ = ("_compiled", "_text", "size")

    def __init__(self, pieces: list[_Piece]) -> None:
        self.size = len(pieces)
        self._text = "".join(piece or "_" for piece in pieces)
        self._compiled = re.compile(_expression(pieces), re.DOTALL) if None in pieces else None

    def is_at(self, text: str, at: int) -> bool:
        if self._compiled is not None:
            return self._compiled.match(text, at) is not None
        return text.startswith(self._text, at)

    def end_in(self, text: str, at: int, end: int) -> int:
        """End of its first occurrence between the two, -1 if there is none."""
        if self._compiled is not None:
            found = self._compiled.search(text, at, end)
            return -1 if found is None else found.end()
        place = text.find(self._text, at, end)
        return -1 if place < 0 else place + self.size


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
