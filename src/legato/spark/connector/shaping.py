"""Rows for the sink: which columns they may have, and their conversion to what the broker takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructType,
    VariantType,
)

from legato.bulk.arrays import number_array, numbers_of, text_array
from legato.client.messages.properties import check_name
from legato.errors import ConfigError, MessageFormatError
from legato.spark.connector.option_parsing import DELIVERY_MODES
from legato.spark.connector.options import SinkOptions
from legato.spark.connector.variant import DECIMAL_DIGITS_MAX, UnfitRow, encoded_of, is_variant

_TEXT = (StringType,)
_COLUMNS: Mapping[str, tuple[type[DataType], ...]] = {
    "body": (StringType, BinaryType),
    "priority": (IntegralType,),
    "time_to_live_ms": (IntegralType,),
    "delivery_delay_ms": (IntegralType,),
    "properties": (MapType, VariantType),
} | dict.fromkeys(
    ("destination", "delivery_mode", "correlation_id", "reply_to", "type", "group_id", "duplicate_id"), _TEXT
)
"""What rows may say, and as which types."""
_IN_WORDS: Mapping[type[DataType], str] = {IntegralType: "a whole number (int, bigint)"}

_VALUES = (BooleanType, IntegralType, FloatType, DoubleType, DecimalType, StringType, BinaryType, NullType)
"""Of which types properties may be."""
_TIMES = ("time_to_live_ms", "delivery_delay_ms")
_TIME_MS_MAX = 10**14
"""Three thousand years. A larger one has no sum with the present time that the broker could keep."""
_ZERO = number_array(np.zeros(1, np.int64))[0]
_OF_KAFKA = {"value": "body", "key": "correlation_id", "headers": "properties", "topic": "destination"}


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """See that rows of a schema can be messages.

    Raises:
        ConfigError: a column is missing, unknown or of another type; the message names it.
    """
    fields = {field.name: field.dataType for field in schema.fields}
    if "body" not in fields:
        meant = "".join(f"; rename {name}" for name in fields if name.lower() in ("body", "value"))
        raise ConfigError(f"The rows have no column body: a string, or binary{meant}.")
    if "destination" not in fields and not options.destination:
        raise ConfigError("Give the option queue or topic, or a column destination.")
    for name, kind in fields.items():
        if name not in _COLUMNS:
            if not options.ignore_unknown_columns:
                meant = f" What is {name} elsewhere is {_OF_KAFKA[name]} here." if name in _OF_KAFKA else ""
                raise ConfigError(
                    f"The column {name} is unknown; known are {', '.join(sorted(_COLUMNS))}.{meant} Set the option "
                    "ignoreUnknownColumns to leave it out."
                )
        elif not isinstance(kind, _COLUMNS[name]):
            wanted = " or ".join(
                _IN_WORDS.get(each, each.__name__.removesuffix("Type").lower()) for each in _COLUMNS[name]
            )
            raise ConfigError(f"The column {name} is {kind.simpleString()}; it is to be {wanted}.")
        elif isinstance(kind, MapType):
            _check_map(name, kind)


def _check_map(name: str, kind: MapType) -> None:
    value = kind.valueType
    if not isinstance(kind.keyType, StringType) or not isinstance(value, _VALUES):
        raise ConfigError(
            f"The column {name} is {kind.simpleString()}; it is to be a map of strings to string, binary, boolean or "
            "numbers, or a variant, such as to_variant_object() makes of a struct."
        )
    if isinstance(value, DecimalType) and value.precision > DECIMAL_DIGITS_MAX:
        raise ConfigError(
            f"The column {name} is {kind.simpleString()}: properties have no decimals, and a double keeps "
            f"{DECIMAL_DIGITS_MAX} digits. Cast its values to double or string."
        )


def shaped_rows(batches: Iterable[pa.RecordBatch], options: SinkOptions, partition: int) -> Iterator[pa.RecordBatch]:
    """The rows of a task with the columns that messages are made of, in the types that the broker takes.

    Raises:
        MessageFormatError: a row cannot be a message; the error names row and column.
    """
    row = 0
    for batch in batches:
        try:
            yield _shaped(batch, options)
        except UnfitRow as error:
            raise MessageFormatError(
                f"Row {row + error.row + 1} of partition {partition} cannot be a message, because of its column "
                f"{error.column}: {error}"
            ) from None
        row += batch.num_rows


def _shaped(batch: pa.RecordBatch, options: SinkOptions) -> pa.RecordBatch:
    columns: dict[str, pa.Array] = {}
    for name, kinds in _COLUMNS.items():
        if name not in batch.schema.names:
            continue
        column = batch.column(name)
        if kinds is _TEXT:
            column = column.cast(pa.string())
            if name == "delivery_mode":
                _check_modes(column)
        elif name in _TIMES:
            _check_times(name, column)
        elif name == "properties":
            name = "encoded_properties" if is_variant(column.type) else name
            column = _properties(column)
        elif name == "body":
            column = column.cast(pa.binary() if _is_binary(column.type) else pa.string())
        columns[name] = column
    if options.delivery_mode:
        given = columns.get("delivery_mode", pa.nulls(batch.num_rows, pa.string()))
        columns["delivery_mode"] = pc.fill_null(given, text_array([options.delivery_mode])[0])
    return pa.RecordBatch.from_pydict(columns)


def _check_times(name: str, column: pa.Array) -> None:
    if not len(column):
        return
    times_ms = numbers_of(pc.fill_null(column.cast(pa.int64()), _ZERO))
    wrong = np.flatnonzero((times_ms < 0) | (times_ms > _TIME_MS_MAX))
    if len(wrong):
        row = int(wrong[0])
        raise UnfitRow(row, f"{times_ms[row]} is no time in milliseconds from 0 to {_TIME_MS_MAX}.", name)


def _check_modes(column: pa.Array) -> None:
    for mode in pc.unique(column).to_pylist():
        if mode not in (None, *DELIVERY_MODES):
            row = pc.index(column, mode).as_py()
            raise UnfitRow(row, f"{mode!r} is neither {' nor '.join(DELIVERY_MODES)}.", "delivery_mode")


def _properties(column: pa.Array) -> pa.MapArray:
    properties = encoded_of(column) if is_variant(column.type) else column.cast(_map_type(column.type.item_type))
    _check_names(properties)
    return properties


def _map_type(value: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(value):
        value = pa.float64()
    elif _is_binary(value):
        value = pa.binary()
    elif pa.types.is_large_string(value):
        value = pa.string()
    return pa.map_(pa.string(), value)


def _check_names(properties: pa.MapArray) -> None:
    """See that Jakarta Messaging allows the names (3.5.1)."""
    offsets = numbers_of(properties.offsets)
    names = properties.keys.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    for name in pc.unique(names).to_pylist():
        try:
            if name.startswith("JMSX"):
                raise MessageFormatError(f"{name} is no property of rows; a message's group is the column group_id.")
            check_name(name)
        except MessageFormatError as error:
            place = pc.index(names, name).as_py() + int(offsets[0])
            raise UnfitRow(int(np.searchsorted(offsets, place, side="right")) - 1, str(error)) from None


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
