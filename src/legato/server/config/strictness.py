"""Unknown and unusable settings: sentences that say where they were written, and what was meant."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from legato.errors import ConfigError
from legato.likeness import meant as meant_by

_PLACE = re.compile(r"(?P<problem>.*) - at `\$\.?(?P<place>.*)`", re.DOTALL)


class Origins:
    """Where settings were written: in a file, or in a variable of the environment."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self.variables: dict[str, str] = {}
        """Names of variables, by `section.key`."""

    def of(self, place: str) -> str:
        """Where the setting at `section.key` is from."""
        return self.variables.get(place) or (str(self._file) if self._file else "the settings")

    def is_variable(self, place: str) -> bool:
        """Whether a variable has set it."""
        return place in self.variables


def check_names(given: Mapping[str, Any], kind: type[msgspec.Struct], origins: Origins, place: str = "") -> None:
    """See that there are the settings that are given.

    Args:
        given: tables, as they were read.
        kind: what they are to become.
        place: of `given`, with dots.

    Raises:
        ConfigError: there is one that is not; the message says where it was written, and which may have been meant.
    """
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    for name, value in given.items():
        here = f"{place}.{name}" if place else name
        if name not in fields:
            raise ConfigError(_unknown(name, list(fields), origins, place, here))
        inner = fields[name]
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct) and isinstance(value, Mapping):
            check_names(value, inner, origins, here)


def _unknown(name: str, known: list[str], origins: Origins, place: str, here: str) -> str:
    [meant] = meant_by(name, known, 1) or [""]
    if not place:
        hint = f" Did you mean [{meant}]?" if meant else f" There are {', '.join(known)}."
        return f"{origins.of(here)}: there is no section {name!r}.{hint}"
    if origins.is_variable(here):
        variable = origins.of(here)
        hint = f" Did you mean {variable[: -len(name)]}{meant.upper()}?" if meant else _these(known)
        return f"{variable}: [{place}] has no setting {name!r}.{hint}"
    hint = f" Did you mean {meant}?" if meant else _these(known)
    return f"{origins.of(here)}: [{place}] has no setting {name!r}.{hint}"


def _these(known: list[str]) -> str:
    return f" It has {', '.join(known)}."


def problem_of(error: msgspec.ValidationError, name: str, value: object, kind: type[msgspec.Struct]) -> str:
    """What is wrong with one field of a table, by itself.

    Args:
        name, value: of the field.
        kind: what the table is to become.
    """
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    if name not in known:
        [meant] = meant_by(name, known, 1) or [""]
        return f"there is no setting {name!r}." + (f" Did you mean {meant}?" if meant else _these(known))
    choices = get_args(get_type_hints(kind)[name])
    if choices and all(isinstance(choice, str) for choice in choices):
        return f"{name} is {value!r}; there is {', '.join(map(repr, choices))}."
    found = _PLACE.fullmatch(str(error))
    problem = (found["problem"] if found else str(error)).replace("`", "")
    return f"{name}: {problem[0].lower()}{problem[1:]}."


def sentence_of(error: msgspec.ValidationError, origins: Origins) -> str:
    """What is wrong with a value, with the place where it was written."""
    found = _PLACE.fullmatch(str(error))
    if found is None:
        return f"{origins.of('')}: {error}."
    problem = found["problem"].replace("`", "")
    place = found["place"]
    return f"{origins.of(place)}: {place}: {problem[0].lower()}{problem[1:]}."
