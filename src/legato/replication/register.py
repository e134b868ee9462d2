"""The register of a group's replicas: what each broker says of its own, kept by the servers of the log.

It decides nothing: the log does. It is there so that a primary knows of brokers that fall behind or are gone, and so
that a broker without a store knows of those that have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

AWAY_S = 15.0
"""Who has said nothing for so long is away, or is stopped."""


class Entry(msgspec.Struct, frozen=True):
    """What a broker says of its replica.

    Args:
        listen: where it serves, or would: one entry for each.
        version: of Legato.
        state: of `replica_status.Activity`.
        epoch: of its store's last commit.
        commits: of its store.
        sequence: of the last record of the log that it has; 0 if it has none.
        behind: records of the log that it lacked then; None if it did not know.
        trouble: why it does not go on; empty if it does.
    """

    listen: str
    version: str
    state: str
    epoch: int
    commits: int
    sequence: int
    behind: int | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Registered:
    """An entry of the register.

    Args:
        entry: as its broker said it.
        age_s: so long ago, by the servers' clocks.
    """

    entry: Entry
    age_s: float


class Register(Protocol):
    """The register of one group. All calls block, and raise `LogUnavailableError` when their time is over."""

    def say(self, entry: Entry, timeout_s: float) -> None:
        """Put an entry in the place of the one with the same `listen`.

        One that has no commits does not replace one that has some: who lost its store is not to be taken for new.
        """

    def entries(self, timeout_s: float) -> Sequence[Registered]:
        """All of them, in the order of their `listen`."""

    def allow_beginning(self, timeout_s: float) -> None:
        """An administrator says that the group is new: a broker with an empty store may begin its log."""

    def may_begin(self, timeout_s: float) -> bool:
        """Whether an administrator has said that."""

    def forget(self, listen: str, timeout_s: float) -> bool:
        """Remove an entry; whether there was one."""
