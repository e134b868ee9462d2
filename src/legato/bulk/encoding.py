"""Arrow columns as AMQP messages, encoded for all rows at once (AMQP 3.2, its JMS mapping 3): what `columns` reads.

Every value is a piece, a binary array with one element a row; Arrow joins them. A null piece is AMQP's null.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from legato.amqp.codec import encode_string
from legato.amqp.header import Header, encode_header
from legato.amqp.message import encode_annotations
from legato.amqp.types import Byte
from legato.client.destinations import DestinationKind
from legato.client.messages import BytesMessage, TextMessage
from legato.client.received import DESTINATION_KIND, MESSAGE_TYPE, REPLY_TO_KIND, TYPE_NUMBERS

_NULL = pa.scalar(b"\x40", pa.binary())
_PRIORITY_DEFAULT = 4
_PRIORITIES = 10


def encode(
    columns: Mapping[str, pa.Array], destination: str, *, id_prefix: str, now_ms: int, topic: bool = False
) -> pa.BinaryArray:
    """One message a row, for the queue or topic `destination`.

    Args:
        columns: of those in `legato.bulk.columns.COLUMNS`, `body` at least; a text column `body` makes text messages,
            a binary one bytes messages. Also `time_to_live_ms` and `duplicate_id`. What is missing or null has its
            default.
        id_prefix: message ids are this with the row's number; a column `message_id` is not looked at.
        now_ms: when they are sent, in milliseconds since 1970.
    """
    rows = len(columns["body"])
    body = columns["body"]
    is_text = pa.types.is_string(body.type)
    pieces = [
        _headers(columns, rows),
        _annotations(columns, is_text=is_text, topic=topic, rows=rows),
        _properties(columns, destination, id_prefix, now_ms, rows),
        _application_properties(columns, rows),
        _body(body, is_text=is_text),
    ]
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.binary()))


def _headers(columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """Few different ones, unless there are times to live."""
    priority = _numbers(columns, "priority", _PRIORITY_DEFAULT, rows).clip(0, _PRIORITIES - 1)
    mode = columns.get("delivery_mode")
    durable = np.ones(rows, bool)
    if mode is not None:
        durable = np.asarray(pc.fill_null(pc.not_equal(mode, "NON_PERSISTENT"), True))
    ttl_ms = _numbers(columns, "time_to_live_ms", 0, rows).clip(0, 0xFFFFFFFF)
    keys, places = np.unique(
        np.stack([ttl_ms, priority, durable.astype(np.int64)], axis=1), axis=0, return_inverse=True
    )
    sections = [
        encode_header(Header(durable=bool(is_durable), priority=int(level), ttl_ms=int(ttl) or None))
        for ttl, level, is_durable in keys
    ]
    return pa.array(sections, pa.binary()).take(pa.array(places.reshape(-1)))


def _annotations(columns: Mapping[str, pa.Array], *, is_text: bool, topic: bool, rows: int) -> pa.Array:
    kind = TYPE_NUMBERS[TextMessage if is_text else BytesMessage]
    where = DestinationKind.TOPIC if topic else DestinationKind.QUEUE
    plain = {MESSAGE_TYPE: Byte(kind), DESTINATION_KIND: Byte(where)}
    replied = plain | {REPLY_TO_KIND: Byte(DestinationKind.QUEUE)}
    sections = pa.array([encode_annotations(plain), encode_annotations(replied)], pa.binary())
    reply_to = columns.get("reply_to")
    has = np.zeros(rows, np.int8) if reply_to is None else np.asarray(pc.is_valid(reply_to)).astype(np.int8)
    return sections.take(pa.array(has))


def _properties(columns: Mapping[str, pa.Array], destination: str, id_prefix: str, now_ms: int, rows: int) -> pa.Array:
    ids = pc.binary_join_element_wise(pa.scalar(id_prefix), pa.array(np.arange(rows)).cast(pa.string()), pa.scalar(""))
    ttl_ms = _numbers(columns, "time_to_live_ms", 0, rows)
    expiry = pa.array(np.where(ttl_ms > 0, now_ms + ttl_ms, 0), mask=ttl_ms <= 0)
    null = pa.repeat(_NULL, rows)
    fields = [
        _strings(ids),
        null,
        pa.repeat(pa.scalar(encode_string(destination), pa.binary()), rows),
        _optional(columns, "type", null),
        _optional(columns, "reply_to", null),
        _optional(columns, "correlation_id", null),
        null,
        null,
        _times(expiry),
        pa.repeat(pa.scalar(b"\x83" + now_ms.to_bytes(8, "big"), pa.binary()), rows),
        _optional(columns, "group_id", null),
    ]
    content = pc.binary_join_element_wise(*fields, pa.scalar(b"", pa.binary()))
    sizes = pc.binary_length(content)
    head = pa.scalar(b"\x00\x53\x73\xd0", pa.binary())
    count = pa.scalar(len(fields).to_bytes(4, "big"), pa.binary())
    size = _big_endian(np.asarray(sizes).astype(np.int64) + 4)
    return pc.binary_join_element_wise(head, size, count, content, pa.scalar(b"", pa.binary()))


def _application_properties(columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
    properties = columns.get("properties")
    if properties is None or properties.null_count == rows:
        return pa.repeat(pa.scalar(b"", pa.binary()), rows)
    offsets = np.asarray(properties.offsets).astype(np.int64)
    entries = pc.binary_join_element_wise(
        _strings(properties.keys), pc.fill_null(_strings(properties.items), _NULL), pa.scalar(b"", pa.binary())
    )
    lists = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), entries)
    content = pc.fill_null(pc.binary_join(lists, pa.scalar(b"", pa.binary())), b"")
    counts = np.where(np.asarray(pc.is_valid(properties)), np.diff(offsets), 0)
    sizes = np.asarray(pc.binary_length(content)).astype(np.int64)
    section = pc.binary_join_element_wise(
        pa.scalar(b"\x00\x53\x74\xd1", pa.binary()),
        _big_endian(sizes + 4),
        _big_endian(2 * counts),
        content,
        pa.scalar(b"", pa.binary()),
    )
    return pc.if_else(pa.array(counts > 0), section, pa.scalar(b"", pa.binary()))


def _body(body: pa.Array, *, is_text: bool) -> pa.Array:
    head = b"\x00\x53\x77\xb1" if is_text else b"\x00\x53\x75\xb0"
    none = b"\x00\x53\x77\x40" if is_text else b"\x00\x53\x75\xa0\x00"
    return pc.fill_null(_sized(body, head), pa.scalar(none, pa.binary()))


def _optional(columns: Mapping[str, pa.Array], name: str, null: pa.Array) -> pa.Array:
    values = columns.get(name)
    if values is None or values.null_count == len(values):
        return null
    return pc.fill_null(_strings(values), _NULL)


def _strings(values: pa.Array) -> pa.Array:
    """AMQP strings; null where there is none."""
    return _sized(values, b"\xb1")


def _sized(values: pa.Array, head: bytes) -> pa.Array:
    """`head`, four bytes of size, the value's bytes."""
    data = values.cast(pa.binary())
    sizes = np.asarray(pc.fill_null(pc.binary_length(data), 0)).astype(np.int64)
    return pc.binary_join_element_wise(
        pa.scalar(head, pa.binary()), _big_endian(sizes), data, pa.scalar(b"", pa.binary())
    )


def _times(ms: pa.Array) -> pa.Array:
    values = np.asarray(pc.fill_null(ms, 0)).astype(">u8")
    head = np.full((len(values), 1), 0x83, np.uint8)
    spelled = _fixed(np.concatenate([head, values.view(np.uint8).reshape(-1, 8)], axis=1))
    return pc.if_else(pc.is_valid(ms), spelled, _NULL)


def _big_endian(numbers: npt.NDArray[np.int64]) -> pa.Array:
    """Each number in four bytes."""
    return _fixed(numbers.astype(">u4").view(np.uint8).reshape(-1, 4))


def _fixed(rows: npt.NDArray[np.uint8]) -> pa.Array:
    width = rows.shape[1]
    data = pa.py_buffer(np.ascontiguousarray(rows))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(rows), [None, data]).cast(pa.binary())


def _numbers(columns: Mapping[str, pa.Array], name: str, default: int, rows: int) -> npt.NDArray[np.int64]:
    values = columns.get(name)
    if values is None:
        return np.full(rows, default, np.int64)
    return np.asarray(pc.fill_null(values.cast(pa.int64()), default)).astype(np.int64)
