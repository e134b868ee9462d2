"""Sources of the map of groups: a file now; the last map that could be used, if it cannot be read any more."""

from __future__ import annotations

import logging
import tomllib
from pathlib import Path
from typing import Protocol

from legato.errors import ConfigError
from legato.groups.group_map import ENCODED_BYTES_MAX, GroupMap, decode, from_tables
from legato.server.config.configuration import Config

log = logging.getLogger("legato.groups")

_LAST = "group_map"
"""Under it a configuration keeps the last map that could be used."""


class GroupMaps(Protocol):
    """Where the map of groups is kept: a file now, a key-value store of the replicated log's servers another time."""

    def read(self) -> GroupMap:
        """The map as it is there now.

        Raises:
            ConfigError: it cannot be read, or not be used.
        """


class GroupMapFile:
    """A map in a file: TOML with `[[group]]` and `[[pin]]`, or, if its name ends in `.json`, as `GroupMap.encode` wrote
    it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> GroupMap:
        """See `GroupMaps`."""
        try:
            with self._path.open("rb") as file:
                data = file.read(ENCODED_BYTES_MAX + 1)
        except OSError as error:
            raise ConfigError(f"The map of groups {self._path} cannot be read: {error.strerror}.") from None
        try:
            if len(data) > ENCODED_BYTES_MAX or self._path.suffix == ".json":
                return decode(data)
            return from_tables(tomllib.loads(data.decode()))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"The map of groups {self._path} is not TOML: {error}.") from None
        except ConfigError as error:
            raise ConfigError(f"{self._path}: {error}") from None


def read_group_map(config: Config) -> GroupMap | None:
    """The map that a configuration names, as it is now; None if it names none.

    Raises:
        ConfigError: it cannot be read, or not be used.
    """
    if not config.groups.map:
        return None
    found = config.__dict__[_LAST] = GroupMapFile(Path(config.groups.map)).read()
    return found


def last_group_map(config: Config) -> GroupMap | None:
    """The map as it is now, or, if that cannot be used any more, as it was when it last could: a backup takes over all
    the same.

    Raises:
        ConfigError: it cannot be used, and never could.
    """
    last: GroupMap | None = config.__dict__.get(_LAST)
    try:
        return read_group_map(config)
    except ConfigError as error:
        if last is None:
            raise
        log.warning("! the map of groups stays as it was, revision %d: %s", last.revision, error)
        return last
