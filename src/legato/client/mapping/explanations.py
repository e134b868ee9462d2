"""Explanations of an application about a message that it does not take, made fit for the wire. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from legato.errors import MessageFormatError
from legato.quoting import is_unicode

EXPLANATION_CHARACTERS_MAX = 4000
PROPERTIES_BYTES_MAX = 8000
"""Of all of them, names too: they are in one frame with the explanation."""
_NUMBER_MAX = (1 << 63) - 1


def explanation(text: object, *, whole_end: bool = False) -> str:
    """`text`, as long as an explanation may be; half of a pair of surrogates is in it as an escape.

    Args:
        whole_end: whether its end is kept if it is too long, as of a stack trace.
    """
    said = str(text)
    said = said[-EXPLANATION_CHARACTERS_MAX:] if whole_end else said[:EXPLANATION_CHARACTERS_MAX]
    return said if is_unicode(said) else said.encode(errors="backslashreplace").decode()


def explaining_properties(properties: Mapping[str, str | int] | None) -> tuple[tuple[str, str | int], ...]:
    """`properties`, if a dead letter can have them.

    Raises:
        MessageFormatError: it cannot; the message names the one.
    """
    size = 0
    for name, value in (properties or {}).items():
        if not isinstance(name, str) or not name or not name.isascii():
            raise MessageFormatError(f"A property that explains a dead letter has a name of ASCII, not {name!r:.80}.")
        if isinstance(value, str):
            fits = is_unicode(value)
        else:
            fits = isinstance(value, int) and -_NUMBER_MAX - 1 <= value <= _NUMBER_MAX
        if not fits:
            raise MessageFormatError(
                f"The property {name:.80} that explains a dead letter is a Unicode text or a whole number of 64 bits, "
                f"not {value!r:.80}."
            )
        size += len(name) + (len(value.encode()) if isinstance(value, str) else 8)
    if size > PROPERTIES_BYTES_MAX:
        raise MessageFormatError(
            f"The properties that explain a dead letter have {size:,} bytes, and may have {PROPERTIES_BYTES_MAX:,}."
        )
    return tuple((properties or {}).items())
