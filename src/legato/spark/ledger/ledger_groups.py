"""Ledgers of several groups of brokers, read as one: which directory is which group's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from legato.errors import ConfigError
from legato.store.segment_names import spans

GROUP_COLUMN = "broker_group"
"""The column that says whose ledger a row is from; `broker_group=NAME` is a directory's name that says it too."""

_PREFIX = f"{GROUP_COLUMN}="
_NAMELESS = ("ledger", "store", "/")
"""Directories that say nothing of whose ledger they hold."""


def ledgers_of(places: Sequence[str | Path]) -> dict[str, Path]:
    """The ledgers that somebody names, by group, in the order of the names.

    A place is a directory of segments; or `NAME=DIRECTORY`; or a directory with ledgers in `broker_group=NAME`. A
    ledger without such a name is called by the nearest of its directories that is not `ledger` or `store`.

    Raises:
        ConfigError: two ledgers have one name, or one has none.
    """
    found: dict[str, Path] = {}
    for name, ledger in (each for place in places for each in _at(str(place))):
        if not name:
            raise ConfigError(f"Which group's ledger is {ledger}? Give NAME={ledger}.")
        if name in found:
            raise ConfigError(
                f"Both {found[name]} and {ledger} are called {name!r}: give NAME=DIRECTORY for one of them."
            )
        found[name] = ledger
    return dict(sorted(found.items()))


def _at(place: str) -> Iterator[tuple[str, Path]]:
    path = Path(place)
    name, equals, directory = place.partition("=")
    if equals and name and "/" not in name and name != GROUP_COLUMN and not path.exists():
        yield name, Path(directory)
    elif path.name.startswith(_PREFIX):
        yield path.name.removeprefix(_PREFIX), path
    elif path.is_dir() and not any(spans(path)) and (within := sorted(path.glob(f"{_PREFIX}*"))):
        yield from ((each.name.removeprefix(_PREFIX), each) for each in within if each.is_dir())
    else:
        yield next((part for part in reversed(path.resolve().parts) if part not in _NAMELESS), ""), path


def of_one_root(ledgers: dict[str, Path]) -> Path | None:
    """The directory that has all of them as `broker_group=NAME`, None if they are elsewhere."""
    roots = {path.parent for name, path in ledgers.items() if path.name == f"{_PREFIX}{name}"}
    named = all(path.name == f"{_PREFIX}{name}" for name, path in ledgers.items())
    return roots.pop() if named and len(roots) == 1 else None
