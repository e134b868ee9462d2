"""Origins of settings: the line of a file, a variable of the environment, or an option of the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
_SETTING = re.compile(r"\b([a-z]+(?:\.[a-z_]+)+)\b")
_SECTION = re.compile(r"\[([a-z]+(?:\.[a-z]+)*)\]")
_TABLE = re.compile(r"\[\[(role|address)\]\] number (\d+)")
_NAMED_TABLE = re.compile(r"\[\[(role|address)\]\] '([^']*)'(?:: ([a-z_]+))?")
_NO_SETTING = re.compile(r"there is no setting '([^']*)'")
_NAME_KEYS = {"role": "name", "address": "match"}


class Origins:
    """Where settings were written.

    Args:
        file: the configuration; None if there is none.
        text: of the file.

    Attributes:
        file: see above.
        variables: of the environment, by `section.key`.
        options: of the command line, by `section.key`.
    """

    def __init__(self, file: Path | None = None, text: str = "") -> None:
        self.file = file
        self._lines = dict(_lines_of(text))
        self._names = dict(_names_of(text))
        self.variables: dict[str, str] = {}
        self.options: dict[str, str] = {}

    @property
    def is_in_file(self) -> bool:
        """Whether the file has any setting."""
        return bool(self._lines)

    def of(self, place: str) -> str:
        """Where the setting at `section.key` is from, as far as it is known."""
        return self.options.get(place) or self.variables.get(place) or self._in_file(place) or "the settings"

    def is_variable(self, place: str) -> bool:
        """Whether a variable has set it."""
        return place in self.variables

    def is_given(self, place: str) -> bool:
        """Whether anything has set it: it is not at its default."""
        return place in self.options or place in self.variables or place in self._lines

    def located(self, error: str) -> str:
        """An error about settings, which it names, with where the first of them that was given was written."""
        if self.file is not None and str(self.file) in error:
            return error
        told = ""
        for place in _places_in(error, self._names):
            if self.is_given(place):
                return f"{self.of(place)}: {error}"
            told = told or self._in_file(place)
        return f"{told}: {error}" if told else error

    def _in_file(self, place: str) -> str:
        """The file, and the line of the setting, or of the table that it is in."""
        if self.file is None:
            return ""
        while place:
            if place in self._lines:
                return f"{self.file}, line {self._lines[place]}"
            place = place.rpartition("." if place.rpartition(".")[0] else "[")[0]
        return str(self.file)


def _places_in(error: str, names: dict[tuple[str, str], int]) -> Iterator[str]:
    """The places of the settings that an error names."""
    if found := _NAMED_TABLE.search(error):
        table = f"{found[1]}[{names.get((found[1], found[2]), 0)}]"
        if key := _NO_SETTING.search(error):
            yield f"{table}.{key[1]}"
        if found[3]:
            yield f"{table}.{found[3]}"
        yield table
    elif found := _TABLE.search(error):
        table = f"{found[1]}[{int(found[2]) - 1}]"
        if key := _NO_SETTING.search(error):
            yield f"{table}.{key[1]}"
        yield table
    elif "[[role]]" in error:
        yield "role"
    for found in _SETTING.finditer(error):
        yield found[1]
    for found in _SECTION.finditer(error):
        yield found[1]


def _lines_of(text: str) -> Iterator[tuple[str, int]]:
    """The places of a file's tables and keys, each with the line where it begins; arrays of tables are numbered."""
    table, counts = "", dict[str, int]()
    for number, line in enumerate(text.splitlines(), 1):
        if found := _HEADER.fullmatch(line):
            table = _joined(found[2])
            if found[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = f"{table}[{counts[table]}]"
            yield table, number
        elif found := _KEY.match(line):
            yield f"{table}.{_joined(found[1])}".lstrip("."), number


def _names_of(text: str) -> Iterator[tuple[tuple[str, str], int]]:
    """The names of roles and patterns of addresses, with the number of the table from 0 on."""
    counts = {"role": -1, "address": -1}
    table = ""
    for line in text.splitlines():
        if found := _HEADER.fullmatch(line):
            table = _joined(found[2]) if found[1] == "[[" else ""
            if table in counts:
                counts[table] += 1
        elif table in counts and (named := re.match(rf"\s*{_NAME_KEYS[table]}\s*=\s*(?:\"([^\"]*)\"|'([^']*)')", line)):
            yield (table, named[1] or named[2] or ""), counts[table]


def _joined(key: str) -> str:
    return ".".join(part.strip("\"'") for part in _PART.findall(key))
