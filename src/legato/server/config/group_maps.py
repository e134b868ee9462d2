"""Sources of the map of groups: a file, or a copy of what the log's servers keep.

If it cannot be read any more, the last map that could be used holds.
"""

from __future__ import annotations

import logging
import tomllib
from pathlib import Path
from typing import Protocol

from legato.errors import ConfigError
from legato.groups.group_map import ENCODED_BYTES_MAX, GroupMap, decode, from_tables, successor
from legato.server.config.configuration import Config
from legato.server.config.strictness import TOO_LONG_NUMBER

log = logging.getLogger("legato.groups")

_LAST = "group_map"
"""Under it a configuration keeps the last map that could be used."""


class GroupMaps(Protocol):
    """Where the map of groups is kept."""

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
        except RecursionError:
            raise ConfigError(f"The map of groups {self._path} cannot be read: it is nested too deep.") from None
        except ConfigError as error:
            raise ConfigError(f"{self._path}: {error}") from None
        except ValueError:  # Of `int`.
            raise ConfigError(f"The map of groups {self._path} cannot be read: {TOO_LONG_NUMBER}.") from None


def read_group_map(config: Config) -> GroupMap | None:
    """The map that a configuration names, as it is now; None if it names none, or if there is no copy yet of the one in
    the log.

    Raises:
        ConfigError: it cannot be read, or not be used.
    """
    file = config.group_map_file
    if file is None or (config.groups.map_in_log and not file.exists()):
        return None
    found = GroupMapFile(file).read()
    check_member(config.groups.name, found)
    config.__dict__[_LAST] = found
    return found


def check_member(name: str, group_map: GroupMap) -> None:
    """See that the map has the group.

    Raises:
        ConfigError: it has not.
    """
    if group_map.find(name) is None:
        known = ", ".join(group.name for group in group_map.group[:10])
        raise ConfigError(f"groups.name is {name!r}, and the map of groups has no such group; it has {known}.")


def refuse_older(last: GroupMap | None, found: GroupMap) -> None:
    """See that a map is not older than the last one, if there was one.

    Raises:
        ConfigError: it is, or it is another one under the same revision.
    """
    if last is not None:
        successor(last, found)


def known_group_map(config: Config) -> GroupMap | None:
    """The last map that could be used; None if there was none."""
    found: GroupMap | None = config.__dict__.get(_LAST)
    return found


def last_group_map(config: Config) -> GroupMap | None:
    """The map as it is now, or, if that cannot be used any more or is an older one, as it was when it last could: a
    backup takes over all the same.

    Raises:
        ConfigError: it cannot be used, and never could.
    """
    last = known_group_map(config)
    try:
        found = read_group_map(config)
        if found is not None:
            refuse_older(last, found)
        return found
    except ConfigError as error:
        if last is None:
            raise
        config.__dict__[_LAST] = last
        log.warning("! the map of groups stays as it was, revision %d: %s", last.revision, error)
        return last
