"""Bounds on what one user, one address of origin, or all peers together may take. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0)]


class Bounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds; 0: none."""

    connections: Count = 0
    """Connections that have logged in and opened."""
    half_open: Count = 0
    """Connections that have not; of a user there are none."""
    sessions: Count = 0
    links: Count = 0
    held_bytes: Count = 0
    """Of messages that came in part, of open transactions, and of answers that are not read."""
    creations_per_minute: Count = 0
    """Queues, topics, subscriptions and temporary destinations."""
    messages_per_s: Count = 0
    """Messages that arrive, and outcomes of those that were delivered."""


class SomeUserBounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds of users, as far as they are given: see `Bounds`."""

    connections: Count | None = None
    sessions: Count | None = None
    links: Count | None = None
    held_bytes: Count | None = None
    creations_per_minute: Count | None = None
    messages_per_s: Count | None = None


class SomeBounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds, as far as they are given: see `Bounds`."""

    connections: Count | None = None
    half_open: Count | None = None
    sessions: Count | None = None
    links: Count | None = None
    held_bytes: Count | None = None
    creations_per_minute: Count | None = None
    messages_per_s: Count | None = None


TOTAL = Bounds(
    connections=20_000,
    half_open=4_000,
    sessions=400_000,
    links=1_000_000,
    held_bytes=4 << 30,
    creations_per_minute=600_000,
    messages_per_s=10_000_000,
)
EACH = Bounds(
    connections=10_000,
    half_open=3_000,
    sessions=100_000,
    links=200_000,
    held_bytes=1 << 30,
    creations_per_minute=120_000,
    messages_per_s=1_000_000,
)
"""Of one user, or one address of origin: high enough for a host of honest clients, and less than all may take."""


class UserBounds:
    """The bounds of each user.

    Args:
        general: of a user who has no others.
        of_users: those that differ, by user.
        of_roles: those that differ, by role; of several the highest holds.
    """

    def __init__(
        self, general: Bounds, of_users: Mapping[str, SomeUserBounds], of_roles: Mapping[str, SomeUserBounds]
    ) -> None:
        self._general = general
        self._of_users = of_users
        self._of_roles = of_roles

    def of(self, user: str, roles: Collection[str]) -> Bounds:
        """The bounds of a user: its own, else those of its roles, else the general ones, each for itself."""
        fields: dict[str, int] = {}
        for role in roles:
            for name, bound in _given(self._of_roles.get(role)):
                fields[name] = _higher(fields[name], bound) if name in fields else bound
        fields.update(_given(self._of_users.get(user)))
        return msgspec.structs.replace(self._general, **fields) if fields else self._general


def completed(some: SomeBounds | SomeUserBounds, others: Bounds) -> Bounds:
    """Bounds of which some are given, and the others are these."""
    return msgspec.structs.replace(others, **dict(_given(some)))


def _given(some: SomeBounds | SomeUserBounds | None) -> list[tuple[str, int]]:
    fields = {} if some is None else msgspec.structs.asdict(some)
    return [(name, bound) for name, bound in fields.items() if bound is not None]


def _higher(one: int, other: int) -> int:
    return max(one, other) if one and other else 0
