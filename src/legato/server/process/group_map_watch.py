"""A watch of the map of groups that the log's servers keep: the broker has a copy of the last one beside its store.

The copy is what the rest of the broker reads. So a takeover does not wait for the servers, and a broker goes by the
last map if they have lost theirs.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from legato.errors import ConfigError, LogError
from legato.groups.group_map import GroupMap, successor
from legato.quoting import sentence
from legato.server.config.group_maps import GroupMapFile, check_member
from legato.store.directories import sync_directory

log = logging.getLogger("legato.groups")

LOOK_S = 2.0
TIMEOUT_S = 2.0
MISSING = "the log's servers have no map of groups: give them one, legato group put MAP SERVERS"

LACKED = (
    "Brokers of this group go on with revision {:,}, and take messages for addresses that others may serve by now: "
    "stop them if the group is gone, else put a map that has it (legato group put)."
)


class KeptMap(Protocol):
    """A map, as it is kept."""

    @property
    def map(self) -> GroupMap:
        """The map."""


class KeptGroupMaps(Protocol):
    """The servers that keep the map; calls raise `LogError` if they do not answer."""

    def revision(self, timeout_s: float) -> tuple[int, str]:
        """Something that is another one after each change."""

    def read(self, timeout_s: float) -> KeptMap | None:
        """The map; None if there is none."""

    def close(self) -> None:
        """Leave the servers."""


class GroupMapWatch:
    """Looks at the servers in a thread of its own, and keeps the copy.

    Args:
        maps: what the servers keep; closed with this.
        file: the copy.
        name: of the broker's group, which the map must have.
        tell: told in the thread after each look why the copy is not what the servers have, if so, and whether it is
            another one than before.
    """

    def __init__(self, maps: KeptGroupMaps, file: Path, name: str, tell: Callable[[str, bool], None]) -> None:
        self._maps = maps
        self._file = file
        self._name = name
        self._tell = tell
        self._seen: tuple[int, str] | None = None
        self._is_untold = False
        """Whether the copy may be another one than was told of: it was being written when that failed."""
        self._told = ""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="legato-group-map", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._closed.set()
        self._maps.close()

    def _run(self) -> None:
        while not self._closed.is_set():
            trouble, is_new = "", False
            try:
                is_new = self._look()
            except (LogError, ConfigError, OSError) as error:
                trouble = str(error)
            if not self._closed.is_set():
                self._say(trouble)
                self._tell(trouble, is_new)
            self._closed.wait(LOOK_S)

    def _say(self, trouble: str) -> None:
        if trouble and trouble != self._told:
            log.warning("! the map of groups in the log: %s", sentence(trouble))
        self._told = trouble

    def _look(self) -> bool:
        """Take what is new; whether there was something.

        Raises:
            LogError, ConfigError, OSError: that is not possible now.
        """
        revision = self._maps.revision(TIMEOUT_S)
        if revision == self._seen:
            return False
        kept = self._maps.read(TIMEOUT_S)
        if kept is None:
            raise ConfigError(MISSING)
        found = kept.map
        former = GroupMapFile(self._file).read() if self._file.exists() else None
        try:
            check_member(self._name, found)
        except ConfigError as error:
            raise error if former is None else ConfigError(f"{error} {LACKED.format(former.revision)}") from None
        if former is None or successor(former, found) != former:
            self._is_untold = True
            _write(self._file, found)
        self._seen = revision
        is_new, self._is_untold = self._is_untold, False
        return is_new


def _write(file: Path, group_map: GroupMap) -> None:
    """The new copy in the place of the old one, durably.

    Raises:
        OSError: it cannot be written; the old one is as it was.
    """
    coming = file.with_suffix(".new")
    with coming.open("wb") as writing:
        writing.write(group_map.encode())
        writing.flush()
        os.fsync(writing.fileno())
    coming.replace(file)
    sync_directory(file.parent)
