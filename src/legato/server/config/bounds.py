"""Bounds on what one user, one address of origin, or all peers together may take. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any

import msgspec

from legato import limits

Count = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=limits.SECONDS_MAX)]


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
    acknowledgement_timeout_s: Seconds = 0.0
    transaction_timeout_s: Seconds = 0.0


class TotalBounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[limits.total]`: of all peers together."""

    connections: Count = 20_000
    half_open: Count = 4_000
    sessions: Count = 400_000
    links: Count = 1_000_000
    held_bytes: Count = 4 << 30
    creations_per_minute: Count = 600_000
    messages_per_s: Count = 10_000_000


class OriginBounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[limits.origin]`: of one address; high enough for a host of honest clients, and less than all may take."""

    connections: Count = 10_000
    half_open: Count = 3_000
    sessions: Count = 100_000
    links: Count = 200_000
    held_bytes: Count = 1 << 30
    creations_per_minute: Count = 120_000
    messages_per_s: Count = 1_000_000


class GeneralUserBounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[limits.user]`: of one user."""

    connections: Count = 10_000
    sessions: Count = 100_000
    links: Count = 200_000
    held_bytes: Count = 1 << 30
    creations_per_minute: Count = 120_000
    messages_per_s: Count = 1_000_000
    acknowledgement_timeout_s: Seconds = 0.0
    transaction_timeout_s: Seconds = 0.0


class Timeouts(msgspec.Struct, frozen=True):
    """Time-outs of a user; 0: none."""

    acknowledgement_timeout_s: float = 0.0
    transaction_timeout_s: float = 0.0


class SomeUserBounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[limits.users.NAME]` and `[limits.roles.NAME]`: bounds that differ."""

    connections: Count | None = None
    sessions: Count | None = None
    links: Count | None = None
    held_bytes: Count | None = None
    creations_per_minute: Count | None = None
    messages_per_s: Count | None = None
    acknowledgement_timeout_s: Seconds | None = None
    transaction_timeout_s: Seconds | None = None


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
        fields: dict[str, Any] = {}
        for role in roles:
            for name, bound in _given(self._of_roles.get(role)):
                fields[name] = _higher(fields[name], bound) if name in fields else bound
        fields.update(_given(self._of_users.get(user)))
        return msgspec.structs.replace(self._general, **fields) if fields else self._general


def bounds_of(section: TotalBounds | OriginBounds | GeneralUserBounds) -> Bounds:
    """The bounds of a section."""
    return Bounds(**msgspec.structs.asdict(section))


def _given(some: SomeUserBounds | None) -> list[tuple[str, Any]]:
    fields = {} if some is None else msgspec.structs.asdict(some)
    return [(name, bound) for name, bound in fields.items() if bound is not None]


def _higher(one: float, other: float) -> float:
    return max(one, other) if one and other else 0
