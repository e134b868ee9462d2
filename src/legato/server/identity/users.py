"""Users as a broker knows them: those of the users file, and those of its configuration."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from legato.errors import ConfigError
from legato.server.config.configuration import Config
from legato.server.identity.keys import (
    ITERATIONS_DEFAULT,
    ITERATIONS_MIN,
    MECHANISMS,
    PLAIN_MECHANISM,
    Keys,
    derive,
    fake,
)
from legato.server.identity.users_file import User, UsersFile, check_name, read

USERS_NAME = "users"
"""The users file that is taken without being named, in the store's directory."""
_SECRET = secrets.token_bytes(32)
"""Of this process, where there is no users file."""


class Users:
    """All users, as they were when they were read; a new object is made to read them again.

    Args:
        content: of the users file.
        passwords: of users in the configuration.

    Raises:
        ConfigError: a user is in both, or cannot be one.
    """

    def __init__(
        self,
        content: UsersFile | None = None,
        passwords: Mapping[str, str] | None = None,
        file: Path | None = None,
        seen: tuple[int, ...] = (),
    ) -> None:
        self.file = file
        self._seen = seen
        self._passwords = dict(passwords or {})
        content = content or UsersFile(_SECRET)
        self._secret = content.secret
        self._by_name = dict(content.users)
        counts = Counter(key.iterations for user in content.users.values() for key in user.keys)
        # A password in a file is no safer for being stretched; but no user is to differ from another by the number.
        default = ITERATIONS_MIN if passwords else ITERATIONS_DEFAULT
        self._iterations = counts.most_common(1)[0][0] if counts else default
        for name, password in (passwords or {}).items():
            if name in self._by_name:
                raise ConfigError(f"The user {name!r} is in auth.users and in the users file {file}.")
            self._by_name[check_name(name)] = User(name, (), self._derived(name, password))

    @classmethod
    def load(cls, config: Config) -> Users:
        """The users of a configuration.

        Raises:
            ConfigError: they cannot be used; the message says why.
        """
        with config.locating_errors():
            file = users_file_of(config)
            if file is None:
                return cls(None, config.auth.users)
            seen = _look(file)
            return cls(read(file), config.auth.users, file, seen)

    def renewed(self, config: Config) -> Users:
        """The users of a configuration now: these, if nothing has changed.

        Raises:
            ConfigError: they cannot be used; the message says why.
        """
        if self.file is not None and users_file_of(config) is None:
            # Its loss must not turn a broker with users into one without.
            raise ConfigError(f"The users file {self.file} is gone: put it back, or start the broker anew without it.")
        same = self._passwords == config.auth.users and self.file == users_file_of(config)
        return self if same and not (self.file is not None and _look(self.file) != self._seen) else Users.load(config)

    def _derived(self, name: str, password: str) -> tuple[Keys, ...]:
        if not password:
            raise ConfigError(f"The password of {name!r} in auth.users is empty.")
        salts = {mechanism: fake(mechanism, self._iterations, self._secret, name).salt for mechanism in MECHANISMS}
        return tuple(derive(mechanism, password, self._iterations, salt) for mechanism, salt in salts.items())

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._by_name)

    def __contains__(self, name: str) -> bool:
        """Whether there is such a user."""
        return name in self._by_name

    def __iter__(self) -> Iterator[User]:
        """All of them."""
        return iter(self._by_name.values())

    def find(self, name: str) -> User | None:
        """The user of that name."""
        return self._by_name.get(name)

    def keys(self, name: str, mechanism: str) -> tuple[Keys, bool]:
        """The keys of a user, and whether there are any: to the peer those made up for others look the same."""
        user = self._by_name.get(name)
        for keys in user.keys if user is not None else ():
            if keys.mechanism == mechanism:
                return keys, True
        return fake(mechanism, self._iterations, self._secret, name), False

    def has_password(self, name: str, password: str) -> bool:
        """Whether that is the password of that user; takes as long if there is no such user. Not in an event loop."""
        keys, real = self.keys(name, PLAIN_MECHANISM)
        return keys.belongs_to(password) and real

    def same_keys(self, other: Users, name: str) -> bool:
        """Whether a user is in both and has the same password."""
        mine, others = self._by_name.get(name), other._by_name.get(name)
        if mine is None or others is None:
            return False
        # Those of the configuration are made anew whenever another secret holds.
        return mine.keys == others.keys


def users_file_of(config: Config) -> Path | None:
    """Where the users file of a broker is: the one that is named, or that in its store, or none."""
    if config.auth.users_file:
        return Path(config.auth.users_file)
    file = config.store_directory / USERS_NAME
    return file if config.store.directory and file.exists() else None


def _look(file: Path) -> tuple[int, ...]:
    try:
        found = os.stat(file)
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size
