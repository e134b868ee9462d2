"""Access: the rights of each user of a broker, kept as long as the configuration and the users do not change."""

from __future__ import annotations

from collections.abc import Collection

from legato.amqp.engine.mechanisms import Anonymous
from legato.server.access.permissions import Permissions, Rights
from legato.server.identity.users import Users

USERS_MAX = 10_000


class Access:
    """Gives peers their rights.

    Args:
        permissions: None if whoever is let in may do everything.
    """

    def __init__(self, permissions: Permissions | None, users: Users) -> None:
        self._permissions = permissions
        self._users = users
        self._rights: dict[tuple[str, tuple[str, ...], bool], Rights] = {}

    def replace(self, permissions: Permissions | None, users: Users) -> None:
        """From now on these roles and users hold; whoever has rights needs new ones."""
        self._permissions = permissions
        self._users = users
        self._rights = {}

    def rights_of(self, user: str, groups: Collection[str] = (), *, by_password: bool = True) -> Rights | None:
        """What a user may do; None if everything.

        Args:
            groups: the roles that a token says the user has.
            by_password: whether it logged in with one; else it is the user of that name in the users file only if
                that has no password, as `Authentication` sees to already.
        """
        if self._permissions is None:
            return None
        key = (user, tuple(groups), by_password)
        found = self._rights.get(key)
        if found is None:
            known = self._users.find(user)
            given = known.roles if known is not None and (by_password or not known.keys) else ()
            roles = self._permissions.roles_of(user, given, groups, known=user != Anonymous.USER)
            if len(self._rights) >= USERS_MAX:
                self._rights.clear()
            found = self._rights[key] = Rights(user, roles)
        return found
