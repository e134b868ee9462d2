"""Primitive values of messages: their types and conversions (Jakarta Messaging 3.5.4, 3.11.3).

Python has one type of integer and one of floats. A value keeps the type with which it crosses the wire: it is a `Byte`,
`Short`, `Int` or `Long` (all of them an `int`), a `Float` (a `float`; a plain `float` is a double) or a `Char` (a
`str`). A plain `int` becomes an `Int` if it fits 32 bits, else a `Long`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from enum import StrEnum
from typing import Any
from uuid import UUID

from legato.amqp.codec.types import Byte, Char, Float, Int, Short, Symbol, Timestamp, UByte, UInt, ULong, UShort
from legato.client.messages.java_numbers import double_text, float_text, parse_float, parse_integer, single
from legato.client.messages.json_text import is_model
from legato.errors import MessageFormatError
from legato.quoting import WORD_CHARACTERS_MAX, escaped


class Long(int):
    """A signed integer of 64 bits."""

    __slots__ = ()


Value = bool | int | float | str | bytes | None
"""What a field of a map or stream message may hold."""


class Kind(StrEnum):
    """A type of Jakarta Messaging's tables."""

    BOOLEAN = "boolean"
    BYTE = "byte"
    SHORT = "short"
    CHAR = "char"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    BYTES = "bytes"


Table = dict[Kind, frozenset[Kind]]


def _table(**rows: str) -> Table:
    return {Kind(written): frozenset(map(Kind, read.split())) for written, read in rows.items()}


# What was written as the first can be read as the others.
PROPERTIES: Table = _table(
    boolean="boolean string",
    byte="byte short int long string",
    short="short int long string",
    int="int long string",
    long="long string",
    float="float double string",
    double="double string",
    string="boolean byte short int long float double string",
)
"""Jakarta Messaging 3.5.4."""

FIELDS: Table = _table(
    boolean="boolean string",
    byte="byte short int long string",
    short="short int long string",
    char="char string",
    int="int long string",
    long="long string",
    float="float double string",
    double="double string",
    string="boolean byte short int long float double string",
    bytes="bytes",
)
"""Jakarta Messaging 3.11.3: the fields of map and stream messages."""

_BITS = {Kind.BYTE: 8, Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64}
_STORED: dict[Kind, type[int]] = {Kind.BYTE: Byte, Kind.SHORT: Short, Kind.INT: Int, Kind.LONG: int}
"""As what AMQP carries it; a plain `int` is a long there."""

_KINDS: dict[type, Kind] = {
    bool: Kind.BOOLEAN,
    Byte: Kind.BYTE,
    Short: Kind.SHORT,
    Char: Kind.CHAR,
    Int: Kind.INT,
    int: Kind.LONG,
    Long: Kind.LONG,
    Float: Kind.FLOAT,
    float: Kind.DOUBLE,
    str: Kind.STRING,
    bytes: Kind.BYTES,
}
_FOREIGN_KINDS: dict[type, Kind] = {
    UByte: Kind.SHORT,
    UShort: Kind.INT,
    UInt: Kind.LONG,
    ULong: Kind.LONG,
    Timestamp: Kind.LONG,
    Symbol: Kind.STRING,
    UUID: Kind.STRING,
}
"""Types that only AMQP has, with the narrowest type of Jakarta Messaging that holds all their values."""


def kind_of(value: object) -> Kind | None:
    """The type of a value that a message holds; None if Jakarta Messaging has none for it."""
    kind = _KINDS.get(type(value)) or _FOREIGN_KINDS.get(type(value))
    if type(value) is ULong and value >> 63:
        return None
    return kind


def shown(value: Any) -> Any:
    """A value that a message holds, as applications see it: its type tells a long from an int."""
    return Long(value) if type(value) is int else value


def stored(value: object, table: Table, what: str = "A value", name: object = None) -> Any:
    """A value that an application sets without saying its type, as AMQP carries it.

    AMQP's own types are let through, so that what came from elsewhere can be copied.

    Args:
        what: with `name` names it in errors, such as `The property`.
        name: of the value, None if it has none.

    Raises:
        MessageFormatError: `table` has no type for it, or it does not fit its type.
    """
    if value is None or type(value) in _FOREIGN_KINDS:
        return value
    kind = _KINDS.get(type(value))
    if type(value) is int:
        kind = Kind.INT if -(1 << 31) <= value < 1 << 31 else Kind.LONG
    if kind is None:
        kind = _kind_of_subclass(value)
    if kind is None or kind not in table:
        names = ", ".join(table)
        raise MessageFormatError(
            f"{_named(what, name)} may be a {names} or None, not a {type(value).__name__}. {_instead(value)}"
        )
    return stored_as(value, kind, what, name)


def _named(what: str, name: object) -> str:
    return what if name is None else f"{what} {escaped(repr(name), WORD_CHARACTERS_MAX)}"


def _instead(value: object) -> str:
    """What to do with a value for which Jakarta Messaging has no type."""
    if isinstance(value, Mapping | list | tuple | Set) or is_model(type(value)):
        return (
            "What is nested goes as JSON: send the whole as a body of JSON, with create_json_message(...) or "
            "MessageProducer.send(...) of a dict, or put json.dumps(...) here."
        )
    return "Convert it, for example with str() or float()."


def _kind_of_subclass(value: object) -> Kind | None:
    if isinstance(value, int):
        return Kind.INT if -(1 << 31) <= value < 1 << 31 else Kind.LONG
    if isinstance(value, float):
        return Kind.DOUBLE
    if isinstance(value, str):
        return Kind.STRING
    if isinstance(value, bytes | bytearray | memoryview):
        return Kind.BYTES
    return None


def stored_as(value: Any, kind: Kind, what: str = "A value", name: object = None) -> Any:
    """A value that an application sets as `kind`, as AMQP carries it.

    Args:
        what: this and `name` as for `stored`.

    Raises:
        MessageFormatError: it is of another type, or does not fit.
    """
    if kind in _BITS:
        limit = 1 << (_BITS[kind] - 1)
        if isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit:
            return _STORED[kind](value)
    elif kind is Kind.BOOLEAN:
        if isinstance(value, bool):
            return value
    elif kind is Kind.DOUBLE or kind is Kind.FLOAT:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return _stored_float(value, kind, what, name)
    elif kind is Kind.CHAR:
        if isinstance(value, str) and len(value) == 1 and ord(value) < 0x10000:
            return Char(value)
    elif kind is Kind.STRING:
        if value is None or isinstance(value, str):
            return value if value is None else str.__str__(value)
    elif value is None or isinstance(value, bytes | bytearray | memoryview):
        return None if value is None else bytes(value)
    raise _misfit(value, kind, what, name)


def _misfit(value: object, kind: Kind, what: str, name: object) -> MessageFormatError:
    # Python itself refuses to write very long numbers.
    is_long = isinstance(value, int) and value.bit_length() > 1024
    text = "a very large number" if is_long else escaped(repr(value), WORD_CHARACTERS_MAX)
    return MessageFormatError(f"{_named(what, name)} is {text}, which does not fit the type {kind}.")


def _stored_float(value: float, kind: Kind, what: str, name: object) -> float:
    try:
        number = float(value)
    except OverflowError:
        raise _misfit(value, kind, what, name) from None
    if kind is Kind.DOUBLE:
        return number
    short = single(number)
    if math.isinf(short) and math.isfinite(number):
        raise _misfit(value, kind, what, name)
    return Float(short)


def read_as(value: Any, kind: Kind, table: Table, what: str) -> Any:
    """A value that a message holds, read as `kind`, as plain Python.

    None is read as Java's `valueOf(null)` would: as False, as no string and no bytes, and not as a number.

    Args:
        what: names the value in errors.

    Raises:
        MessageFormatError: `table` has no such conversion, or a string does not spell such a number.
    """
    if value is None:
        if kind is Kind.STRING or kind is Kind.BYTES:
            return None
        if kind is Kind.BOOLEAN:
            return False
        raise MessageFormatError(f"{what} is not set, and cannot be read as a {kind}.")
    written = kind_of(value)
    if written is None or kind not in table.get(written, ()):
        name = written or type(value).__name__
        raise MessageFormatError(f"{what} is a {name}, which cannot be read as a {kind}.")
    if kind is Kind.STRING:
        return text_of(value)
    if written is Kind.STRING:
        return _parsed(str(value), kind, what)
    if kind in _BITS:
        return int(value)
    if kind is Kind.FLOAT or kind is Kind.DOUBLE:
        return float(value)
    return str(value) if kind is Kind.CHAR else value


def text_of(value: Any) -> str:
    """A value as a string, spelled as Java does."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Float):
        return float_text(value)
    if isinstance(value, float):
        return double_text(value)
    return str(value)


def _parsed(text: str, kind: Kind, what: str) -> Any:
    if kind is Kind.BOOLEAN:
        return text.lower() == "true"
    number = parse_integer(text, _BITS[kind]) if kind in _BITS else parse_float(text)
    if number is None:
        raise MessageFormatError(f"{what} is {text!r}, which is no {kind}.")
    return single(number) if kind is Kind.FLOAT else number
