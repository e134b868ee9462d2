"""Patterns of addresses: words separated by dots, `*` for any one word, `#` for any number of words, none included."""

from __future__ import annotations

from collections.abc import Sequence


def matches(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """Whether a pattern's words match those of an address.

    Its time grows with the words of both together, not with their product: which words of the address the pattern has
    reached are the bits of one number.
    """
    size = len(words)
    literals = set(pattern) - {"#", "*"}
    places: dict[str, bytearray] = {}
    for at, word in enumerate(words):
        if word in literals:
            places.setdefault(word, bytearray(size // 8 + 1))[at >> 3] |= 1 << (at & 7)
    bits = {word: int.from_bytes(found, "little") for word, found in places.items()}
    all_places = (1 << size) - 1
    reached = 1
    for part in pattern:
        if part == "#":
            reached = (all_places << 1 | 1) & -(reached & -reached)
        elif part == "*":
            reached = (reached & all_places) << 1
        else:
            reached = (reached & bits.get(part, 0)) << 1
        if not reached:
            return False
    return bool(reached >> size & 1)


def mixed_word(pattern: Sequence[str]) -> str | None:
    """The first word of a pattern that mixes a wildcard and text, which no pattern may; None if there is none."""
    return next((word for word in pattern if len(word) > 1 and ("*" in word or "#" in word)), None)


def specificity(pattern: Sequence[str]) -> list[int]:
    """Sorts patterns, the least specific first; what ends stands before `#` but after a word."""
    return [{"#": 0, "*": 2}.get(word, 3) for word in pattern] + [1]
