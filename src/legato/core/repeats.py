"""Records of duplicate detection: the stored original, and its duplicates (promise 1)."""

from __future__ import annotations

from typing import Any

import msgspec

from legato.core.facts import DuplicateDropped, DuplicateIdDropped


class First(msgspec.Struct, eq=False, gc=False):
    """The original: the message that is stored under a duplicate id.

    `lost` says that it was not stored after all: there was no room for its commit.
    """

    message_id: str
    producer: int
    number: int
    lost: bool = False


class Window:
    """The duplicate ids of one address that are not in the store yet; those in it are read when one is asked for.

    `last` is the position of the last one in the store.
    """

    __slots__ = ("dropped", "last", "pending")

    def __init__(self, last: int) -> None:
        self.last = last
        self.pending: dict[bytes, First] = {}
        self.dropped = 0
        """Duplicates since the broker began."""


class Duplicate(msgspec.Struct, gc=False):
    """A message that is not stored because another one is, or is about to be.

    `first` is that other one, None if both are the same send of a numbered producer; `told` says that the sender is to
    be told that it was a duplicate. `token` is None if nobody waits for an answer.
    """

    token: Any
    fact: DuplicateDropped | DuplicateIdDropped
    first: First | None = None
    told: bool = False

    def is_lost(self, numbers: set[tuple[int, int]]) -> bool:
        """Whether it must be refused, because the first one is.

        Args:
            numbers: messages of numbered producers that could not be stored: producer and number.
        """
        if self.first is not None and self.first.lost:
            return True
        return isinstance(self.fact, DuplicateDropped) and (self.fact.producer, self.fact.number) in numbers
