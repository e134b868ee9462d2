"""Roles as a configuration writes them: tables `[[role]]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from legato.errors import ConfigError
from legato.server.access.permissions import OPERATIONS, Grant, Level, Permissions, Role, parse_pattern
from legato.server.config.strictness import split, unknown_among
from legato.server.identity.users import Users
from legato.server.identity.users_file import check_name


class _Grant(msgspec.Struct, forbid_unknown_fields=True):
    on: str
    may: Annotated[list[Literal["send", "receive", "browse", "create", "delete", "bulk"]], msgspec.Meta(min_length=1)]


class _Role(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    members: list[str] = []
    allow: list[_Grant] = []
    management: Literal["view", "operate", "administer"] | None = None


def read_roles(tables: Sequence[dict[str, Any]]) -> Permissions | None:
    """The permissions that tables describe; None if there are none, and so everybody may do everything.

    Raises:
        ConfigError: a table cannot be used; the message names it.
    """
    roles: dict[str, Role] = {}
    for number, table in enumerate(tables, 1):
        try:
            if isinstance(table, dict) and (unknown := unknown_among(table, _Role)):
                raise ValueError(unknown)
            role = _read(msgspec.convert(table, _Role))
        except (msgspec.ValidationError, ValueError, ConfigError) as error:
            name = table.get("name") if isinstance(table, dict) else None
            which = repr(name) if isinstance(name, str) and name else f"number {number}"
            raise ConfigError(f"the [[role]] {which}: {_problem(error)}") from None
        if role.name in roles:
            raise ConfigError(f"the [[role]] number {number} has the name of another one, {role.name!r}.")
        roles[role.name] = role
    return Permissions(list(roles.values())) if roles else None


def _problem(error: Exception) -> str:
    """What is wrong with a table, in words."""
    if isinstance(error, msgspec.ValidationError):
        place, problem = split(error, _Role)
        return f"{place}: {problem}" if place else problem
    text = str(error)
    return text if text.endswith((".", "?")) else f"{text}."


def _read(table: _Role) -> Role:
    name = check_name(table.name, "role")
    grants = []
    for grant in table.allow:
        kind, words = parse_pattern(grant.on)
        grants.append(Grant(grant.on, kind, words, frozenset(grant.may)))
    level = Level[table.management.upper()] if table.management else Level.NONE
    if not grants and level is Level.NONE:
        raise ValueError(f"it allows nothing: give allow = [{{ on = 'orders.#', may = ['{OPERATIONS[0]}'] }}]")
    return Role(name, frozenset(table.members), tuple(grants), level)


def check_roles(permissions: Permissions | None, users: Users) -> list[str]:
    """See that users have only roles that there are.

    Returns:
        What is to be said in the log.

    Raises:
        ConfigError: a user has a role that there is not.
    """
    given = [(user.name, role) for user in users for role in user.roles]
    if permissions is None:
        if not given:
            return []
        return ["users have roles, but the configuration has no [[role]]: whoever logs in may do everything"]
    for name, role in given:
        if role not in permissions.roles:
            known = ", ".join(permissions.roles)
            of_file = f" of {users.file}" if users.file is not None else ""
            raise ConfigError(
                f"The user {name!r}{of_file} has the role {role!r}, which no [[role]] defines; there are {known}."
            )
    return []
