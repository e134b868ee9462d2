"""What a broker keeps of a message that came, in one pass over the usual encodings: it runs for every message."""

from __future__ import annotations

from legato.amqp.sections import normalise, scan

_STORED_AS_IS: set[bytes] = set()
"""Header sections that need no rewriting; producers repeat theirs."""
_STORED_AS_IS_MAX = 4096

_HEADER = b"\x00\x53\x70"
_MESSAGE_ANNOTATIONS = b"\x00\x53\x72"
_PROPERTIES = b"\x00\x53\x73"
_APPLICATION_PROPERTIES = b"\x00\x53\x74"
_BODIES = (b"\x00\x53\x75", b"\x00\x53\x77")
_SHORT, _LONG = (0xA0, 0xA1), (0xB0, 0xB1)


def admit(data: bytes) -> tuple[bytes, str]:
    """The bytes to store, and the message id as text, empty if there is none.

    Raises:
        ProtocolError: `data` is no AMQP message.
    """
    message_id = _usual(data)
    if message_id is not None:
        return data, message_id
    sections = scan(data)
    stored = normalise(data, sections)
    end = sections.header_end
    if stored is data and end and len(_STORED_AS_IS) < _STORED_AS_IS_MAX:
        _STORED_AS_IS.add(data[:end])
    return stored, sections.message_id


def _usual(data: bytes) -> str | None:
    """The message id, if the message is stored as it is and encoded as most clients do; else None."""
    try:
        if data[:3] != _HEADER or data[3] != 0xC0:
            return None
        at = 5 + data[4]
        if data[:at] not in _STORED_AS_IS:
            return None
        message_id = ""
        section = data[at : at + 3]
        if section == _MESSAGE_ANNOTATIONS and data[at + 3] == 0xC1:
            at += 5 + data[at + 4]
            section = data[at : at + 3]
        if section == _PROPERTIES and data[at + 3] == 0xC0:
            size = data[at + 4]
            if data[at + 6] == 0xA1 and data[at + 7] + 3 <= size:
                message_id = data[at + 8 : at + 8 + data[at + 7]].decode()
            elif data[at + 6] != 0x40:
                return None
            at += 5 + size
            section = data[at : at + 3]
        if section == _APPLICATION_PROPERTIES:
            if data[at + 3] == 0xC1:
                at += 5 + data[at + 4]
            elif data[at + 3] == 0xD1:
                at += 8 + int.from_bytes(data[at + 4 : at + 8], "big")
            section = data[at : at + 3]
        if section not in _BODIES:
            return None
        constructor = data[at + 3]
        if constructor in _SHORT:
            end = at + 5 + data[at + 4]
        elif constructor in _LONG:
            end = at + 8 + int.from_bytes(data[at + 4 : at + 8], "big")
        else:
            return None
        return message_id if end == len(data) else None
    except (IndexError, UnicodeDecodeError):
        return None
