"""Shapes: the common layout of a producer's messages, and the places where they differ."""

from __future__ import annotations

import msgspec

from legato.amqp.codec.delivery_options import CLOSING_SEQUENCE, DUPLICATE_ID_KEY, PLAIN, DeliveryOptions
from legato.amqp.codec.fields import CORRELATION_ID, CREATION, EXPIRY, GROUP, GROUP_SEQUENCE, MESSAGE_ID, has_field
from legato.amqp.codec.flow_calls import FLOW_KEY, flow_calls
from legato.amqp.codec.map_entries import LONG_MAP_BYTES
from legato.amqp.codec.sections import Sections
from legato.amqp.codec.values import skip_value

BODIES = (b"\x00\x53\x75", b"\x00\x53\x77")
SHORT, LONG = (0xA0, 0xA1), (0xB0, 0xB1)
SHORT_MAP, LONG_MAP = 0xC1, 0xD1
TIMESTAMP_BYTES = 8
TIMESTAMP = 0x83
_STRING, _NULL = 0xA1, 0x40
_UINT, _SHORT_UINT, _UINT_ZERO = 0x70, 0x52, 0x43

_BYTES_MAX = 4096
"""A message with more than this before its body has no shape."""


_TEXTS = frozenset((0xA1, 0xA3, 0xB1, 0xB3))
_SIMPLE = frozenset(
    {
        *_TEXTS,
        *(0x40, 0x41, 0x42, 0x43, 0x44, 0x45),  # null, true, false, 0, 0, the empty list
        *(0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x60, 0x61, 0x70, 0x71, 0x72, 0x80, 0x81, 0x82, 0x83, 0x98),
        *(0xA0, 0xB0),
    }
)
"""Constructors of values whose bytes have a meaning whatever they are (AMQP 1.6)."""
"""Codes of strings and symbols, short and long: of the long ones the length is plain only if it is."""


class UnusualError(Exception):
    """A message that seemed to be of a shape is not."""


class Shape(msgspec.Struct, frozen=True, gc=False):
    """A message is cut into pieces that stay the same, between places where the next message differs.

    The pieces: up to the message id; from there to the correlation id, if there is one; on to the times; and from there
    to the size of the application properties or of the body. If all are the same, all is at the same places, and only
    the two ids, the times, the application properties and the body are new.
    """

    prefix: bytes
    id_at: int
    id_end: int
    correlated: bytes
    """What lies between the two ids; empty if there is no correlation id."""
    middle: bytes
    middle_at: int
    tail: bytes
    tail_at: int
    tail_end: int
    last: int
    """The constructor at the tail's end: of the application properties, or else of the body."""
    is_long: bool
    """Whether that is the body's, and has a size of four bytes."""
    special: DeliveryOptions | None
    expiry_at: int
    """Where its expiry is, followed by its creation time; 0 if there is none."""
    group_at: int
    """Where the text of its group is, behind its creation time; 0 if it is not there or always the same."""
    group_end: int
    has_properties: bool
    """Whether there are application properties."""

    def ends_well(self, data: bytes) -> bool:
        """Whether one body section fills the rest of the message."""
        at, last = self.tail_end, self.last
        if last in (SHORT_MAP, LONG_MAP):
            at += 1 + data[at] if last == SHORT_MAP else 4 + int.from_bytes(data[at : at + 4], "big")
            if data[at : at + 3] not in BODIES:
                return False
            last = data[at + 3]
            at += 4
        if last in LONG:
            return at + 4 + int.from_bytes(data[at : at + 4], "big") == len(data)
        return last in SHORT and at + 1 + data[at] == len(data)

    def special_in(self, data: bytes) -> DeliveryOptions:
        """Delivery options of a message of this shape, with its own expiry and group.

        Raises:
            UnusualError: this has to be read with more care.
            IndexError: likewise.
        """
        base = self.special or PLAIN
        expiry_ms, group, closes = base.expiry_ms, base.group, base.closes_group
        at = self.expiry_at
        if at:
            expiry_ms = int.from_bytes(data[at : at + TIMESTAMP_BYTES], "big", signed=True)
            if expiry_ms <= 0 or data[at + TIMESTAMP_BYTES] != TIMESTAMP:
                raise UnusualError
        at = self.group_at
        if at:
            if data[at - 2] != _STRING or data[at - 1] != self.group_end - at:
                raise UnusualError
            group = data[at : self.group_end].decode()
            closes = self._sequence(data) == CLOSING_SEQUENCE
        return DeliveryOptions(base.priority, base.ttl_ms, expiry_ms, base.delivery_ms, base.delay_ms, group, closes)

    def with_properties(self, data: bytes, special: DeliveryOptions | None) -> DeliveryOptions | None:
        """`special`, with the duplicate id and the calls of flows that the message's application properties tell of.

        Raises:
            UnusualError: this has to be read with more care.
            IndexError: likewise.
        """
        at = self.tail_end
        if self.last == SHORT_MAP:
            at, end, count = at + 2, at + 1 + data[at], data[at + 1]
        else:
            count = int.from_bytes(data[at + 4 : at + 8], "big")
            at, end = at + 8, at + 4 + int.from_bytes(data[at : at + 4], "big")
        if end - at > LONG_MAP_BYTES:
            raise UnusualError
        has_id = data.find(DUPLICATE_ID_KEY, at, end) >= 0
        flows = flow_calls(data, at, end) if data.find(FLOW_KEY, at, end) >= 0 else ()
        if not has_id and not flows:
            return special
        duplicate_id = _duplicate_id(data, at, end, count)
        base = special or PLAIN
        return DeliveryOptions(
            base.priority,
            base.ttl_ms,
            base.expiry_ms,
            base.delivery_ms,
            base.delay_ms,
            base.group,
            base.closes_group,
            duplicate_id,
            flows,
        )

    def _sequence(self, data: bytes) -> int:
        """The group sequence, which fills the properties up to their end."""
        at, size = self.group_end, self.tail_at - self.group_end
        code = data[at] if size else _UINT_ZERO
        if (size <= 1 and code in (_UINT_ZERO, _NULL)) or (size == 2 and code == _SHORT_UINT):
            return 0
        if size != 5 or code != _UINT:
            raise UnusualError
        return int.from_bytes(data[at + 1 : at + 5], "big")


def shape_of(sections: Sections, places: list[int], special: DeliveryOptions | None) -> Shape | None:
    """The shape of a message that is encoded as most clients do; None for others.

    Args:
        places: of the fields of its properties, as `field_places` finds them.
        special: what the message asks for.
    """
    data, at = sections.data, sections.properties_at
    last = sections.application_properties_at
    if last < 0:
        last = sections.body_at + 3
        usual = data[sections.body_at : last] in BODIES and data[last] in (*SHORT, *LONG)
    else:
        usual = data[last] in (SHORT_MAP, LONG_MAP)
    if not usual or last > _BYTES_MAX:
        return None
    id_at = id_end = last if at < 0 else at
    if has_field(data, places, MESSAGE_ID):
        if data[places[MESSAGE_ID]] != _STRING:
            return None
        id_at, id_end = places[MESSAGE_ID] + 2, places[MESSAGE_ID + 1]
    correlated, middle_at = b"", id_end
    if has_field(data, places, CORRELATION_ID) and data[places[CORRELATION_ID]] == _STRING:
        correlated = data[id_end : places[CORRELATION_ID] + 2]
        middle_at = places[CORRELATION_ID + 1]
    middle_end = tail_at = last
    expiry_at = group_at = group_end = 0
    if has_field(data, places, CREATION) and data[places[CREATION]] == TIMESTAMP:
        middle_end, tail_at = places[CREATION] + 1, places[CREATION + 1]
        if has_field(data, places, EXPIRY):
            if data[places[EXPIRY]] != TIMESTAMP:
                return None
            expiry_at = middle_end = places[EXPIRY] + 1
        if special is not None and special.group and _ends_with_group(data, places):
            group_at, group_end, tail_at = places[GROUP] + 2, places[GROUP + 1], places[-1]
    return Shape(
        data[:id_at],
        id_at,
        id_end,
        correlated,
        data[middle_at:middle_end],
        middle_at,
        data[tail_at : last + 1],
        tail_at,
        last + 1,
        data[last],
        data[last] in LONG,
        special,
        expiry_at,
        group_at,
        group_end,
        data[last] in (SHORT_MAP, LONG_MAP),
    )


def _ends_with_group(data: bytes, places: list[int]) -> bool:
    """Whether group, and sequence if any, are the last of the properties and encoded as usual."""
    return data[places[GROUP]] == _STRING and len(places) - 1 <= GROUP_SEQUENCE + 1


def _duplicate_id(data: bytes, at: int, end: int, count: int) -> bytes:
    """The duplicate id in application properties from `at` to `end`; empty if they have none.

    Raises:
        UnusualError: its key's text is no key, it is no short text, or the map has not `count` keys and values, which a
            look for one key would not notice; or something in the map is of a kind that may be malformed within: a text
            that is not plain, and perhaps no text at all; a list, map or array.
    """
    place = data.find(DUPLICATE_ID_KEY, at, end) - 2
    value_at = place + 2 + len(DUPLICATE_ID_KEY)
    wanted = place >= 0
    is_key = True
    while at < end:
        if at == place and is_key and data[value_at] in SHORT:
            wanted = False
        begin, at = at, skip_value(data, at)
        if data[begin] not in _SIMPLE:
            raise UnusualError
        if data[begin] in _TEXTS and not data[begin + 2 : at].isascii():
            raise UnusualError
        is_key = not is_key
        count -= 1
    if wanted or count or at != end:
        raise UnusualError
    return data[value_at + 2 : value_at + 2 + data[value_at + 1]] if place >= 0 else b""
