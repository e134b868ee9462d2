"""Likeness of words: which known name somebody meant who wrote another one."""

from __future__ import annotations

from collections.abc import Iterable

EDITS_MAX = 3
_LETTERS_FOR_AN_EDIT = 3
"""A word of so many letters may have one mistake, one of twice as many two."""
_BEGINNING_LETTERS = 4
"""Words that begin with so many of the same letters are alike if these are more than half of the longer one."""
_SHORTENED_LETTERS = 2


def meant(word: str, known: Iterable[str], count_max: int = 3) -> list[str]:
    """The known names that are like a word, the most similar first; none rather than one that has little to do with it.

    Alike are names that are a few typing mistakes apart, names of which one is the beginning of the other, and names
    that share a long beginning. Leading dashes and the case of letters do not count.

    Args:
        count_max: at most so many.
    """
    plain = _plain(word)
    found = []
    for name in dict.fromkeys(known):
        rank = _rank(plain, _plain(name))
        if rank is not None:
            found.append((rank, name))
    return [name for _, name in sorted(found)[:count_max]]


def _plain(word: str) -> str:
    return word.lstrip("-").replace("-", "_").lower()


def _rank(word: str, name: str) -> int | None:
    """How much they differ; None if they are not alike."""
    longer = max(len(word), len(name))
    edits = edits_between(word, name)
    if edits <= min(longer // _LETTERS_FOR_AN_EDIT, EDITS_MAX):
        return edits
    if min(len(word), len(name)) >= _SHORTENED_LETTERS and (word.startswith(name) or name.startswith(word)):
        return longer
    same = next((at for at, (one, other) in enumerate(zip(word, name, strict=False)) if one != other), 0)
    return longer if same >= _BEGINNING_LETTERS and same > longer / 2 else None


def edits_between(one: str, other: str) -> int:
    """Letters to insert, delete or replace, or neighbours to swap, until one word is the other."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        current = [row]
        for column, wanted in enumerate(other, 1):
            edits = min(last[column] + 1, current[-1] + 1, last[column - 1] + (letter != wanted))
            swapped = row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == wanted
            current.append(min(edits, before[column - 2] + 1) if swapped else edits)
        before, last = last, current
    return last[-1]
