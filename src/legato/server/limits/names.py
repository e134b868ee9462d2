"""Names that peers give to what outlives them: addresses, subscriptions, containers, producers, sinks. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

from legato.core.refusals import Refusal
from legato.quoting import is_unicode

_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Characters that Unicode counts among letters, marks and symbols, and that nobody sees."""
_SHOWN_MAX = 80


class UnfitName(Refusal):
    """A name that cannot be given."""

    condition = "amqp:invalid-field"


class Names:
    """Decides which names may be given; what has a name already keeps it.

    Args:
        bytes_max: in UTF-8.
        printable: whether only printable characters may be in them.
    """

    def __init__(self, bytes_max: int, *, printable: bool = True) -> None:
        self.replace(bytes_max, printable=printable)

    def replace(self, bytes_max: int, *, printable: bool) -> None:
        """From now on these bounds hold."""
        self.bytes_max = bytes_max
        self.printable = printable

    def check(self, name: str, what: str, is_known: Callable[[], bool] = lambda: False) -> None:
        """See that a name may be given.

        Args:
            what: what it is the name of, with an article, for the error.
            is_known: whether there is such a thing already; is called if the name could not be given today.

        Raises:
            UnfitName: it is too long, or has characters that cannot be seen.
        """
        reason = self._unfitness(name)
        if reason and not (is_unicode(name) and is_known()):
            shown = f"{name[:_SHOWN_MAX]!a}{'...' if len(name) > _SHOWN_MAX else ''}"
            raise UnfitName(f"{shown} cannot be the name of {what}: {reason}.")

    def _unfitness(self, name: str) -> str:
        """Why a name may not be given; empty if it may."""
        plain = name.isascii()
        size = len(name) if plain else len(name.encode("utf-8", "surrogatepass"))
        if size > self.bytes_max:
            return f"it has {size} bytes; names have at most {self.bytes_max}"
        if not (self.printable or is_unicode(name)) or (
            self.printable and not (name.isprintable() and (plain or not _INVISIBLE.search(name)))
        ):
            found = next(each for each in name if not each.isprintable() or _INVISIBLE.match(each))
            return f"the character U+{ord(found):04X} in it is not printable"
        return ""
