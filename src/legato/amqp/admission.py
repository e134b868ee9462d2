"""What a broker keeps of a message that came: this runs for every message, so it looks at as little as it can."""

from __future__ import annotations

from legato.amqp.fields import CREATION, EXPIRY, MESSAGE_ID, field_places, has_field
from legato.amqp.sections import Sections, normalise, scan
from legato.amqp.special import PLAIN, Special, special_of

_BODIES = (b"\x00\x53\x75", b"\x00\x53\x77")
_SHORT, _LONG = (0xA0, 0xA1), (0xB0, 0xB1)
_SHORT_MAP, _LONG_MAP = 0xC1, 0xD1
_STRING, _TIMESTAMP, _NULL = 0xA1, 0x83, 0x40
_TIMESTAMP_BYTES = 8

_SHAPE_BYTES_MAX = 4096
"""More than this before the body is not remembered."""

_NOTHING = b"\xff"
"""No message begins so."""


class Admission:
    """One producer's messages, which are alike: what was found in one holds for those that differ in a few places only.

    A message is cut into the bytes before its id, those between the id and its times, and those from there to the
    size of its application properties or body. If all three are the same as in the last message, all is at the same
    places, and only the id, the times, the values of application properties and the body are new.
    """

    __slots__ = (
        "_expires",
        "_id_at",
        "_id_end",
        "_is_long",
        "_middle",
        "_prefix",
        "_special",
        "_tail",
        "_tail_at",
        "_tail_end",
        "_tail_last",
    )

    def __init__(self) -> None:
        self._prefix = _NOTHING
        self._middle = self._tail = b""
        self._id_at = self._id_end = self._tail_at = self._tail_end = 0
        self._tail_last = 0
        """The constructor at the tail's end: of the application properties, or else of the body."""
        self._is_long = False
        """Whether that is the body's and has a size of four bytes."""
        self._special: Special | None = None
        self._expires = 0
        """Where its expiry is, if it has one; the timestamp follows at once."""

    def admit(self, data: bytes) -> tuple[bytes, str, Special | None]:
        """The bytes to store, the message id as text (empty if there is none), and what else the message asks for.

        Raises:
            ProtocolError: `data` is no AMQP message.
        """
        try:
            if (
                data.startswith(self._prefix)
                and data.startswith(self._tail, self._tail_at)
                and data.startswith(self._middle, self._id_end)
                and (
                    self._tail_end + 4 + int.from_bytes(data[self._tail_end : self._tail_end + 4], "big") == len(data)
                    if self._is_long
                    else self._ends_well(data)
                )
            ):
                special = self._special
                if self._expires:
                    assert special is not None
                    special = _expiring(special, data, self._expires)
                return data, data[self._id_at : self._id_end].decode(), special
        except (IndexError, UnicodeDecodeError, _Unusual):
            pass
        return self._carefully(data)

    def _ends_well(self, data: bytes) -> bool:
        """Whether one body section fills the rest of the message; not asked if it is a long one without properties."""
        at, last = self._tail_end, self._tail_last
        if last in _SHORT:
            return at + 1 + data[at] == len(data)
        at += 1 + data[at] if last == _SHORT_MAP else 4 + int.from_bytes(data[at : at + 4], "big")
        if data[at : at + 3] not in _BODIES:
            return False
        last = data[at + 3]
        if last in _LONG:
            return at + 8 + int.from_bytes(data[at + 4 : at + 8], "big") == len(data)
        return last in _SHORT and at + 5 + data[at + 4] == len(data)

    def _carefully(self, data: bytes) -> tuple[bytes, str, Special | None]:
        sections = scan(data)
        places = field_places(data, sections.properties_at)
        special = special_of(sections, places)
        stored = normalise(data, sections)
        if stored is data and sections.body_at < _SHAPE_BYTES_MAX:
            self._remember(sections, places, special)
        return stored, sections.message_id, special

    def _remember(self, sections: Sections, places: list[int], special: Special | None) -> None:
        """Take note of a message's shape, if it is one that the quick way can handle."""
        data = sections.data
        self._prefix = _NOTHING
        last = sections.application_properties_at
        if last < 0:
            last = sections.body_at + 3
            usual = data[sections.body_at : last] in _BODIES and data[last] in (*_SHORT, *_LONG)
        else:
            usual = data[last] in (_SHORT_MAP, _LONG_MAP)
        if not usual:
            return
        id_at = id_end = last if sections.properties_at < 0 else sections.properties_at
        if has_field(data, places, MESSAGE_ID):
            if data[places[MESSAGE_ID]] != _STRING:
                return
            id_at, id_end = places[MESSAGE_ID] + 2, places[MESSAGE_ID + 1]
        middle_end = tail_at = last
        expires = 0
        if has_field(data, places, CREATION) and data[places[CREATION]] == _TIMESTAMP:
            middle_end, tail_at = places[CREATION] + 1, places[CREATION + 1]
            if has_field(data, places, EXPIRY):
                expires = middle_end = places[EXPIRY] + 1
                if data[places[EXPIRY]] != _TIMESTAMP:
                    return
        self._id_at, self._id_end, self._expires = id_at, id_end, expires
        self._middle = data[id_end:middle_end]
        self._tail_at, self._tail_end, self._tail_last = tail_at, last + 1, data[last]
        self._is_long = data[last] in _LONG
        self._tail = data[tail_at : last + 1]
        self._special = special if special is not None or not expires else PLAIN
        self._prefix = data[:id_at]


class _Unusual(Exception):
    """Not what the quick way can handle."""


def _expiring(special: Special, data: bytes, at: int) -> Special:
    """The same with the expiry that is at `at`."""
    expiry_ms = int.from_bytes(data[at : at + _TIMESTAMP_BYTES], "big", signed=True)
    if expiry_ms <= 0 or data[at + _TIMESTAMP_BYTES] != _TIMESTAMP:
        raise _Unusual
    return Special(
        special.priority,
        special.ttl_ms,
        expiry_ms,
        special.delivery_ms,
        special.delay_ms,
        special.group,
        special.closes_group,
    )
