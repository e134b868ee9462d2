"""Layout of AMQP messages: the places of their sections, for all rows at once (AMQP 3.2)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from legato.amqp.codec.header import APPLICATION_PROPERTIES, DATA, HEADER, PROPERTIES, VALUE
from legato.bulk.buffer_slices import Bytes, Extents, Ints, Mask, is_uniform, list_items, padded, values_at

_SECTIONS_MAX = 8
_HEADER_FIELDS = 3
_PROPERTY_FIELDS = 11
_SEQUENCE = 0x76


class Rows(NamedTuple):
    """Messages one behind another in a buffer: of row `i`, the bytes from `start[i]` to before `end[i]`."""

    buffer: Bytes
    start: Ints
    end: Ints

    def of(self, which: Ints) -> Rows:
        """Some of them."""
        return Rows(self.buffer, self.start[which], self.end[which])

    def padded(self) -> Rows:
        """The same in a buffer that can be walked through."""
        return Rows(padded(self.buffer), self.start, self.end)

    def alone(self, row: int) -> Rows:
        """One of them, in a buffer of its own."""
        content = self.buffer[self.start[row] : self.end[row]]
        return Rows(content, np.zeros(1, np.int64), np.full(1, len(content)))


class SectionSlices(NamedTuple):
    """A value in each row that has it."""

    value: Extents
    has: Mask


class Layout(NamedTuple):
    """The slices of all sections.

    `sound` are the rows that are understood to their end, and of which each part is what AMQP says it is.
    """

    header: list[SectionSlices]
    properties: list[SectionSlices]
    application_properties: SectionSlices
    data: SectionSlices
    value: SectionSlices
    sound: Mask


class Walked(NamedTuple):
    """Decoded rows: row numbers, bodies, times to live in milliseconds (0 for none), and columns."""

    layout: Layout
    body: SectionSlices
    ttl_ms: Ints
    columns: dict[str, pa.Array]


def rows_of(messages: pa.Array) -> Rows:
    """A binary array's messages."""
    offsets = np.frombuffer(messages.buffers()[1], np.int32)[messages.offset : messages.offset + len(messages) + 1]
    data = messages.buffers()[2]
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    places = offsets.astype(np.int64)
    begin = int(places[0])
    return Rows(content[begin : int(places[-1])], places[:-1] - begin, places[1:] - begin)


def laid_out(rows: Rows) -> Layout:
    """Walk through all rows at once; their buffer is padded."""
    sections, sound = _sections(rows)
    header = _fields(rows, sections[HEADER], sound, _HEADER_FIELDS)
    properties = _fields(rows, sections[PROPERTIES], sound, _PROPERTY_FIELDS)
    return Layout(header, properties, sections[APPLICATION_PROPERTIES], sections[DATA], sections[VALUE], sound)


def _sections(rows: Rows) -> tuple[dict[int, SectionSlices], Mask]:
    """Places of all sections, and the rows that are understood to their end."""
    buffer, place, end = rows.buffer, rows.start, rows.end
    count = len(place)
    sections = {
        code: SectionSlices(
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
                sections[one] = SectionSlices(value, more)
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


def _fields(rows: Rows, section: SectionSlices, sound: Mask, wanted: int) -> list[SectionSlices]:
    fields, whole = list_items(rows.buffer, section.value, wanted)
    sound &= whole | ~section.has
    return [SectionSlices(value, has & section.has) for value, has in fields]
