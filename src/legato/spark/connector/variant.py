"""Application properties with their types: Spark's VARIANT, which Arrow carries as a value and its names.

Spark's own functions make variants of JSON, which knows neither the width of a number nor bytes; so what a variant is
made of is spelled here (the variant encoding of Apache Parquet, version 1).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from legato.amqp.codec.types import Byte, Float, Int, Short
from legato.amqp.codec.values import encode_value
from legato.bulk.arrays import binary_array, map_array, truth_array
from legato.bulk.row_fallback import properties_of
from legato.bulk.schema import ENCODED_PROPERTIES
from legato.client.messages.values import Kind, kind_of
from legato.errors import MessageFormatError

VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        # By that Spark tells it from a structure of two columns.
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)

DECIMAL_DIGITS_MAX = 15
"""A decimal of so many digits is the same again after it was a double."""

_PRIMITIVE, _SHORT_TEXT, _OBJECT = 0, 1, 2
_NULL, _TRUE, _FALSE, _DOUBLE, _FLOAT, _BINARY, _TEXT = 0, 1, 2, 7, 14, 15, 16
_INTEGERS: dict[int, tuple[struct.Struct, type[int]]] = {
    3: (struct.Struct("<b"), Byte),
    4: (struct.Struct("<h"), Short),
    5: (struct.Struct("<i"), Int),
    6: (struct.Struct("<q"), int),
}
_INTEGER_OF_KIND = {Kind.BYTE: 3, Kind.SHORT: 4, Kind.INT: 5, Kind.LONG: 6}
_DECIMAL_BYTES = {8: 4, 9: 8, 10: 16}
_OTHERS = {11: "a date", 12: "a timestamp", 13: "a timestamp", 17: "a time"}
_SHORT_TEXT_MAX = 63
_VERSION = 1
_FIELDS_MAX = 255
"""A larger object has its number of fields in four bytes."""


class Spelled(NamedTuple):
    """A variant's two parts."""

    value: bytes
    metadata: bytes


def variants_of(messages: pa.BinaryArray, properties: pa.Array) -> pa.StructArray:
    """One object a message, whose values have the types that they were sent with; null where there are no properties.

    Args:
        properties: the same as texts, by which is known who has some.
    """
    found = [
        spelled(properties_of(message.as_py())) if has.as_py() else None
        for message, has in zip(messages, properties.is_valid(), strict=True)
    ]
    values = binary_array(None if each is None else each.value for each in found)
    metadata = binary_array(None if each is None else each.metadata for each in found)
    missing = truth_array(np.array([each is None for each in found], bool))
    return pa.StructArray.from_arrays([values, metadata], fields=list(VARIANT), mask=missing)


def spelled(values: dict[str, Any]) -> Spelled:
    """Properties as an object."""
    names = sorted(values)
    return Spelled(_object([_scalar(values[name]) for name in names]), _metadata(tuple(names)))


@lru_cache(maxsize=1024)
def _metadata(names: tuple[str, ...]) -> bytes:
    """Messages of one producer mostly have the same names."""
    texts = [name.encode("utf-8", "replace") for name in names]
    content = b"".join(texts)
    width = _width(max(len(content), len(names)))
    places = [len(names), *_ends(texts)]
    header = bytes([_VERSION | 0x10 | (width - 1) << 6])
    return header + b"".join(place.to_bytes(width, "little") for place in places) + content


def _object(values: list[bytes]) -> bytes:
    """An object whose fields have the names of the metadata, in their order."""
    count = len(values)
    is_large = count > _FIELDS_MAX
    content = b"".join(values)
    id_width, width = _width(count), _width(len(content))
    header = _OBJECT | ((width - 1) | (id_width - 1) << 2 | is_large << 4) << 2
    return b"".join(
        [
            bytes([header]),
            count.to_bytes(4 if is_large else 1, "little"),
            *(number.to_bytes(id_width, "little") for number in range(count)),
            *(end.to_bytes(width, "little") for end in _ends(values)),
            content,
        ]
    )


def _ends(parts: list[bytes]) -> list[int]:
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part))
    return ends


def _width(number: int) -> int:
    return max((number.bit_length() + 7) // 8, 1)


def _scalar(value: Any) -> bytes:
    kind = kind_of(value)
    if value is None:
        return bytes([_NULL << 2])
    if kind is Kind.BOOLEAN:
        return bytes([(_TRUE if value else _FALSE) << 2])
    if kind in _INTEGER_OF_KIND:
        number = _INTEGER_OF_KIND[kind]
        form, _ = _INTEGERS[number]
        return bytes([number << 2]) + form.pack(value)
    if kind is Kind.FLOAT:
        return bytes([_FLOAT << 2]) + struct.pack("<f", value)
    if kind is Kind.DOUBLE:
        return bytes([_DOUBLE << 2]) + struct.pack("<d", value)
    if kind is Kind.BYTES:
        return b"".join([bytes([_BINARY << 2]), struct.pack("<I", len(value)), value])
    # What Jakarta Messaging has no type for is text, as in a map of texts.
    text = str(value).encode("utf-8", "replace")
    if len(text) <= _SHORT_TEXT_MAX:
        return bytes([_SHORT_TEXT | len(text) << 2]) + text
    return bytes([_TEXT << 2]) + struct.pack("<I", len(text)) + text


def is_variant(kind: pa.DataType) -> bool:
    """Whether it is how Arrow carries a VARIANT."""
    return bool(pa.types.is_struct(kind)) and {field.name for field in kind} == {"value", "metadata"}


def encoded_of(variants: pa.StructArray) -> pa.MapArray:
    """Objects as maps of AMQP's values (`ENCODED_PROPERTIES`).

    Raises:
        UnfitRow: one is no object, or has a value that no property can have.
    """
    rows: list[tuple[tuple[str, bytes], ...] | None] = []
    for row, variant in enumerate(variants):
        try:
            rows.append(_encoded(variant["value"].as_py(), variant["metadata"].as_py()) if variant.is_valid else None)
        except MessageFormatError as error:
            raise UnfitRow(row, str(error)) from None
    return map_array(rows, ENCODED_PROPERTIES)


class UnfitRow(Exception):
    """What is wrong with a row, which is counted from 0, and with which of its columns."""

    def __init__(self, row: int, why: str, column: str = "properties") -> None:
        super().__init__(why)
        self.row = row
        self.column = column


@lru_cache(maxsize=1024)
def _encoded(value: bytes, metadata: bytes) -> tuple[tuple[str, bytes], ...] | None:
    """Messages of one producer mostly have few different ones."""
    try:
        if value[:1] == bytes([_NULL << 2]):
            return None
        return tuple((name, encode_value(_read(name, value, at))) for name, at in _fields(value, metadata))
    except (struct.error, IndexError, UnicodeDecodeError):
        raise MessageFormatError("it is a variant that cannot be read.") from None


def _fields(value: bytes, metadata: bytes) -> Iterator[tuple[str, int]]:
    """The names of an object's fields, and where their values begin."""
    header = value[0] >> 2
    if value[0] & 3 != _OBJECT:
        raise MessageFormatError("it is a variant that is no object, such as parse_json('{\"weight\": 2.5}').")
    width, id_width, count_width = (header & 3) + 1, (header >> 2 & 3) + 1, 4 if header >> 4 & 1 else 1
    count = int.from_bytes(value[1 : 1 + count_width], "little")
    ids = 1 + count_width
    places = ids + count * id_width
    content = places + (count + 1) * width
    for field in range(count):
        name = _name(metadata, _number(value, ids, field, id_width))
        yield name, content + _number(value, places, field, width)


def _name(metadata: bytes, number: int) -> str:
    width = (metadata[0] >> 6) + 1
    count = _number(metadata, 1, 0, width)
    begin, end = (_number(metadata, 1 + width, place, width) for place in (number, number + 1))
    content = 1 + (count + 2) * width
    return _taken(metadata, content + begin, end - begin).decode()


def _number(data: bytes, begin: int, place: int, width: int) -> int:
    return int.from_bytes(_taken(data, begin + place * width, width), "little")


def _taken(data: bytes, at: int, size: int) -> bytes:
    taken = data[at : at + size]
    if len(taken) != size:
        raise IndexError(at)
    return taken


def _read(name: str, value: bytes, at: int) -> Any:
    """The value that begins there, of the type with which AMQP carries it."""
    basic, info = value[at] & 3, value[at] >> 2
    at += 1
    if basic == _SHORT_TEXT:
        return _taken(value, at, info).decode()
    if basic == _PRIMITIVE:
        if info in (_NULL, _TRUE, _FALSE):
            return (None, True, False)[info]
        if info in _INTEGERS:
            form, kind = _INTEGERS[info]
            return kind(form.unpack_from(value, at)[0])
        if info == _DOUBLE:
            return struct.unpack_from("<d", value, at)[0]
        if info == _FLOAT:
            return Float(struct.unpack_from("<f", value, at)[0])
        if info in _DECIMAL_BYTES:
            unscaled = int.from_bytes(_taken(value, at + 1, _DECIMAL_BYTES[info]), "little", signed=True)
            return _double(name, Decimal(unscaled).scaleb(-value[at]))
        if info in (_BINARY, _TEXT):
            [size] = struct.unpack_from("<I", value, at)
            content = _taken(value, at + 4, size)
            return content if info == _BINARY else content.decode()
    what = _OTHERS.get(info, "a value of another type") if basic == _PRIMITIVE else "an object or an array"
    raise MessageFormatError(f"{name!r} is {what}; a property is a truth value, a number, text or binary. Cast it.")


def _double(name: str, value: Decimal) -> float:
    if len(value.normalize().as_tuple().digits) > DECIMAL_DIGITS_MAX:
        raise MessageFormatError(f"{name!r} is {value}, which has too many digits for a double. Cast it to string.")
    return float(value)
