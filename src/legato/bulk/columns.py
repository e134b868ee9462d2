"""AMQP messages as Arrow columns with JMS' names, decoded for all rows at once (AMQP 3.2, its JMS mapping 3).

What producers send nearly always is done here. A row that is encoded in another way is decoded by itself (`oddities`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from legato.amqp.header import APPLICATION_PROPERTIES, DATA, HEADER, PROPERTIES, VALUE
from legato.bulk.extents import (
    Bytes,
    Extents,
    Ints,
    Mask,
    binary_of,
    is_uniform,
    list_items,
    padded,
    unsigned,
    values_at,
)
from legato.bulk.oddities import decode_one

TIMESTAMP = pa.timestamp("us", "UTC")
PROPERTY_MAP = pa.map_(pa.string(), pa.string())

COLUMNS = {
    "message_id": pa.string(),
    "timestamp": TIMESTAMP,
    "expiration": TIMESTAMP,
    "priority": pa.int32(),
    "delivery_mode": pa.string(),
    "correlation_id": pa.string(),
    "reply_to": pa.string(),
    "type": pa.string(),
    "group_id": pa.string(),
    "properties": PROPERTY_MAP,
    "body": pa.binary(),
}
"""What `decode` returns, and of which types."""

_SECTIONS_MAX = 8
_PRIORITY_DEFAULT = 4
_HEADER_FIELDS = 3
_PROPERTY_FIELDS = 11
_MESSAGE_ID, _SUBJECT, _REPLY_TO, _CORRELATION_ID, _EXPIRY, _CREATION, _GROUP_ID = 0, 3, 4, 5, 8, 9, 10
_SEQUENCE = 0x76
_ID_PREFIX = int.from_bytes(b"ID:")
_PERSISTENT, _NON_PERSISTENT = "PERSISTENT", "NON_PERSISTENT"


class Rows(NamedTuple):
    """Messages one behind another in a buffer: of row `i`, the bytes from `start[i]` to before `end[i]`."""

    buffer: Bytes
    start: Ints
    end: Ints


class _Section(NamedTuple):
    value: Extents
    has: Mask


def rows_of(messages: pa.Array) -> Rows:
    """A binary array's messages."""
    offsets = np.frombuffer(messages.buffers()[1], np.int32)[messages.offset : messages.offset + len(messages) + 1]
    data = messages.buffers()[2]
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    places = offsets.astype(np.int64)
    begin = int(places[0])
    return Rows(padded(content[begin : int(places[-1])]), places[:-1] - begin, places[1:] - begin)


def decode(rows: Rows, *, properties: bool = True) -> dict[str, pa.Array]:
    """The columns of `COLUMNS`; without `properties` those are null.

    A message that cannot be decoded has null in all of them but `body`, which is the whole message.
    """
    sections, sound = _sections(rows)
    found: dict[str, pa.Array] = {}
    ttl_ms = _decode_header(rows, sections, sound, found)
    _decode_properties(rows, sections, sound, ttl_ms, found)
    body = _decode_body(rows, sections, sound)
    if properties:
        # Maps are of any types in any number; rows that have some are decoded by themselves.
        sound &= ~sections[APPLICATION_PROPERTIES].has
    found["properties"] = pa.nulls(len(rows.start), PROPERTY_MAP)
    found["body"] = binary_of(rows.buffer, body.value.start, body.value.length, body.has & sound)
    columns = {name: _as(found[name], kind) for name, kind in COLUMNS.items()}
    odd = np.flatnonzero(~sound)
    return _merge(rows, columns, odd, properties=properties) if len(odd) else columns


def _sections(rows: Rows) -> tuple[dict[int, _Section], Mask]:
    """Where each section is, and which rows are understood to their end."""
    buffer, place, end = rows.buffer, rows.start, rows.end
    count = len(place)
    sections = {
        code: _Section(
            Extents(np.zeros(count, np.uint8), rows.start.copy(), np.zeros(count, np.int64)), np.zeros(count, bool)
        )
        for code in (HEADER, PROPERTIES, APPLICATION_PROPERTIES, DATA, VALUE)
    }
    sound = np.ones(count, bool)
    for _ in range(_SECTIONS_MAX):
        more = sound & (place < end)
        if not more.any():
            break
        described = (buffer[place] == 0) & (buffer[place + 1] == 0x53)
        code = buffer[place + 2]
        value, fits = values_at(buffer, place + 3, end)
        sound &= ~more | (described & fits)
        more &= sound
        if more.all() and is_uniform(code) and (one := int(code[0])) != _SEQUENCE and one <= VALUE:
            if one not in sections:
                place = value.end
                continue
            if not sections[one].has.any():
                sections[one] = _Section(value, more)
                place = value.end
                continue
        for known, section in sections.items():
            here = more & (code == known)
            if not here.any():
                continue
            sound &= ~(here & section.has)
            section.has[here] = True
            section.value.code[here] = value.code[here]
            section.value.start[here] = value.start[here]
            section.value.length[here] = value.length[here]
        # A body that is a sequence, or a footer behind it, is an oddity.
        sound &= ~more | (code <= VALUE) & (code != _SEQUENCE)
        place = np.where(more, value.end, place)
    sound &= place == end
    return sections, sound


def _decode_header(rows: Rows, sections: dict[int, _Section], sound: Mask, found: dict[str, pa.Array]) -> Ints:
    """Returns the times to live in milliseconds, 0 for none."""
    section = sections[HEADER]
    (durable, has_durable), (priority, has_priority), (ttl, has_ttl) = _fields(rows, section, sound, _HEADER_FIELDS)
    has_priority &= priority.code == 0x50
    number = np.where(has_priority, unsigned(rows.buffer, priority.start, 1), _PRIORITY_DEFAULT)
    is_durable = has_durable & ((durable.code == 0x41) | (durable.code == 0x56) & (rows.buffer[durable.start] == 1))
    found["priority"] = pa.array(np.minimum(number, 9).astype(np.int32))
    modes = pa.array([_NON_PERSISTENT, _PERSISTENT])
    found["delivery_mode"] = modes.take(pa.array(is_durable.astype(np.int8)))
    return np.where(
        has_ttl & ((ttl.code == 0x52) | (ttl.code == 0x70)), unsigned(rows.buffer, ttl.start, ttl.length), 0
    )


def _decode_properties(
    rows: Rows, sections: dict[int, _Section], sound: Mask, ttl_ms: Ints, found: dict[str, pa.Array]
) -> None:
    fields = _fields(rows, sections[PROPERTIES], sound, _PROPERTY_FIELDS)
    for name, index in (
        ("message_id", _MESSAGE_ID),
        ("type", _SUBJECT),
        ("reply_to", _REPLY_TO),
        ("correlation_id", _CORRELATION_ID),
        ("group_id", _GROUP_ID),
    ):
        value, has = fields[index]
        is_string = (value.code == 0xA1) | (value.code == 0xB1)
        sound &= ~has | is_string | (value.code == 0x40)
        if index in (_MESSAGE_ID, _CORRELATION_ID):
            sound &= ~(has & is_string) | _is_plain_id(rows.buffer, value, must=index == _MESSAGE_ID)
        found[name] = binary_of(rows.buffer, value.start, value.length, has & is_string & sound)
    timestamp_ms, expiry_ms = (_time_of(rows, *fields[index]) for index in (_CREATION, _EXPIRY))
    lasting = (expiry_ms == 0) & (timestamp_ms != 0) & (ttl_ms != 0)
    found["timestamp"] = _times(timestamp_ms)
    found["expiration"] = _times(np.where(lasting, timestamp_ms + ttl_ms, expiry_ms))


def _time_of(rows: Rows, value: Extents, has: Mask) -> Ints:
    return np.where(has & (value.code == 0x83), unsigned(rows.buffer, value.start, 8), 0)


def _times(ms: Ints) -> pa.Array:
    return pa.array(ms * 1000, mask=ms == 0, type=pa.int64())


def _fields(rows: Rows, section: _Section, sound: Mask, wanted: int) -> list[tuple[Extents, Mask]]:
    fields, whole = list_items(rows.buffer, section.value, wanted)
    sound &= whole | ~section.has
    return [(value, has & section.has) for value, has in fields]


def _is_plain_id(buffer: Bytes, value: Extents, *, must: bool) -> Mask:
    """Whether an id is one that the JMS mapping leaves as it is: of a message, one that begins with `ID:`."""
    word = unsigned(buffer, value.start, 4)
    prefix: Mask = (word >> 8 == _ID_PREFIX) & (value.length >= 3)
    # "ID:AMQP_..." stands for another type or says that something is escaped.
    escaped: Mask = prefix & (word & 0xFF == ord("A")) & (buffer[value.start + 4] == ord("M"))
    plain: Mask = prefix & ~escaped if must else ~escaped
    return plain


def _decode_body(rows: Rows, sections: dict[int, _Section], sound: Mask) -> _Section:
    """Data's bytes, a string's or a binary value's; nothing for null or where there is no body."""
    data, value = sections[DATA], sections[VALUE]
    code = np.where(data.has, data.value.code, value.value.code)
    is_text = value.has & ((code == 0xA1) | (code == 0xB1))
    is_bytes = (code == 0xA0) | (code == 0xB0)
    is_null = value.has & (code == 0x40)
    has_body = data.has | value.has
    sound &= ~has_body | is_text | is_bytes | is_null
    sound &= ~(data.has & value.has)
    start = np.where(data.has, data.value.start, value.value.start)
    length = np.where(data.has, data.value.length, value.value.length)
    return _Section(Extents(code, start, length), (is_text | is_bytes) & has_body)


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array as of type `kind`; what is no UTF-8 is replaced by U+FFFD."""
    if array.type == kind:
        return array
    try:
        return array.cast(kind)
    except pa.ArrowInvalid:
        values = [None if value is None else value.decode("utf-8", "replace") for value in array.to_pylist()]
        return pa.array(values, kind)


def _merge(rows: Rows, columns: dict[str, pa.Array], odd: Ints, *, properties: bool) -> dict[str, pa.Array]:
    """Put what is decoded row by row at its place."""
    messages = [rows.buffer[rows.start[row] : rows.end[row]].tobytes() for row in odd]
    decoded = [decode_one(message, properties=properties) for message in messages]
    count = len(rows.start)
    order = np.arange(count, dtype=np.int64)
    order[odd] = count + np.arange(len(odd))
    merged = {}
    for name, kind in COLUMNS.items():
        extra = pa.array([one[name] for one in decoded], kind)
        merged[name] = pa.concat_arrays([columns[name], extra]).take(pa.array(order))
    return merged
