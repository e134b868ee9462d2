"""Encoder of application properties, a column at a time (AMQP 1.6)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from legato.bulk.arrays import binary_array
from legato.bulk.buffer_slices import binary_of_one_length

_NULL, _TRUE, _FALSE = binary_array([b"\x40", b"\x41", b"\x42"])
_NUMBERS: dict[pa.DataType, tuple[int, str]] = {
    pa.int8(): (0x51, ">i1"),
    pa.int16(): (0x61, ">i2"),
    pa.int32(): (0x71, ">i4"),
    pa.int64(): (0x81, ">i8"),
    pa.float32(): (0x72, ">f4"),
    pa.float64(): (0x82, ">f8"),
}


def encoded_numbers(values: pa.Array) -> pa.BinaryArray:
    """Numbers or truth values, each with its constructor; null is AMQP's null."""
    if pa.types.is_null(values.type):
        return pa.repeat(_NULL, len(values))
    if pa.types.is_boolean(values.type):
        return pc.fill_null(pc.if_else(values, _TRUE, _FALSE), _NULL)
    constructor, form = _NUMBERS[values.type]
    numbers = np.asarray(pc.fill_null(values, 0)).astype(form)
    width = numbers.dtype.itemsize
    rows = np.empty((len(numbers), 1 + width), np.uint8)
    rows[:, 0] = constructor
    rows[:, 1:] = numbers.view(np.uint8).reshape(-1, width)
    encoded = binary_of_one_length(rows, pa.binary())
    return pc.if_else(values.is_valid(), encoded, _NULL) if values.null_count else encoded
