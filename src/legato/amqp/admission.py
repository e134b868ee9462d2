"""What a broker keeps of a message that came: this runs for every message, so it looks at as little as it can."""

from __future__ import annotations

from legato.amqp.sections import normalise, scan
from legato.amqp.special import Special, special_of

_HEADER = b"\x00\x53\x70"
_MESSAGE_ANNOTATIONS = b"\x00\x53\x72"
_PROPERTIES = b"\x00\x53\x73"
_APPLICATION_PROPERTIES = b"\x00\x53\x74"
_BODIES = (b"\x00\x53\x75", b"\x00\x53\x77")
_SHORT, _LONG = (0xA0, 0xA1), (0xB0, 0xB1)

_STORED_AS_IS: set[bytes] = set()
"""Header sections that need no rewriting; producers repeat theirs."""
_STORED_AS_IS_MAX = 4096

_NOTHING = b"\xff"
"""No message begins so."""


class Admission:
    """One producer's messages. They are alike: what was found before the id of one mostly holds for the next.

    The bytes up to the message id say how long the id and the properties are, so if they are the same, the id and
    the body are at the same places.
    """

    __slots__ = ("_body_at", "_id_at", "_id_end", "_prefix")

    def __init__(self) -> None:
        self._prefix = _NOTHING
        self._id_at = self._id_end = self._body_at = 0

    def admit(self, data: bytes) -> tuple[bytes, str, Special | None]:
        """The bytes to store, the message id as text (empty if there is none), and what else the message asks for.

        Raises:
            ProtocolError: `data` is no AMQP message.
        """
        sections = scan(data)
        return normalise(data, sections), sections.message_id, special_of(sections)

    def _usual(self, data: bytes) -> bool:
        """Whether the message is stored as it is and encoded as most clients do; takes note of the places if so."""
        self._prefix = _NOTHING
        if data[:3] != _HEADER or data[3] != 0xC0:
            return False
        at = 5 + data[4]
        if data[:at] not in _STORED_AS_IS:
            return False
        if data[at : at + 3] == _MESSAGE_ANNOTATIONS and data[at + 3] == 0xC1:
            at += 5 + data[at + 4]
        if data[at : at + 3] != _PROPERTIES or data[at + 3] != 0xC0:
            return False
        size = data[at + 4]
        if data[at + 6] == 0xA1 and data[at + 7] + 3 <= size:
            self._id_at = at + 8
            self._id_end = at + 8 + data[at + 7]
        elif data[at + 6] == 0x40:
            self._id_at = self._id_end = at + 7
        else:
            return False
        at += 5 + size
        if data[at : at + 3] == _APPLICATION_PROPERTIES:
            return _ends_with_body(data, _after_map(data, at + 3))
        if not _ends_with_body(data, at):
            return False
        self._prefix = data[: self._id_at]
        self._body_at = at
        return True


def _after_map(data: bytes, at: int) -> int:
    if data[at] == 0xC1:
        return at + 2 + data[at + 1]
    if data[at] == 0xD1:
        return at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
    return len(data)


def _ends_with_body(data: bytes, at: int) -> bool:
    """Whether the only thing at `at` is one body section of a common type."""
    if data[at : at + 3] not in _BODIES:
        return False
    constructor = data[at + 3]
    if constructor in _SHORT:
        return at + 5 + data[at + 4] == len(data)
    return constructor in _LONG and at + 8 + int.from_bytes(data[at + 4 : at + 8], "big") == len(data)
