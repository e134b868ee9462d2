"""Digest of a staged batch's rows, independent of their order and of how they were divided among tasks.

Spark repeats a batch after a crash: the same rows, but tasks and the order in them may be others. So a digest is a sum
over rows. It is no protection from forgers: who may stage may send what he likes.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Words = npt.NDArray[np.uint64]

_ROWS_AT_ONCE = 4096
_SHORT_WORDS = 64
"""Values of up to so many words are hashed together with others of as many words; longer ones one by one."""
_DIGEST = struct.Struct(">QQ")
_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_NULL = np.uint64(0)
_SHIFT = np.uint64(29)
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)
"""What is left of a word of which so many bytes belong to the value."""


class RowDigest:
    """The digest of a set of rows; the order of `add` calls does not matter.

    Attributes:
        rows: how many there were.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._sums = [0, 0]

    def add(self, batch: pa.RecordBatch) -> None:
        """More rows."""
        self.rows += batch.num_rows
        if not batch.num_rows:
            return
        rows = np.zeros(batch.num_rows, np.uint64)
        for name in batch.schema.names:
            seed = np.uint64(zlib.crc32(name.encode()) << 1 | 1)
            values = _hashed(batch.column(name))
            rows += np.where(values == _NULL, _NULL, _mixed(values * seed))
        for lane, factor in enumerate((_FIRST, _SECOND)):
            self._sums[lane] += int(_mixed(rows * factor).sum(dtype=np.uint64))

    def digest(self) -> bytes:
        """Of all of them: 16 bytes."""
        return _DIGEST.pack(*[each % (1 << 64) for each in self._sums])


def _mixed(values: Words) -> Words:
    mixed = (values ^ (values >> _SHIFT)) * _FIRST
    return mixed ^ (mixed >> _SHIFT)


_WEIGHTS = _mixed(np.arange(1, _SHORT_WORDS + 1, dtype=np.uint64) * _SECOND) | np.uint64(1)


def _hashed(column: pa.Array) -> Words:
    """A word for each value; 0 for null, also for a column that is not there."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _hashed(column.dictionary_decode())
    if pa.types.is_map(kind):
        words = _of_maps(column)
    elif pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        words = _mixed(np.asarray(pc.fill_null(column.cast(pa.int64()), 0)).view(np.uint64) + _SECOND)
    elif pa.types.is_floating(kind):
        words = _mixed(np.asarray(pc.fill_null(column.cast(pa.float64()), 0.0)).view(np.uint64) + _SECOND)
    elif pa.types.is_null(kind):
        return np.zeros(len(column), np.uint64)
    else:
        text = pa.types.is_large_string(kind) or not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
        words = _of_bytes((column.cast(pa.large_string()) if text else column).cast(pa.large_binary()))
    words = words | np.uint64(1)
    if column.null_count:
        words[np.asarray(column.is_null())] = _NULL
    return words


def _of_maps(column: pa.MapArray) -> Words:
    """The entries of a map are in no order."""
    offsets = np.asarray(column.offsets).astype(np.int64)
    begin, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    keys, items = (_hashed(part.slice(begin, count)) for part in (column.keys, column.items))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_mixed(keys * _SECOND + items), dtype=np.uint64)])
    places = offsets - begin
    return _mixed(sums[places[1:]] - sums[places[:-1]] + _SECOND)


def _of_bytes(column: pa.LargeBinaryArray) -> Words:
    """Every byte counts, at its place."""
    offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    lengths = offsets[1:] - offsets[:-1]
    words = (lengths + 7) >> 3
    found = np.zeros(len(column), np.uint64)
    data = column.buffers()[2]
    if data is not None:
        view = memoryview(data)
        for row in np.flatnonzero(words > _SHORT_WORDS).tolist():
            value = view[offsets[row] : offsets[row + 1]]
            found[row] = zlib.crc32(value) + 1
        first, last = int(offsets[0]), int(offsets[-1])
        # Behind the last value, too, there must be whole words.
        padded = np.zeros(last - first + 8, np.uint8)
        padded[: last - first] = np.frombuffer(data, np.uint8)[first:last]
        for each in np.unique(words).tolist():
            if 0 < each <= _SHORT_WORDS:
                rows = np.flatnonzero(words == each)
                for begin in range(0, len(rows), _ROWS_AT_ONCE):
                    some = rows[begin : begin + _ROWS_AT_ONCE]
                    found[some] = _of_short(padded, offsets[some] - first, lengths[some], each)
    return _mixed(found + lengths.astype(np.uint64) * _SECOND)


def _of_short(
    padded: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], words: int
) -> Words:
    """Of values that take up so many words, the last one in part perhaps."""
    windows = np.lib.stride_tricks.sliding_window_view(padded, words * 8)[starts].view("<u8")
    windows[:, -1] &= _MASKS[lengths - 8 * (words - 1)]
    sums: Words = windows @ _WEIGHTS[:words]
    return sums
