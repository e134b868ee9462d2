"""Row templates: the layout of one row is parsed, the others are compared with it.

What one sender sends differs in ids, times and bodies, and its lengths seldom change. Of such rows each byte that says
how a message is laid out is the same; where that is so, values are copied from the same places of all rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from legato.bulk.buffer_slices import (
    SIZE_BYTES,
    Bytes,
    Ints,
    Mask,
    binary_of,
    binary_of_one_length,
    everywhere,
    is_uniform,
    padded,
)
from legato.bulk.layout import Rows, SectionSlices, Walked
from legato.bulk.schema import COLUMNS, CREATION, EXPIRY, ID_PREFIX, IDS, MESSAGE_ID, TEXTS, as_type, times

_TIME = 0x83
_HEAD_MAX = 1024
_WORD_BYTES = 8
_MAYBE_ESCAPED = ID_PREFIX + b"A"
"""An id that begins so may stand for another type, or say that something is escaped: it is looked at closely."""
_ROWS_AT_ONCE = 1000
"""What is compared of them should fit into the processor's memory."""
_ASCII_MAX = 127

Heads = npt.NDArray[np.uint8]
"""The first bytes of each row, all before its body's content: a row each."""


class Field(NamedTuple):
    """Offset of a value in each row, from the beginning of the row."""

    place: int
    length: int


_NOWHERE = Field(0, 0)


class RowTemplate(NamedTuple):
    """The layout that rows share.

    Args:
        head: the first row's bytes before its body's content, zero where rows may differ.
        mask: ones where they may not.
        head_bytes: how many of these count.
        size_bytes: in how many bytes, the last of the head, a body's size is; 0 if there is none.
        texts: columns of text whose values may differ.
        creation: where the time of sending is.
        expiry: where the time is until which it lasts.
        ttl_ms: how long it lasts, 0 for no end.
        same: columns of one row that are the same in all.
    """

    head: bytes
    mask: Bytes
    head_bytes: int
    size_bytes: int
    texts: dict[str, Field]
    creation: Field
    expiry: Field
    ttl_ms: int
    same: dict[str, pa.Array]

    def decode(self, rows: Rows) -> tuple[Mask, dict[str, pa.Array]]:
        """Rows that fit the template, and their columns."""
        same, heads = self._heads(rows)
        if same.all():
            return same, self._columns(rows, heads)
        found = np.flatnonzero(same)
        return same, self._columns(rows.of(found), heads[found])

    def _heads(self, rows: Rows) -> tuple[Mask, Heads]:
        """Rows that fit the template, and the heads of all."""
        width = len(self.mask)
        last = len(rows.buffer) - width
        if last < 0:
            return np.zeros(len(rows.start), bool), np.zeros((len(rows.start), width), np.uint8)
        heads = everywhere(rows.buffer, f"V{width}")[np.minimum(rows.start, last)].view(np.uint8).reshape(-1, width)
        same = self._laid_out_alike(heads) & (rows.start <= last)
        size = rows.end - rows.start - self.head_bytes
        same &= size == _numbers(heads, Field(self.head_bytes - self.size_bytes, self.size_bytes))
        for name in IDS:
            if name in self.texts and self.texts[name].length >= len(_MAYBE_ESCAPED):
                begin = _numbers(heads, Field(self.texts[name].place, len(_MAYBE_ESCAPED)))
                same &= begin != int.from_bytes(_MAYBE_ESCAPED)
        return same, heads

    def _laid_out_alike(self, heads: Heads) -> Mask:
        words, mask = heads.view(np.uint64), self.mask.view(np.uint64)
        head = np.frombuffer(self.head, np.uint64)
        same = np.ones(len(heads), bool)
        for begin in range(0, len(heads), _ROWS_AT_ONCE):
            part = slice(begin, begin + _ROWS_AT_ONCE)
            differs = (words[part] ^ head) & mask
            if differs.any():
                same[part] = ~differs.any(axis=1)
        return same

    def _columns(self, rows: Rows, heads: Heads) -> dict[str, pa.Array]:
        count = len(heads)
        found = {name: _text(_copied(heads, field)) for name, field in self.texts.items()}
        timestamp_ms, expiry_ms = _numbers(heads, self.creation), _numbers(heads, self.expiry)
        found["timestamp"], found["expiration"] = times(timestamp_ms, expiry_ms, self.ttl_ms)
        if self.size_bytes:
            found["body"] = _body(rows, rows.start + self.head_bytes)
        return {name: found[name] if name in found else _repeated(self.same[name], count) for name in COLUMNS}


def shape_of(first: Rows, found: Walked) -> RowTemplate | None:
    """The shape of a row in which all of this was found, or None if none can be had of it."""
    layout, body, ttl_ms, columns = found
    [begin], [end] = first.start, first.end
    size_bytes = int(SIZE_BYTES[body.value.code[0] >> 4]) if body.has[0] else 0
    if not layout.sound[0] or (size_bytes and int(body.value.end[0]) != end):
        return None
    head_bytes = (int(body.value.start[0]) if size_bytes else end) - begin
    if not 0 < head_bytes <= _HEAD_MAX:
        return None
    fields = [_field(part, begin) for part in layout.properties]
    texts = {name: fields[index] for name, index in TEXTS.items() if columns[name].is_valid()[0].as_py()}
    creation, expiry = (
        fields[index] if layout.properties[index].value.code[0] == _TIME else _NOWHERE for index in (CREATION, EXPIRY)
    )
    mask = np.zeros(-(-head_bytes // _WORD_BYTES) * _WORD_BYTES, np.uint8)
    mask[: head_bytes - size_bytes] = 0xFF
    for field in (*fields, _field(layout.application_properties, begin)):
        mask[field.place : field.place + field.length] = 0
    if MESSAGE_ID in texts:
        # Not every text is a message's id; those that begin so are.
        mask[texts[MESSAGE_ID].place :][: len(ID_PREFIX)] = 0xFF
    head = np.zeros(len(mask), np.uint8)
    head[:head_bytes] = first.buffer[begin : begin + head_bytes] & mask[:head_bytes]
    return RowTemplate(head.tobytes(), mask, head_bytes, size_bytes, texts, creation, expiry, int(ttl_ms[0]), columns)


def _field(part: SectionSlices, begin: int) -> Field:
    return Field(int(part.value.start[0]) - begin, int(part.value.length[0])) if part.has[0] else _NOWHERE


def _copied(heads: Heads, field: Field) -> Heads:
    return np.ascontiguousarray(heads[:, field.place : field.place + field.length])


def _numbers(heads: Heads, field: Field) -> Ints:
    """Big-endian numbers of at most 8 bytes; those of no bytes are 0."""
    if not field.length:
        return np.zeros(len(heads), np.int64)
    return _copied(heads, field).view(f">u{field.length}").reshape(len(heads)).astype(np.int64)


def _text(values: Heads) -> pa.Array:
    is_ascii = not values.size or int(values.max()) <= _ASCII_MAX
    found = binary_of_one_length(values, pa.string() if is_ascii else pa.binary())
    return as_type(found, pa.string())


def _body(rows: Rows, start: Ints) -> pa.Array:
    length = rows.end - start
    if len(length) and is_uniform(length) and length[0]:
        content = everywhere(rows.buffer, f"V{length[0]}")[start].view(np.uint8)
        return binary_of_one_length(content.reshape(len(start), -1), pa.binary())
    return binary_of(padded(rows.buffer), start, length, np.ones(len(start), bool))


def _repeated(one: pa.Array, count: int) -> pa.Array:
    return pa.nulls(count, one.type) if one.null_count else pa.repeat(one[0], count)
