"""Packer of messages in an Arrow array into the store's blocks (`store/blocks.py`)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from legato.bulk.buffer_slices import is_uniform
from legato.store.block_writer import BLOCK_BODY_BYTES, BLOCK_MESSAGES

_HEADER = struct.Struct(">BBxxIQ")
_BODIES = 0
_EXPIRIES = 1
_DELTAS = np.arange(BLOCK_MESSAGES, dtype=">u4").tobytes()
"""How far each message of a block is from its first one."""


Packed = tuple[bytes, memoryview]
"""A block in two pieces: what it says of its messages, and the messages, where they are."""


def pack(messages: pa.BinaryArray, stored_us: int, expires_us: npt.NDArray[np.int64] | None = None) -> list[Packed]:
    """Blocks of messages whose sequences have no gaps; the first of each block is the next after the last one's last.

    Args:
        stored_us: when they are stored, as far as anybody asks.
        expires_us: when each expires, 0 for never; None if none does.
    """
    if not len(messages):
        return []
    _, offsets_buffer, data = messages.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[messages.offset : messages.offset + len(messages) + 1]
    ends = offsets.astype(np.int64)
    content = memoryview(data) if data is not None else memoryview(b"")
    if expires_us is not None and not expires_us.any():
        expires_us = None
    lengths = np.diff(ends)
    if expires_us is None and is_uniform(lengths):
        cuts = _cuts_of_alike(len(lengths), int(lengths[0]))
        heads = {rows: _head(ends, 0, rows, stored_us, None) for rows in {end - begin for begin, end in cuts}}
        return [(heads[end - begin], content[int(ends[begin]) : int(ends[end])]) for begin, end in cuts]
    return [
        (_head(ends, begin, end, stored_us, expires_us), content[int(ends[begin]) : int(ends[end])])
        for begin, end in _cuts(ends)
    ]


def _cuts_of_alike(count: int, length: int) -> list[tuple[int, int]]:
    """Bounds of blocks if all messages have that length."""
    fit = BLOCK_BODY_BYTES // length if length else count
    step = max(1, min(fit, BLOCK_MESSAGES))
    return [(begin, min(begin + step, count)) for begin in range(0, count, step)]


def _cuts(ends: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Bounds of blocks: within their limits, or one message alone."""
    begin, count = 0, len(ends) - 1
    while begin < count:
        fit = int(np.searchsorted(ends, ends[begin] + BLOCK_BODY_BYTES, side="right")) - 1
        end = max(begin + 1, min(fit, begin + BLOCK_MESSAGES, count))
        yield begin, end
        begin = end


def _head(
    ends: npt.NDArray[np.int64],
    begin: int,
    end: int,
    stored_us: int,
    expires_us: npt.NDArray[np.int64] | None,
) -> bytes:
    rows = end - begin
    parts = [
        _HEADER.pack(_BODIES, _EXPIRIES if expires_us is not None else 0, rows, stored_us),
        _DELTAS[: 4 * rows],
        (ends[begin + 1 : end + 1] - ends[begin]).astype(">u4").tobytes(),
    ]
    if expires_us is not None:
        parts.append(expires_us[begin:end].astype(">u8").tobytes())
    return b"".join(parts)
