"""Encoder of Arrow columns as AMQP messages, for all rows at once; `columns` decodes (AMQP 3.2, its JMS mapping 3).

A message is a sequence of pieces. Most are the same in all rows and become one; Arrow joins them with what differs, so
that a row's bytes are written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from legato import limits
from legato.amqp.codec.header import Header, encode_header
from legato.amqp.codec.message import encode_annotations
from legato.amqp.codec.types import Byte
from legato.amqp.codec.values import encode_string
from legato.bulk.arrays import binary_array
from legato.bulk.buffer_slices import OFFSET_MAX, binary_of_one_length, is_uniform
from legato.bulk.property_values import encoded_numbers
from legato.client.mapping.received import DESTINATION_KIND, MESSAGE_TYPE, REPLY_TO_KIND, TYPE_NUMBERS
from legato.client.messages import BytesMessage, TextMessage
from legato.client.messages.destinations import DestinationKind

Piece: TypeAlias = "bytes | pa.Array"
"""The same bytes in each row, or a binary array with one element a row and no nulls."""

_NULL = b"\x40"
_NOTHING = binary_array([b""])[0]
_PRIORITY_DEFAULT = 4
_PRIORITIES = 10


def encode(
    columns: Mapping[str, pa.Array], destination: str, *, id_prefix: str, now_ms: int, topic: bool = False
) -> pa.BinaryArray:
    """One message a row, for the queue or topic `destination`.

    Args:
        columns: of those in `legato.bulk.columns.COLUMNS`, `body` at least; a text column `body` makes text messages,
            a binary one bytes messages, and null a message without a body. `properties` are a map of text, binary,
            numbers or truth values, which keep their type, or `encoded_properties` are such as
            `legato.bulk.schema.ENCODED_PROPERTIES`. Also `time_to_live_ms` and `duplicate_id`. What is missing or null
            has its default.
        id_prefix: message ids are this with the row's number, in as many digits as the last row's has; a column
            `message_id` is not looked at.
        now_ms: when they are sent, in milliseconds since 1970.
    """
    body = columns["body"]
    rows = len(body)
    is_text = pa.types.is_string(body.type)
    return _joined(
        [
            _headers(columns, rows),
            _annotations(columns, is_text=is_text, topic=topic),
            *_properties(columns, destination, id_prefix, now_ms, rows),
            _application_properties(columns, rows),
            *_body(body, is_text=is_text),
        ]
    )


def _joined(pieces: Iterable[Piece]) -> pa.BinaryArray:
    """The pieces one behind another, in each row; one of them at least is an array."""
    merged: list[pa.Scalar | pa.Array] = []
    for is_constant, neighbours in groupby(pieces, key=lambda piece: isinstance(piece, bytes)):
        if is_constant:
            merged.append(pa.scalar(b"".join(neighbours), pa.binary()))
        else:
            merged += neighbours
    joined = _side_by_side(merged)
    return pc.binary_join_element_wise(*merged, _NOTHING) if joined is None else joined


def _side_by_side(pieces: Sequence[pa.Scalar | pa.Array]) -> pa.BinaryArray | None:
    """The same if each piece is as long in one row as in all others, and in none null; None if not."""
    rows = max(len(piece) for piece in pieces if isinstance(piece, pa.Array))
    columns: list[npt.NDArray[np.uint8]] = []
    for piece in pieces:
        column = _column(piece, rows)
        if column is None:
            return None
        columns.append(column)
    width = sum(column.shape[-1] for column in columns)
    if not width * rows or width * rows > OFFSET_MAX:
        return None
    joined = np.empty((rows, width), np.uint8)
    begin = 0
    for column in columns:
        end = begin + column.shape[-1]
        joined[:, begin:end] = column
        begin = end
    return binary_of_one_length(joined, pa.binary())


def _column(piece: pa.Scalar | pa.Array, rows: int) -> npt.NDArray[np.uint8] | None:
    if isinstance(piece, pa.Scalar):
        return np.frombuffer(piece.as_buffer(), np.uint8)
    _, offsets_buffer, data = piece.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[piece.offset : piece.offset + rows + 1]
    lengths = np.diff(offsets)
    if not rows or data is None or piece.null_count or not is_uniform(lengths):
        return None
    content = np.frombuffer(data, np.uint8)[int(offsets[0]) : int(offsets[-1])]
    return content.reshape(rows, int(lengths[0]))


def _headers(columns: Mapping[str, pa.Array], rows: int) -> Piece:
    """Few different ones, unless there are times to live."""
    priority = _numbers(columns, "priority", _PRIORITY_DEFAULT, rows).clip(0, _PRIORITIES - 1)
    mode = columns.get("delivery_mode")
    durable = np.ones(rows, bool)
    if mode is not None:
        durable = np.asarray(pc.fill_null(pc.not_equal(mode, "NON_PERSISTENT"), True))
    ttl_ms = _numbers(columns, "time_to_live_ms", 0, rows).clip(0, 0xFFFFFFFF)
    if all(map(is_uniform, (ttl_ms, priority, durable))):
        return _header(int(ttl_ms[0]), int(priority[0]), durable=bool(durable[0])) if rows else b""
    keys, places = np.unique(
        np.stack([ttl_ms, priority, durable.astype(np.int64)], axis=1), axis=0, return_inverse=True
    )
    sections = [_header(int(ttl), int(level), durable=bool(is_durable)) for ttl, level, is_durable in keys]
    return pa.array(sections, pa.binary()).take(pa.array(places.reshape(-1)))


def _header(ttl_ms: int, priority: int, *, durable: bool) -> bytes:
    return encode_header(Header(durable=durable, priority=priority, ttl_ms=ttl_ms or None))


def _annotations(columns: Mapping[str, pa.Array], *, is_text: bool, topic: bool) -> Piece:
    kind = TYPE_NUMBERS[TextMessage if is_text else BytesMessage]
    where = DestinationKind.TOPIC if topic else DestinationKind.QUEUE
    plain = {MESSAGE_TYPE: Byte(kind), DESTINATION_KIND: Byte(where)}
    reply_to = columns.get("reply_to")
    if reply_to is None or reply_to.null_count == len(reply_to):
        return encode_annotations(plain)
    replied = plain | {REPLY_TO_KIND: Byte(DestinationKind.QUEUE)}
    sections = pa.array([encode_annotations(plain), encode_annotations(replied)], pa.binary())
    return sections.take(pc.is_valid(reply_to).cast(pa.int8()))


def _properties(
    columns: Mapping[str, pa.Array], destination: str, id_prefix: str, now_ms: int, rows: int
) -> list[Piece]:
    ttl_ms = _numbers(columns, "time_to_live_ms", 0, rows)
    expiry_ms = np.minimum(now_ms + np.minimum(ttl_ms, limits.TIME_MS_MAX), limits.TIME_MS_MAX)
    fields: list[Sequence[Piece]] = [
        _ids(id_prefix, rows),
        [_NULL],
        [encode_string(destination)],
        _optional(columns, "type"),
        _optional(columns, "reply_to"),
        _optional(columns, "correlation_id"),
        [_NULL],
        [_NULL],
        [_times(pa.array(np.where(ttl_ms > 0, expiry_ms, 0), mask=ttl_ms <= 0))],
        [b"\x83" + now_ms.to_bytes(8, "big")],
        _optional(columns, "group_id"),
    ]
    content = [piece for field in fields for piece in field]
    size = sum(map(_length, content)) + np.full(rows, 4, np.int64)
    return [b"\x00\x53\x73\xd0", _big_endian(size), len(fields).to_bytes(4, "big"), *content]


def _ids(prefix: str, rows: int) -> Sequence[Piece]:
    """Strings with the number of each row, all of the same size."""
    width = len(str(max(rows - 1, 0)))
    spelled = prefix.encode()
    return [b"\xb1" + (len(spelled) + width).to_bytes(4, "big") + spelled, _numerals(rows, width)]


@lru_cache(maxsize=4)
def _numerals(rows: int, width: int) -> pa.Array:
    """The numbers from 0 on in so many digits; most batches of Spark have as many rows as the one before."""
    powers = 10 ** np.arange(width - 1, -1, -1)
    return _fixed((np.arange(rows)[:, None] // powers % 10 + ord("0")).astype(np.uint8))


def _length(piece: Piece) -> int | npt.NDArray[np.int64]:
    """How many bytes it has, in each row."""
    return len(piece) if isinstance(piece, bytes) else np.asarray(pc.binary_length(piece)).astype(np.int64)


def _application_properties(columns: Mapping[str, pa.Array], rows: int) -> Piece:
    encoded = columns.get("encoded_properties")
    properties = columns.get("properties") if encoded is None else encoded
    if properties is None or properties.null_count == rows:
        return b""
    offsets = np.asarray(properties.offsets).astype(np.int64)
    values = _property_values(properties.items) if encoded is None else [properties.items]
    entries = _joined([*_strings(properties.keys), *values])
    lists = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), entries)
    content = pc.fill_null(pc.binary_join(lists, _NOTHING), b"")
    counts = np.where(np.asarray(pc.is_valid(properties)), np.diff(offsets), 0)
    sizes = np.asarray(pc.binary_length(content)).astype(np.int64)
    section = _joined([b"\x00\x53\x74\xd1", _big_endian(sizes + 4), _big_endian(2 * counts), content])
    return pc.if_else(pa.array(counts > 0), section, _NOTHING)


def _property_values(values: pa.Array) -> Sequence[Piece]:
    if pa.types.is_string(values.type):
        return _strings(values)
    if pa.types.is_binary(values.type):
        return _sized(values, b"\xb0", _NULL)
    return [encoded_numbers(values)]


def _body(body: pa.Array, *, is_text: bool) -> Sequence[Piece]:
    """A body that is null is a value that is null, of bytes too: a section of data can only be empty."""
    return _sized(body, b"\x00\x53\x77\xb1" if is_text else b"\x00\x53\x75\xb0", b"\x00\x53\x77\x40")


def _optional(columns: Mapping[str, pa.Array], name: str) -> Sequence[Piece]:
    values = columns.get(name)
    return [_NULL] if values is None else _strings(values)


def _strings(values: pa.Array) -> Sequence[Piece]:
    """AMQP strings, and null where there is none."""
    return _sized(values, b"\xb1", _NULL)


def _sized(values: pa.Array, head: bytes, none: bytes) -> Sequence[Piece]:
    """`head`, four bytes of size, the value's bytes; `none` where there is no value."""
    if len(values) and values.null_count == len(values):
        return [none]
    data = values.cast(pa.binary())
    sizes = _big_endian(np.asarray(pc.fill_null(pc.binary_length(data), 0)).astype(np.int64))
    if not values.null_count:
        return [head, sizes, data]
    return [pc.fill_null(_joined([head, sizes, data]), none)]


def _times(ms: pa.Array) -> Piece:
    if ms.null_count == len(ms):
        return _NULL
    values = np.asarray(pc.fill_null(ms, 0)).astype(">u8")
    head = np.full((len(values), 1), 0x83, np.uint8)
    spelled = _fixed(np.concatenate([head, values.view(np.uint8).reshape(-1, 8)], axis=1))
    return pc.if_else(pc.is_valid(ms), spelled, pa.scalar(_NULL, pa.binary()))


def _big_endian(numbers: npt.NDArray[np.int64]) -> Piece:
    """Each number in four bytes."""
    if len(numbers) and is_uniform(numbers):
        return int(numbers[0]).to_bytes(4, "big")
    return _fixed(numbers.astype(">u4").view(np.uint8).reshape(-1, 4))


def _fixed(rows: npt.NDArray[np.uint8]) -> pa.Array:
    """Rows of the same size."""
    width = rows.shape[1]
    data = pa.py_buffer(np.ascontiguousarray(rows))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(rows), [None, data]).cast(pa.binary())


def _numbers(columns: Mapping[str, pa.Array], name: str, default: int, rows: int) -> npt.NDArray[np.int64]:
    values = columns.get(name)
    if values is None:
        return np.full(rows, default, np.int64)
    return np.asarray(pc.fill_null(values.cast(pa.int64()), default)).astype(np.int64)
