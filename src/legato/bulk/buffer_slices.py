"""Slices of one buffer, one for each row: walk AMQP's encoding for all rows at once (AMQP 1.6).

A function here takes and gives arrays with one element a row, and costs some nanoseconds a row. What does not fit is
said in a mask, never guessed; nothing reads beyond the buffer, whatever its bytes claim.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

PADDING_BYTES = 16
"""A buffer has so many zeroes behind its rows: what begins within them can be read without a look at the end."""

_WIDTHS = np.array([0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 0, 0, 0, 0, 0, 0], np.int64)
SIZE_BYTES = np.array([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 4, 1, 4, 1, 4], np.int64)
"""In how many bytes a value's size is, by the upper half of its constructor."""
_KIND_MIN = 4
"""Constructors begin at 0x40."""
_INLINE_MAX = 12
"""A view of at most so many bytes holds them itself."""
OFFSET_MAX = (1 << 31) - 1
"""An array of binary values holds no more bytes."""


class Extents(NamedTuple):
    """A value's slice in each row: constructor, first byte, length. The next value begins at `end`."""

    code: Bytes
    start: Ints
    length: Ints

    @property
    def end(self) -> Ints:
        """Start of the next value."""
        return self.start + self.length


def padded(data: Bytes) -> Bytes:
    """A copy of `data` that can be walked through."""
    return np.concatenate([data, np.zeros(PADDING_BYTES, np.uint8)])


def unsigned(buffer: Bytes, start: Ints, length: Ints | int) -> Ints:
    """Big-endian numbers of at most 8 bytes; those of no bytes are 0."""
    if not isinstance(length, int):
        if not is_uniform(length):
            return _unsigned_of_any_length(buffer, start, length)
        length = int(length[0]) if len(length) else 0
    if length == 1:
        return buffer[start].astype(np.int64)
    if length in (2, 4, 8):
        return everywhere(buffer, f">u{length}")[start].astype(np.int64)
    if not length:
        return np.zeros(len(start), np.int64)
    return (everywhere(buffer, ">u8")[start] >> np.uint64(64 - 8 * length)).astype(np.int64)


def _unsigned_of_any_length(buffer: Bytes, start: Ints, length: Ints) -> Ints:
    words = everywhere(buffer, ">u8")[start].astype(np.uint64)
    # A shift by the whole width is not defined: it is done in two steps.
    half = (32 - 4 * length).astype(np.uint64)
    return ((words >> half) >> half).astype(np.int64)


def is_uniform(values: npt.NDArray[Any]) -> bool:
    """Whether all are the same."""
    return not len(values) or bool((values == values[0]).all())


def everywhere(buffer: Bytes, kind: str) -> npt.NDArray[Any]:
    """The numbers of that kind that begin at each byte of the buffer."""
    number = np.dtype(kind)
    return np.ndarray((len(buffer) - number.itemsize + 1,), number, buffer, strides=(1,))


def _windows(buffer: Bytes, width: int) -> npt.NDArray[np.uint8]:
    """All places of the buffer with the `width` bytes from there on."""
    return np.lib.stride_tricks.sliding_window_view(buffer, width)


def values_at(buffer: Bytes, place: Ints, end: Ints) -> tuple[Extents, Mask]:
    """The values that begin at `place` and must not go beyond `end`; and where that is so."""
    code = buffer[place]
    if len(code) and is_uniform(code):
        # Messages of one sender are nearly always alike.
        start, length, fits = _of_one_kind(buffer, place, end, int(code[0]) >> 4)
    else:
        start, length, fits = _of_any_kind(buffer, place, end, code >> 4)
    if not fits.all():
        length = np.where(fits, length, 0)
        start = np.where(fits, start, place)
    return Extents(code, start, length), fits


def _of_one_kind(buffer: Bytes, place: Ints, end: Ints, kind: int) -> tuple[Ints, Ints, Mask]:
    size_bytes = int(SIZE_BYTES[kind])
    start = place + (1 + size_bytes)
    length = unsigned(buffer, place + 1, size_bytes) if size_bytes else np.full(len(place), _WIDTHS[kind])
    fits = start + length <= end if kind >= _KIND_MIN else np.zeros(len(place), bool)
    return start, length, fits


def _of_any_kind(buffer: Bytes, place: Ints, end: Ints, kind: npt.NDArray[Any]) -> tuple[Ints, Ints, Mask]:
    size_bytes = SIZE_BYTES[kind]
    start = place + 1 + size_bytes
    length = _WIDTHS[kind]
    sized = size_bytes > 0
    if sized.any():
        length = np.where(sized, unsigned(buffer, place + 1, size_bytes), length)
    return start, length, (start + length <= end) & (kind >= _KIND_MIN)


def list_items(buffer: Bytes, compound: Extents, wanted: int) -> tuple[list[tuple[Extents, Mask]], Mask]:
    """The first `wanted` items of lists: each with the rows that have it; and which rows hold a list that is whole."""
    code = compound.code
    empty, short, long = code == 0x45, code == 0xC0, code == 0xD0
    count_bytes = np.where(empty, 0, np.where(long, 4, 1))
    count = unsigned(buffer, compound.start, count_bytes)
    place = compound.start + count_bytes
    end = compound.end
    sound = empty | short | long
    items = []
    for index in range(wanted):
        has = sound & (count > index)
        value, fits = values_at(buffer, place, end)
        sound &= fits | ~has
        has &= fits
        items.append((value, has))
        place = value.end if has.all() else np.where(has, value.end, place)
    return items, sound


def binary_of(buffer: Bytes, start: Ints, length: Ints, valid: Mask) -> pa.BinaryArray:
    """The bytes at each place; null where it is not `valid`. They are copied once, by Arrow.

    Raises:
        ValueError: the buffer is larger than 2 GiB.
    """
    if len(buffer) > OFFSET_MAX:
        raise ValueError("a buffer of more than 2 GiB cannot be viewed")
    rows = len(start)
    if not valid.any():
        return pa.nulls(rows, pa.binary())
    length = np.where(valid, length, 0)
    views = np.empty((rows, 4), np.int32)
    views[:, 0] = length
    views[:, 1] = everywhere(buffer, "<i4")[start]
    views[:, 2] = 0
    views[:, 3] = start
    inline = np.flatnonzero(length <= _INLINE_MAX)
    if len(inline):
        here = np.arange(_INLINE_MAX) < length[inline, None]
        within = np.where(here, _windows(buffer, _INLINE_MAX)[start[inline]], 0)
        views[inline, 1:] = within.astype(np.uint8).view(np.int32)
    validity = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    view = pa.Array.from_buffers(pa.binary_view(), rows, [validity, pa.py_buffer(views), pa.py_buffer(buffer)])
    return view.cast(pa.binary())


def binary_of_one_length(values: Bytes, kind: pa.DataType) -> pa.Array:
    """Values of the same length, a row each, as an array of that kind: binary, or text that is known to be UTF-8."""
    count, length = values.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(length)
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(values)])
