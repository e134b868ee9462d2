"""A watch of the map of groups in the log: what it meets there or on its disk ends it not, and nothing is missed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from legato.groups.group_map import Group, GroupMap, decode
from legato.server.process import group_map_watch
from legato.server.process.group_map_watch import GroupMapWatch

PATIENCE_S = 30.0


@dataclass
class Kept:
    """A map, as it is kept."""

    map: GroupMap


class Maps:
    """Servers that keep one value."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def revision(self, timeout_s: float) -> tuple[int, str]:
        """Another one for another value."""
        return hash(self.data), ""

    def read(self, timeout_s: float) -> Kept:
        """The value, decoded."""
        return Kept(decode(self.data))

    def close(self) -> None:
        """Nothing is held."""


class Watched:
    """A watch, and what it told."""

    def __init__(self, file: Path) -> None:
        self.maps = Maps(b"")
        self.told: list[tuple[str, bool]] = []
        self._file = file

    def begin(self) -> GroupMapWatch:
        """It looks from now on."""
        return GroupMapWatch(self.maps, self._file, "a", lambda trouble, is_new: self.told.append((trouble, is_new)))


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_map_watch, "LOOK_S", 0.01)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "groups.json")


def a_map(revision: int) -> bytes:
    return GroupMap(revision, (Group("a", ("a:1",)),)).encode()


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.005)


def test_what_is_nested_too_deep_is_told_and_the_next_map_is_taken(watched: Watched, tmp_path: Path) -> None:
    watched.maps.data = b"[" * 100_000
    watch = watched.begin()
    try:
        eventually(lambda: bool(watched.told) and "nested too deep" in watched.told[-1][0])
        watched.maps.data = a_map(1)
        eventually((tmp_path / "groups.json").exists)
        eventually(lambda: ("", True) in watched.told)
    finally:
        watch.close()


def test_a_map_is_told_of_though_its_copy_was_not_durable_at_first(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is there, and looks as if it had been told of."""
    failures = [OSError(5, "Input/output error")]

    def sync_directory(directory: Path) -> None:
        if failures:
            raise failures.pop()

    monkeypatch.setattr(group_map_watch, "sync_directory", sync_directory)
    watched.maps.data = a_map(1)
    watch = watched.begin()
    try:
        eventually(lambda: ("", True) in watched.told)
        assert not failures
    finally:
        watch.close()
