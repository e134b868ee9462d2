"""Words of peers as data: names, ids, reasons and bodies, made fit for a log, a terminal or a page."""

from __future__ import annotations

WORD_CHARACTERS_MAX = 255
"""Of a name or an id; see `quoted`."""
SENTENCE_CHARACTERS_MAX = 1000
"""Of a line of a log, or of a sentence that another process wrote."""

ERROR_CHARACTERS_MAX = 4000
"""Of an error that a command ends with."""

_QUOTES = frozenset(" \"'\\")
_HARMLESS = frozenset("\u200c\u200d\xa0\u1680\u202f\u205f\u3000") | {chr(code) for code in range(0x2000, 0x200B)}
"""Spaces, and joiners of letters and emoji: not printable, but texts in some languages need them."""


def is_unicode(text: str) -> bool:
    """Whether a text can be sent: half of a pair of surrogates, as in names of odd files, is in no encoding."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def escaped(text: str, characters_max: int = 0) -> str:
    """A text without what a terminal would obey: each character that is not printable is written as Python writes it.

    Line breaks, escape sequences, marks of text direction and zero-width characters are not printable.

    Args:
        characters_max: what is longer is cut, and its length is said; 0 for any length.
    """
    cut, text = _cut(text, characters_max)
    if not text.isprintable():
        text = "".join(character if character.isprintable() else _spelt(character) for character in text)
    return text + cut


def quoted(word: object, characters_max: int = WORD_CHARACTERS_MAX) -> str:
    """A name or an id in a sentence or table: as it is if it is one plain word, else in quotes, escaped and cut.

    So nothing in it can be taken for the words around it.
    """
    cut, text = _cut(word if isinstance(word, str) else str(word), characters_max)
    if text and text.isprintable() and _QUOTES.isdisjoint(text):
        return text + cut
    # `repr` of a subclass of str may be anything.
    return repr(str.__str__(text)) + cut


def sentence(text: object) -> str:
    """An error, or what else another process says in a sentence: escaped and cut. Names in it are quoted already."""
    return escaped(str(text), SENTENCE_CHARACTERS_MAX)


def one_line(text: str) -> str:
    """A body on one line: escaped, but for spaces of all kinds and joiners, which do no harm."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in _HARMLESS else _spelt(character) for character in text
    )


def lines(text: str) -> str:
    """A text of several lines, such as a stack trace or a body: its line breaks stay, and what they divide is as by
    `one_line`."""
    return "\n".join(one_line(line.expandtabs(4)) for line in text.split("\n"))


def _spelt(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _cut(text: str, characters_max: int) -> tuple[str, str]:
    """What is said of the cut, and the text that is left."""
    if not characters_max or len(text) <= characters_max:
        return "", text
    return f" ... and {len(text) - characters_max} characters more", text[:characters_max]
