"""Unknown and unusable settings: sentences that say where they were written, and what was meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from legato.errors import ConfigError
from legato.likeness import meant as meant_by
from legato.server.config.origins import Origins
from legato.server.config.units import with_unit

INTEGER_LEAST, INTEGER_MOST = -(1 << 63), (1 << 63) - 1
"""TOML's whole numbers."""
TOO_LONG_NUMBER = "a whole number in it has thousands of digits"
"""What is wrong with a file that Python does not read for it."""
_PLACE = re.compile(r"(?P<problem>.*) - at `\$\.?(?P<place>.*)`", re.DOTALL)
_STEP = re.compile(r"[^.\[\]]+|\[[^\]]*\]")
_TYPE = re.compile(r"`(str|int|float|bool|array|object|null)`")
_ENUM = re.compile(r"Invalid enum value '(?P<value>.*)'", re.DOTALL)
_TYPES_IN_WORDS = {
    "str": "a text in quotes",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list in brackets",
    "object": "a table",
    "null": "nothing",
}


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
        for table, inner, there in _tables(value, fields[name], here):
            check_names(table, inner, origins, there)


def replace_units(given: dict[str, Any], kind: type[msgspec.Struct], origins: Origins, place: str = "") -> None:
    """Replace texts such as `512 MiB` by the numbers that they stand for.

    Args:
        given, kind, place: as those of `check_names`.

    Raises:
        ConfigError: a text is neither a number nor one with a unit; the message says where it was written.
    """
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    for name, value in given.items():
        here = f"{place}.{name}" if place else name
        for table, inner, there in _tables(value, fields.get(name), here):
            replace_units(table, inner, origins, there)
            if there != here:
                # Of what is wrong below a name that anybody chose, msgspec does not tell the name.
                try:
                    msgspec.convert(table, inner, strict=False)
                except msgspec.ValidationError as error:
                    raise ConfigError(sentence_of(error, origins, inner, there)) from None
        try:
            given[name] = with_unit(name, value)
        except ValueError as error:
            raise ConfigError(f"{origins.of(here)}: {here} is {value!r:.255}: {error}.") from None


def refuse_unusable(given: Any, origins: Origins, place: str = "") -> None:
    """See that no text has a null byte, at which the operating system would end the name of a file or a host, and that
    no whole number has more than the 64 bits that TOML's have.

    Args:
        given, origins, place: as those of `check_names`.

    Raises:
        ConfigError: one has; the message says where it was written.
    """
    if isinstance(given, dict):
        for name, value in given.items():
            refuse_unusable(value, origins, f"{place}.{name}" if place else name)
    elif isinstance(given, list):
        for value in given:
            refuse_unusable(value, origins, place)
    elif isinstance(given, str) and "\0" in given:
        raise ConfigError(f"{origins.of(place)}: {place} is {given!r:.255}: there is a null byte in it.")
    elif isinstance(given, int) and not INTEGER_LEAST <= given <= INTEGER_MOST:
        raise ConfigError(f"{origins.of(place)}: {place} is a whole number of more than 64 bits.")


def _tables(value: Any, kind: Any, place: str) -> Iterator[tuple[dict[str, Any], type[msgspec.Struct], str]]:
    """The tables in the value of a setting, with what each is to become and its place: itself, or those by name."""
    if isinstance(value, dict) and _is_struct(kind):
        yield value, kind, place
    elif isinstance(value, dict) and get_origin(kind) is dict and _is_struct(of := get_args(kind)[1]):
        for name, table in value.items():
            if isinstance(table, dict):
                yield table, of, f"{place}.{name}"


def _is_struct(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


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


def unknown_among(names: Iterable[str], kind: type[msgspec.Struct]) -> str:
    """That there is no setting of a name, and which may have been meant; empty if there are all."""
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    for name in names:
        if name not in known:
            [meant] = meant_by(name, known, 1) or [""]
            return f"there is no setting {name!r}." + (f" Did you mean {meant}?" if meant else _these(known))
    return ""


def problem_of(error: msgspec.ValidationError, name: str, value: object, kind: type[msgspec.Struct]) -> str:
    """What is wrong with one field of a table, by itself.

    Args:
        name, value: of the field.
        kind: what the table is to become.
    """
    if unknown := unknown_among([name], kind):
        return unknown
    choices = get_args(get_type_hints(kind)[name])
    if choices and all(isinstance(choice, str) for choice in choices):
        return f"{name} is {value!r}; there is {', '.join(map(repr, choices))}."
    place, problem = split(error, kind)
    return f"{place or name}: {problem}"


def sentence_of(error: msgspec.ValidationError, origins: Origins, kind: type[msgspec.Struct], table: str = "") -> str:
    """What is wrong with a value, with the place where it was written.

    Args:
        kind: what was to be made.
        table: the place of what was converted.
    """
    inner, problem = split(error, kind)
    place = ".".join(filter(None, (table, inner)))
    return f"{origins.of(place.partition('[')[0])}: {place or 'the settings'}: {problem}"


def split(error: msgspec.ValidationError, kind: type[msgspec.Struct]) -> tuple[str, str]:
    """The place in a table, with dots, and what is wrong there: a sentence for somebody who knows TOML and no Python.

    Args:
        kind: what the table was to become.
    """
    found = _PLACE.fullmatch(str(error))
    place, problem = (found["place"], found["problem"]) if found else ("", str(error))
    if named := _ENUM.fullmatch(problem):
        choices = _choices(kind, _STEP.findall(place))
        [meant] = meant_by(named["value"], choices, 1) or [""]
        hint = f" Did you mean {meant}?" if meant else ""
        return place, f"{named['value']!r} is none of {', '.join(choices)}.{hint}"
    problem = _TYPE.sub(lambda type_: _TYPES_IN_WORDS[type_[1]], problem).replace("`", "")
    return place, f"{problem[0].lower()}{problem[1:]}."


def _choices(kind: Any, steps: list[str]) -> tuple[str, ...]:
    """The texts that a setting may be, which is so many steps into a type; none if it may be any."""
    if get_origin(kind) is Annotated:
        return _choices(get_args(kind)[0], steps)
    if get_origin(kind) in (Union, UnionType):
        return next(filter(None, (_choices(each, steps) for each in get_args(kind))), ())
    if not steps:
        return get_args(kind) if get_origin(kind) is Literal else ()
    step, *rest = steps
    if _is_struct(kind):
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        return _choices(fields[step], rest) if step in fields else ()
    inner = get_args(kind)
    return _choices(inner[-1], rest) if inner else ()
