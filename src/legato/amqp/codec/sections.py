"""Sections of a message, located without decoding them, and the header that is sent on (AMQP 3.2)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from legato.amqp.codec.coordinator import Declare, Discharge, decode_coordinator, encode_declare, encode_discharge
from legato.amqp.codec.header import (
    APPLICATION_PROPERTIES,
    DATA,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    Header,
    encode_header,
    scan_header,
    section_at,
)
from legato.amqp.codec.message import (
    AmqpMessage,
    DataBody,
    Properties,
    SequenceBody,
    ValueBody,
    decode_message,
    encode_annotations,
    encode_message,
)
from legato.amqp.codec.values import decode_value, encode_compound, encode_symbol, malformed, skip_value
from legato.amqp.names import REDELIVERED

__all__ = [
    "AmqpMessage",
    "DataBody",
    "Declare",
    "Discharge",
    "Header",
    "Properties",
    "Sections",
    "SequenceBody",
    "ValueBody",
    "decode_coordinator",
    "decode_message",
    "encode_annotations",
    "encode_declare",
    "encode_discharge",
    "encode_message",
    "normalise",
    "scan",
    "with_delivery",
]

_FLAGGED = b"\x00\x53\x71" + encode_compound(0xC1, [encode_symbol(REDELIVERED), b"\x41"])


class Sections(msgspec.Struct, gc=False):
    """A message's header and the places of its sections; everything else is decoded on demand."""

    data: bytes
    header: Header
    header_end: int
    """Where the header ends, 0 if there is none."""
    annotations_end: int
    """Where the delivery annotations end; `header_end` if there are none."""
    message_annotations_at: int
    """Where the section's map lies, -1 if there is none; likewise the next two."""
    properties_at: int
    application_properties_at: int
    body_at: int
    """Where the first body section begins; the length of the data if there is none."""
    message_id: str
    """The message id as text, whatever its type; empty if there is none."""

    @property
    def durable(self) -> bool:
        """Whether the sender wants it to survive."""
        return self.header.durable

    @property
    def priority(self) -> int:
        """0 to 9, at most 255 from a careless sender."""
        return self.header.priority

    @property
    def ttl_ms(self) -> int | None:
        """How long it may live from its arrival."""
        return self.header.ttl_ms

    @property
    def delivery_count(self) -> int:
        """Earlier unsuccessful attempts, as the sender says."""
        return self.header.delivery_count

    @property
    def has_delivery_annotations(self) -> bool:
        """Whether the sender wrote delivery annotations, which end with this hop."""
        return self.annotations_end > self.header_end

    @property
    def absolute_expiry_ms(self) -> int | None:
        """The time after which it is not to be delivered (`absolute-expiry-time`)."""
        return self._number(8)

    @property
    def to(self) -> str | None:
        """The address that its sender gave it; the anonymous relay sends it there (amqp.md A2)."""
        fields = self.properties()
        return str(fields[2]) if len(fields) > 2 and isinstance(fields[2], str) else None

    def _number(self, index: int) -> int | None:
        fields = self.properties()
        return int(fields[index]) if len(fields) > index and isinstance(fields[index], int) else None

    def properties(self) -> list[Any]:
        """The fields of the properties in AMQP's order (3.2.4), shorter if the last ones are absent."""
        return self._decode(self.properties_at, list) or []

    def message_annotations(self) -> dict[Any, Any]:
        """The message annotations; raises ProtocolError if they are malformed."""
        return self._decode(self.message_annotations_at, dict) or {}

    def application_properties(self) -> dict[Any, Any]:
        """The application properties; raises ProtocolError if they are malformed."""
        return self._decode(self.application_properties_at, dict) or {}

    def _decode(self, at: int, kind: type) -> Any:
        if at < 0:
            return None
        value, _ = decode_value(self.data, at)
        if not isinstance(value, kind):
            raise malformed("a section of the wrong type")
        return value


def scan(data: bytes) -> Sections:
    """Find a message's sections.

    Raises:
        ProtocolError: the bytes are no AMQP message; nothing inside of annotations, properties and body is looked at,
            save the message id.
    """
    header, at = scan_header(data)
    header_end = at
    annotations_end = at
    message_annotations_at = properties_at = application_properties_at = -1
    message_id = ""
    last = 0
    size = len(data)
    while at < size:
        code, value_at = section_at(data, at)
        if code >= DATA:
            _check_body(data, code, value_at)
            break
        if code <= last or code <= HEADER:
            raise malformed("message sections are out of order")
        last = code
        constructor = data[value_at] if value_at < size else 0
        if constructor in (0xC0, 0xC1):
            at = value_at + 2 + data[value_at + 1] if value_at + 1 < size else size + 1
            if at > size:
                raise malformed("a section ends after the message")
        else:
            at = skip_value(data, value_at)
        if code == PROPERTIES:
            properties_at = value_at
            message_id = _message_id(data, value_at, at)
        elif code == MESSAGE_ANNOTATIONS:
            message_annotations_at = value_at
        elif code == APPLICATION_PROPERTIES:
            application_properties_at = value_at
        else:
            annotations_end = at
    return Sections(
        data,
        header,
        header_end,
        annotations_end,
        message_annotations_at,
        properties_at,
        application_properties_at,
        at,
        message_id,
    )


def _check_body(data: bytes, code: int, value_at: int) -> None:
    if code > FOOTER:
        raise malformed(f"section 0x{code:x} is unknown")
    skip_value(data, value_at)


def _message_id(data: bytes, at: int, end: int) -> str:
    """The first field of the properties, as text."""
    constructor = data[at]
    if constructor == 0xC0:
        first = at + 3
    elif constructor == 0xD0:
        first = at + 9
    elif constructor == 0x45:
        return ""
    else:
        raise malformed("the properties are no list")
    if first >= end:
        return ""
    code = data[first]
    if code == 0xA1:
        start = first + 2
        stop = start + data[first + 1] if start <= end else end + 1
        if stop > end:
            raise malformed("the message id is cut off")
        try:
            return data[start:stop].decode("utf-8")
        except UnicodeDecodeError:
            raise malformed("the message id is not UTF-8") from None
    if code == 0x40:
        return ""
    value, stop = decode_value(data, first)
    if stop > end:
        raise malformed("the message id is cut off")
    return id_text(value)


def id_text(value: Any) -> str:
    """A message or correlation id as text: strings as they are, uuids and numbers as usual, binaries in hexadecimal."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (int, UUID)) and not isinstance(value, bool):
        return str(value)
    raise malformed("an id of a type AMQP does not allow")


def normalise(data: bytes, sections: Sections) -> bytes:
    """The message as a broker stores it: no delivery count, no delivery annotations; `data` itself if it is so."""
    header = sections.header
    if not header.delivery_count:
        if not sections.has_delivery_annotations:
            return data
        return data[: sections.header_end] + data[sections.annotations_end :]
    return encode_header(_counted(header, 0)) + data[sections.annotations_end :]


def with_delivery(data: bytes, count: int, flagged: bool) -> bytes:
    """A stored message as it goes out again: with its delivery count, and flagged as perhaps seen if need be.

    Args:
        data: what `normalise` returned.
        count: earlier attempts, `delivery-count` (AMQP 3.2.1).
        flagged: add the delivery annotation `names.REDELIVERED`.
    """
    if not count and not flagged:
        return data
    header, header_end = scan_header(data)
    head = encode_header(_counted(header, count)) if count else data[:header_end]
    return head + (_FLAGGED if flagged else b"") + data[header_end:]


def _counted(header: Header, count: int) -> Header:
    return Header(header.durable, header.priority, header.ttl_ms, header.first_acquirer, count)
