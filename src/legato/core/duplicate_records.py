"""Records of duplicate detection: the stored original, and its duplicates (promise 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from legato.core.facts import DuplicateDropped, DuplicateIdDropped

if TYPE_CHECKING:
    from legato.core.outcome import Outcome, RefusedCommit


class StoredOriginal(msgspec.Struct, eq=False, gc=False):
    """The original: the message that is stored under a duplicate id.

    `lost` says that it was not stored after all: there was no room for its commit.
    """

    message_id: str
    producer: int
    number: int
    lost: bool = False


class IdWindow:
    """The duplicate ids of one address that are not in the store yet; those in it are read when one is asked for.

    `last` is the position of the last one in the store.
    """

    __slots__ = ("dropped", "last", "pending")

    def __init__(self, last: int) -> None:
        self.last = last
        self.pending: dict[bytes, StoredOriginal] = {}
        self.dropped = 0
        """Duplicates since the broker began."""


class DroppedDuplicate(msgspec.Struct, gc=False):
    """A message that is not stored because another one is, or is about to be.

    `first` is that other one, None if both are the same send of a numbered producer; `told` says that the sender is to
    be told that it was a duplicate. `token` is None if nobody waits for an answer.
    """

    token: Any
    fact: DuplicateDropped | DuplicateIdDropped
    first: StoredOriginal | None = None
    told: bool = False

    def is_lost(self, numbers: set[tuple[int, int]]) -> bool:
        """Whether it must be refused, because the first one is.

        Args:
            numbers: messages of numbered producers that could not be stored: producer and number.
        """
        if self.first is not None and self.first.lost:
            return True
        return isinstance(self.fact, DuplicateDropped) and (self.fact.producer, self.fact.number) in numbers

    def durable(self, outcome: Outcome) -> None:
        """The first one is stored: the sender is told."""
        if self.token is not None:
            (outcome.repeated if self.told else outcome.passed_over).append(self.token)

    def refused(self, refusal: RefusedCommit) -> None:
        """What repeats a message that is not stored is refused with it; others are of one that is."""
        if isinstance(self.fact, DuplicateIdDropped) and self.fact.txn in refusal.rolled_back:
            refusal.replace(self.fact)
        elif self.is_lost(refusal.lost):
            refusal.refuse(self.token, self.fact)
        else:
            refusal.retry(self)


class IdKept(msgspec.Struct, gc=False):
    """A message has a duplicate id from now on."""

    window: IdWindow
    duplicate_id: bytes
    first: StoredOriginal

    def durable(self, outcome: Outcome) -> None:
        """The id is in the store."""
        self.window.last += 1
        del self.window.pending[self.duplicate_id]

    def refused(self, refusal: RefusedCommit) -> None:
        """It is lost with its message: see `Duplicates.lose_ids`, for others look at it before."""
