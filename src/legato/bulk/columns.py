"""Decoder of AMQP messages to Arrow columns with JMS names, for all rows at once (AMQP 3.2, its JMS mapping 3).

Rows in the usual encodings are decoded here. Rows in any other encoding are decoded one by one (`row_fallback`).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from legato.bulk.arrays import number_array, text_array
from legato.bulk.buffer_slices import Bytes, Extents, Ints, Mask, binary_of, unsigned
from legato.bulk.layout import Layout, Rows, SectionSlices, Walked, laid_out
from legato.bulk.row_fallback import decode_row
from legato.bulk.row_template import RowTemplate, shape_of
from legato.bulk.schema import (
    COLUMNS,
    CREATION,
    EXPIRY,
    ID_PREFIX,
    IDS,
    MESSAGE_ID,
    PROPERTY_MAP,
    TEXTS,
    as_type,
    column_of,
    times,
)

_PRIORITY_DEFAULT = 4
_PERSISTENT, _NON_PERSISTENT = "PERSISTENT", "NON_PERSISTENT"
ALIKE_ROWS_MIN = 500
"""Among fewer rows it is not worth while to look for those that are alike."""
_SHAPES_MAX = 4
_SHARE_MIN = 8
"""A shape that not even the eighth part of the rows has says that rows are not alike."""

_Portion = tuple[Ints, dict[str, pa.Array]]
"""Which rows, and their columns."""


class Decoder:
    """Decodes portions of messages, one after the other, into the columns of `COLUMNS`.

    A message that cannot be decoded has null in all of them but `body`, which is the whole message.

    Args:
        properties: whether the column of that name is wanted; else it is null.
    """

    def __init__(self, *, properties: bool = True) -> None:
        self._properties = properties
        self._shapes: list[RowTemplate] = []
        """Those of the last portion: the next one's rows mostly have them too."""

    def decode(self, rows: Rows) -> dict[str, pa.Array]:
        """The columns of some messages."""
        parts: list[_Portion] = []
        left = np.arange(len(rows.start))
        known, self._shapes = self._shapes, []
        while len(left) >= ALIKE_ROWS_MIN and len(parts) < _SHAPES_MAX:
            here, is_new = rows.of(left) if parts else rows, not known
            shape = self._shape_of(here.alone(0)) if is_new else known.pop()
            if shape is None:
                break
            same, columns = shape.decode(here)
            if len(columns["body"]) * _SHARE_MIN >= len(left):
                parts.append((left[same], columns))
                self._shapes.append(shape)
                left = left[~same]
            elif is_new:
                break
        if len(left) or not parts:
            parts.append((left, self._columns(rows.of(left) if parts else rows)))
        return _together(parts)

    def _shape_of(self, first: Rows) -> RowTemplate | None:
        return shape_of(first, _walked(first, properties=self._properties))

    def _columns(self, rows: Rows) -> dict[str, pa.Array]:
        found = _walked(rows, properties=self._properties)
        odd = np.flatnonzero(~found.layout.sound)
        return _merge(rows, found.columns, odd, properties=self._properties) if len(odd) else found.columns


def _together(parts: list[_Portion]) -> dict[str, pa.Array]:
    """The columns of all parts, each of which says which rows it has."""
    if len(parts) == 1:
        return parts[0][1]
    places = np.concatenate([which for which, _ in parts])
    order = None if (np.diff(places) > 0).all() else number_array(np.argsort(places))
    whole = {name: pa.concat_arrays([columns[name] for _, columns in parts]) for name in COLUMNS}
    return whole if order is None else {name: column.take(order) for name, column in whole.items()}


def _walked(rows: Rows, *, properties: bool) -> Walked:
    """Columns of rows of any layout; unsound rows are not decoded."""
    rows = rows.padded()
    layout = laid_out(rows)
    sound = layout.sound
    found: dict[str, pa.Array] = {}
    ttl_ms = _decode_header(rows, layout.header, found)
    _decode_properties(rows, layout, ttl_ms, found)
    body = _body_of(layout)
    if properties:
        # Maps are of any types in any number; rows that have some are decoded by themselves.
        sound &= ~layout.application_properties.has
    found["properties"] = pa.nulls(len(rows.start), PROPERTY_MAP)
    found["body"] = binary_of(rows.buffer, body.value.start, body.value.length, body.has & sound)
    return Walked(layout, body, ttl_ms, {name: as_type(found[name], kind) for name, kind in COLUMNS.items()})


def _decode_header(rows: Rows, fields: list[SectionSlices], found: dict[str, pa.Array]) -> Ints:
    """Returns the times to live in milliseconds, 0 for none."""
    (durable, has_durable), (priority, has_priority), (ttl, has_ttl) = fields
    has_priority &= priority.code == 0x50
    number = np.where(has_priority, unsigned(rows.buffer, priority.start, 1), _PRIORITY_DEFAULT)
    is_durable = has_durable & ((durable.code == 0x41) | (durable.code == 0x56) & (rows.buffer[durable.start] == 1))
    found["priority"] = number_array(np.minimum(number, 9).astype(np.int32))
    modes = text_array([_NON_PERSISTENT, _PERSISTENT])
    found["delivery_mode"] = modes.take(number_array(is_durable.astype(np.int8)))
    return np.where(
        has_ttl & ((ttl.code == 0x52) | (ttl.code == 0x70)), unsigned(rows.buffer, ttl.start, ttl.length), 0
    )


def _decode_properties(rows: Rows, layout: Layout, ttl_ms: Ints, found: dict[str, pa.Array]) -> None:
    sound, fields = layout.sound, layout.properties
    for name, index in TEXTS.items():
        value, has = fields[index]
        is_string = (value.code == 0xA1) | (value.code == 0xB1)
        sound &= ~has | is_string | (value.code == 0x40)
        if name in IDS:
            sound &= ~(has & is_string) | _is_plain_id(rows.buffer, value, must=name == MESSAGE_ID)
        found[name] = binary_of(rows.buffer, value.start, value.length, has & is_string & sound)
    timestamp_ms, expiry_ms = (_time_of(rows, *fields[index]) for index in (CREATION, EXPIRY))
    found["timestamp"], found["expiration"] = times(timestamp_ms, expiry_ms, ttl_ms)


def _time_of(rows: Rows, value: Extents, has: Mask) -> Ints:
    return np.where(has & (value.code == 0x83), unsigned(rows.buffer, value.start, 8), 0)


def _is_plain_id(buffer: Bytes, value: Extents, *, must: bool) -> Mask:
    """Whether an id is one that the JMS mapping leaves as it is: of a message, one that begins with `ID:`."""
    word = unsigned(buffer, value.start, 4)
    prefix: Mask = (word >> 8 == int.from_bytes(ID_PREFIX)) & (value.length >= len(ID_PREFIX))
    # "ID:AMQP_..." stands for another type or says that something is escaped.
    escaped: Mask = prefix & (word & 0xFF == ord("A")) & (buffer[value.start + 4] == ord("M"))
    plain: Mask = prefix & ~escaped if must else ~escaped
    return plain


def _body_of(layout: Layout) -> SectionSlices:
    """Data's bytes, a string's or a binary value's; nothing for null or where there is no body."""
    data, value, sound = layout.data, layout.value, layout.sound
    code = np.where(data.has, data.value.code, value.value.code)
    is_text = value.has & ((code == 0xA1) | (code == 0xB1))
    is_bytes = (code == 0xA0) | (code == 0xB0)
    is_null = value.has & (code == 0x40)
    has_body = data.has | value.has
    sound &= ~has_body | is_text | is_bytes | is_null
    sound &= ~(data.has & value.has)
    start = np.where(data.has, data.value.start, value.value.start)
    length = np.where(data.has, data.value.length, value.value.length)
    return SectionSlices(Extents(code, start, length), (is_text | is_bytes) & has_body)


def _merge(rows: Rows, columns: dict[str, pa.Array], odd: Ints, *, properties: bool) -> dict[str, pa.Array]:
    """Put what is decoded row by row at its place."""
    messages = [rows.buffer[rows.start[row] : rows.end[row]].tobytes() for row in odd]
    decoded = [decode_row(message, properties=properties) for message in messages]
    count = len(rows.start)
    order = np.arange(count, dtype=np.int64)
    order[odd] = count + np.arange(len(odd))
    merged = {}
    for name, kind in COLUMNS.items():
        extra = column_of([one[name] for one in decoded], kind)
        merged[name] = pa.concat_arrays([columns[name], extra]).take(number_array(order))
    return merged
