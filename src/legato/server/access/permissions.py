"""Permissions: which role allows which operation on which address. Pure: it decides, and somebody else asks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import IntEnum

import msgspec

from legato.address_patterns import matches
from legato.core.refusals import Refusal

SEND, RECEIVE, BROWSE, CREATE, DELETE, BULK = OPERATIONS = ("send", "receive", "browse", "create", "delete", "bulk")
EVERYBODY = "*"
"""As a member of a role: whoever has logged in."""
GROUP_PREFIX = "group:"
"""As the beginning of a member: whoever a token says has a role of that name."""
TEMPORARY_QUEUE, TEMPORARY_TOPIC = "temp-queue", "temp-topic"
_KINDS = ("queue", "topic", TEMPORARY_QUEUE, TEMPORARY_TOPIC)
DECISIONS_MAX = 10_000
"""Decisions that are remembered for a user."""
_ADDRESS_CHARACTERS_MAX = 255
"""Decisions about longer ones are not remembered."""


class Level(IntEnum):
    """What a role may do by management; each includes those before it."""

    NONE = 0
    VIEW = 1
    OPERATE = 2
    ADMINISTER = 3


class Denied(Refusal):
    """A user lacks a permission; the message names it."""

    condition = "amqp:unauthorized-access"


class Grant(msgspec.Struct, frozen=True):
    """What a role may do with the addresses of a pattern.

    Attributes:
        on: the pattern as it is written.
        kind: `queue`, `topic`, `temp-queue` or `temp-topic`; empty for all.
        words: of the pattern.
    """

    on: str
    kind: str
    words: tuple[str, ...]
    may: frozenset[str]


class Role(msgspec.Struct, frozen=True):
    """What its members may do."""

    name: str
    members: frozenset[str] = frozenset()
    grants: tuple[Grant, ...] = ()
    management: Level = Level.NONE


class Decision(msgspec.Struct, frozen=True):
    """Whether something is allowed, and by which role and pattern, or else what is missing."""

    allowed: bool
    reason: str


def parse_pattern(on: str) -> tuple[str, tuple[str, ...]]:
    """The kind of destination that a pattern is for, and its words.

    Raises:
        ValueError: it is no pattern; the message says why.
    """
    kind, separator, rest = on.partition("://")
    if not separator:
        kind, rest = "", on
    elif kind not in _KINDS:
        raise ValueError(f"{kind}:// is none of {', '.join(f'{known}://' for known in _KINDS)}")
    words = tuple(rest.split("."))
    wrong = next((word for word in words if len(word) > 1 and ("*" in word or "#" in word)), None)
    if not rest or wrong is not None:
        raise ValueError(f"{on!r} is no pattern: '*' stands for one whole word, '#' for any number of them")
    return kind, words


def split_address(address: str, topic: bool | None) -> tuple[str, str]:
    """The kind of a destination, empty if it is not known, and its plain name."""
    kind, separator, name = address.partition("://")
    if separator and kind in _KINDS:
        return kind, name
    return "" if topic is None else "topic" if topic else "queue", address


class Permissions:
    """All roles."""

    def __init__(self, roles: Sequence[Role]) -> None:
        self.roles = {role.name: role for role in roles}

    def roles_of(self, user: str, given: Collection[str], groups: Collection[str], *, known: bool = True) -> list[Role]:
        """The roles of a user.

        Args:
            given: those that the users file gives it.
            groups: those that its token says it has.
            known: whether it has logged in.
        """
        names = {GROUP_PREFIX + group for group in groups}
        if known:
            names.add(EVERYBODY)
        if not user.startswith(GROUP_PREFIX):
            names.add(user)
        return [
            role
            for role in self.roles.values()
            if role.name in given or role.name in groups or not names.isdisjoint(role.members)
        ]


def decide(user: str, roles: Sequence[Role], operation: str, address: str, topic: bool | None = None) -> Decision:
    """Whether a user with these roles may do something with an address."""
    kind, name = split_address(address, topic)
    words = name.split(".")
    for role in roles:
        for grant in role.grants:
            # What is not known to be a queue or a topic may turn out to be either: only what is for both will do.
            if operation in grant.may and grant.kind in ("", kind) and matches(grant.words, words):
                return Decision(True, f"the role {role.name!r} allows {operation} on {grant.on!r}")
    what = f"{kind}://{name}" if kind and kind != "queue" else name
    return Decision(False, f"{_missing(user, roles)}: {operation} on {what!r}")


def decide_level(user: str, roles: Sequence[Role], level: Level) -> Decision:
    """Whether a user with these roles may do something by management."""
    best = max(roles, key=lambda role: role.management, default=None)
    if best is not None and best.management >= level:
        return Decision(True, f"the role {best.name!r} has management = {best.management.name.lower()!r}")
    return Decision(False, f"{_missing(user, roles)}: management = {level.name.lower()!r}")


def _missing(user: str, roles: Sequence[Role]) -> str:
    having = f"with the roles {', '.join(role.name for role in roles)}" if roles else "with no role"
    return f"The user {user!r}, {having}, lacks a permission"


class Rights:
    """What one user may do; decisions are remembered."""

    def __init__(self, user: str, roles: Sequence[Role]) -> None:
        self.user = user
        self.roles = tuple(roles)
        self._allowed: dict[tuple[str, str, bool | None], bool] = {}

    def may(self, operation: str, address: str, topic: bool | None = None) -> bool:
        """Whether an operation on an address is allowed.

        Args:
            topic: whether the address is a topic's, None if that is not known; of no matter if it has a prefix.
        """
        key = (operation, address, topic)
        known = self._allowed.get(key)
        if known is None:
            known = decide(self.user, self.roles, operation, address, topic).allowed
            if len(address) <= _ADDRESS_CHARACTERS_MAX:
                if len(self._allowed) >= DECISIONS_MAX:
                    self._allowed.clear()
                self._allowed[key] = known
        return known

    def demand(self, operation: str, address: str, topic: bool | None = None) -> None:
        """See that an operation on an address is allowed.

        Raises:
            Denied: it is not; the message names the permission that is missing.
        """
        if not self.may(operation, address, topic):
            raise Denied(decide(self.user, self.roles, operation, address, topic).reason)

    def demand_view(self) -> None:
        """See that the broker may be looked at.

        Raises:
            Denied: it may not.
        """
        self.demand_level(Level.VIEW)

    def reaches(self, level: Level) -> bool:
        """Whether management at this level is allowed."""
        return decide_level(self.user, self.roles, level).allowed

    def demand_level(self, level: Level) -> None:
        """See that management at this level is allowed.

        Raises:
            Denied: it is not; the message names the permission that is missing.
        """
        decision = decide_level(self.user, self.roles, level)
        if not decision.allowed:
            raise Denied(decision.reason)
