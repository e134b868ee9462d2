"""Dead letters among groups: they are where the queue is that they come from, whatever map or hash say of their own."""

from __future__ import annotations

from collections.abc import Iterable

MUTED_PREFIX = "MUTED."
"""Before the name of a dead-letter queue, in that of the queue in which its muted dead letters are."""
_ADDRESS = "{address}"


def origin_of(address: str, dead_letter_queues: Iterable[str]) -> str | None:
    """The address whose dead letters are there, muted ones too, or the address itself; None if those of all are.

    Args:
        dead_letter_queues: what settings say of the names of dead-letter queues: `{address}` stands for their queue's.
            Where several fit, a whole name goes before a pattern, and of patterns the one with most text.
    """
    patterns = sorted(dead_letter_queues, key=lambda pattern: (_ADDRESS in pattern, -len(pattern), pattern))
    letters = address.removeprefix(MUTED_PREFIX)
    for pattern in patterns:
        if _ADDRESS not in pattern:
            if pattern == letters:
                return None
            continue
        before, _, after = pattern.partition(_ADDRESS)
        inside = len(letters) > len(before) + len(after)
        if inside and letters.startswith(before) and letters.endswith(after) and (before or after):
            return letters[len(before) : len(letters) - len(after)]
    return address
