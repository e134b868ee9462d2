"""Arrow schema of messages, and the AMQP property behind each column (AMQP 3.2.4, its JMS mapping 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from legato.bulk.arrays import binary_array, map_array, number_array, text_array
from legato.bulk.buffer_slices import Ints

TIMESTAMP = pa.timestamp("us", "UTC")
PROPERTY_MAP = pa.map_(pa.string(), pa.string())
ENCODED_PROPERTIES = pa.map_(pa.string(), pa.binary())
"""Properties whose values are encoded as AMQP encodes them: of different types in one map."""

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
"""What `columns.decode` returns, and of which types."""

MESSAGE_ID = "message_id"
TEXTS = {MESSAGE_ID: 0, "type": 3, "reply_to": 4, "correlation_id": 5, "group_id": 10}
"""Columns of text, and the places of their fields in the properties."""
IDS = (MESSAGE_ID, "correlation_id")
"""Those that may be of another type, which the JMS mapping then writes as text."""
ID_PREFIX = b"ID:"
"""A message's id begins so, or it is none (AMQP's JMS mapping 3.2.1.1)."""
EXPIRY, CREATION = 8, 9
"""Places of the fields that are times."""


def as_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array as of type `kind`; what is no UTF-8 is replaced by U+FFFD."""
    if array.type == kind:
        return array
    try:
        return array.cast(kind)
    except pa.ArrowInvalid:
        values = [None if value is None else value.decode("utf-8", "replace") for value in array.to_pylist()]
        return text_array(values)


def column_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values of Python's as a column of `COLUMNS`, of type `kind`; times are in microseconds since 1970."""
    if kind == pa.string():
        return text_array(values)
    if kind == pa.binary():
        return binary_array(values)
    if kind == PROPERTY_MAP:
        texts = [row if row is None else [(name, _spelled(value)) for name, value in row] for row in values]
        return map_array(texts, PROPERTY_MAP)
    valid = np.array([value is not None for value in values], bool)
    width = np.int32 if kind == pa.int32() else np.int64
    numbers = number_array(np.array([value or 0 for value in values], width), valid)
    return numbers.cast(kind)


def _spelled(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "replace")


TIME_MIN_MS, TIME_MAX_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999: what is beyond them no sender means, and few readers can tell."""


def times(timestamp_ms: Ints, expiry_ms: Ints, ttl_ms: Ints | int) -> tuple[pa.Array, pa.Array]:
    """The columns `timestamp` and `expiration`; 0 is none, as is what is no time.

    Who says how long a message lasts, but not until when, means from its timestamp on.
    """
    lasting = (expiry_ms == 0) & (timestamp_ms != 0) & (np.asarray(ttl_ms) != 0)
    if lasting.any():
        # No nearer to the ends of what a number can be than any time to live.
        expiry_ms = np.where(lasting, np.clip(timestamp_ms, -(1 << 62), 1 << 62) + ttl_ms, expiry_ms)
    return _times(timestamp_ms), _times(expiry_ms)


def time_us(ms: int) -> int | None:
    """One time, likewise."""
    return ms * 1000 if ms and TIME_MIN_MS <= ms <= TIME_MAX_MS else None


def _times(ms: Ints) -> pa.Array:
    if not ms.any():
        return pa.nulls(len(ms), TIMESTAMP)
    known = (ms != 0) & (ms >= TIME_MIN_MS) & (ms <= TIME_MAX_MS)
    return number_array(ms * 1000, known).cast(TIMESTAMP)
