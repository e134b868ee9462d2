"""Whole messages between Python and bytes, for a client (AMQP 3.2; the JMS mapping in amqp.md A9)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec

from legato.amqp.codec.decoding import ELEMENTS_MAX, EMPTY_ELEMENTS_MAX, take
from legato.amqp.codec.header import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    Header,
    encode_header,
    scan_header,
    section_at,
)
from legato.amqp.codec.types import Symbol, Timestamp
from legato.amqp.codec.values import (
    Budget,
    decode_value,
    encode_binary,
    encode_compound,
    encode_string,
    encode_symbol,
    encode_uint,
    encode_value,
    malformed,
    skip_value,
)


class Properties(msgspec.Struct, gc=False):
    """AMQP 3.2.4. Ids are strings, unsigned longs (`ULong` or int), UUIDs or bytes; times are ms since the epoch."""

    message_id: Any = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: Any = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_ms: int | None = None
    creation_ms: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None


class DataBody(msgspec.Struct, frozen=True):
    """Opaque bytes; several data sections are read as one."""

    data: bytes


class ValueBody(msgspec.Struct, frozen=True):
    """One AMQP value: text, a map, null ..."""

    value: Any


class SequenceBody(msgspec.Struct, frozen=True):
    """A list; several sequence sections are read as one."""

    values: list[Any]


Body = DataBody | ValueBody | SequenceBody


class AmqpMessage(msgspec.Struct, kw_only=True):
    """A decoded message. `body` is None if it has no body section, which AMQP forbids and some peers send."""

    header: Header = Header()
    delivery_annotations: dict[Any, Any] = {}
    message_annotations: dict[Any, Any] = {}
    properties: Properties = msgspec.field(default_factory=Properties)
    application_properties: dict[str, Any] = {}
    body: Body | None = None


_HEADERS: dict[Header, bytes] = {}
_HEADERS_MAX = 4096
_ANNOTATIONS: dict[bytes, dict[Any, Any]] = {}
_ANNOTATIONS_MAX = 256
_ANNOTATIONS_BYTES_MAX = 256
_PROPERTY_FIELDS = Properties.__struct_fields__
_PROPERTIES_PREFIX = b"\x00\x53\x73"
_DATA_PREFIX = b"\x00\x53\x75"


def encode_message(
    *,
    header: Header,
    delivery_annotations: Mapping[str, Any] | None = None,
    message_annotations: Mapping[str, Any] | bytes | None = None,
    properties: Properties | None = None,
    application_properties: Mapping[str, Any] | None = None,
    body: Body | None = None,
) -> bytes:
    """Encode a message.

    Args:
        message_annotations: with symbol keys; or what `encode_annotations` made of them, since producers repeat them.
        body: None writes a null value, as a message must have a body.

    Raises:
        TypeError: AMQP has no type for a value.
        ValueError: a value is out of its type's range.
    """
    parts = [_cached_header(header)]
    if delivery_annotations:
        parts.append(encode_annotations(delivery_annotations, DELIVERY_ANNOTATIONS))
    if message_annotations:
        if not isinstance(message_annotations, bytes):
            message_annotations = encode_annotations(message_annotations)
        parts.append(message_annotations)
    if properties is not None:
        try:
            parts.append(_encode_properties(properties))
        except (struct.error, OverflowError) as error:
            raise ValueError(f"a property is out of its type's range: {error}") from error
    if application_properties:
        parts.append(_encode_application_properties(application_properties))
    if type(body) is DataBody:
        parts.append(_DATA_PREFIX)
        parts.append(encode_binary(body.data))
    elif isinstance(body, SequenceBody):
        parts.append(b"\x00\x53\x76" + encode_value(body.values))
    else:
        value = body.value if isinstance(body, ValueBody) else None
        parts.append(b"\x00\x53\x77" + encode_value(value))
    return b"".join(parts)


def _cached_header(header: Header) -> bytes:
    known = _HEADERS.get(header)
    if known is None:
        known = encode_header(header)
        if len(_HEADERS) < _HEADERS_MAX:
            _HEADERS[header] = known
    return known


def encode_annotations(annotations: Mapping[str, Any], section: int = MESSAGE_ANNOTATIONS) -> bytes:
    """An annotations section: a map with symbol keys (AMQP 3.2.10)."""
    parts = []
    for key, value in annotations.items():
        parts.append(encode_symbol(key))
        parts.append(encode_value(value))
    return bytes((0x00, 0x53, section)) + encode_compound(0xC1, parts)


def _encode_application_properties(items: Mapping[str, Any]) -> bytes:
    parts = []
    for key, value in items.items():
        parts.append(encode_string(key))
        parts.append(encode_string(value) if type(value) is str else encode_value(value))
    return b"\x00\x53\x74" + encode_compound(0xC1, parts)


def _encode_id(value: Any) -> bytes:
    if value is None:
        return b"\x40"
    if type(value) is str:
        return encode_string(value)
    if type(value) is int:
        return b"\x80" + value.to_bytes(8, "big")
    return encode_value(value)


def _encode_properties(properties: Properties) -> bytes:
    p = properties
    expiry, creation, sequence = p.absolute_expiry_ms, p.creation_ms, p.group_sequence
    parts = [
        _encode_id(p.message_id),
        b"\x40" if p.user_id is None else encode_binary(p.user_id),
        b"\x40" if p.to is None else encode_string(p.to),
        b"\x40" if p.subject is None else encode_string(p.subject),
        b"\x40" if p.reply_to is None else encode_string(p.reply_to),
        _encode_id(p.correlation_id),
        b"\x40" if p.content_type is None else encode_symbol(p.content_type),
        b"\x40" if p.content_encoding is None else encode_symbol(p.content_encoding),
        b"\x40" if expiry is None else b"\x83" + expiry.to_bytes(8, "big", signed=True),
        b"\x40" if creation is None else b"\x83" + creation.to_bytes(8, "big", signed=True),
        b"\x40" if p.group_id is None else encode_string(p.group_id),
        b"\x40" if sequence is None else encode_uint(sequence),
        b"\x40" if p.reply_to_group_id is None else encode_string(p.reply_to_group_id),
    ]
    while parts and parts[-1] == b"\x40":
        parts.pop()
    return _PROPERTIES_PREFIX + (encode_compound(0xC0, parts) if parts else b"\x45")


def decode_message(data: bytes, budget: Budget | None = None) -> AmqpMessage:
    """Decode a message; the footer is left out.

    Args:
        budget: what may be decoded of all sections together; by default as `decode_value` allows for one value.

    Raises:
        ProtocolError: the bytes are no AMQP message, or one of more elements.
    """
    if budget is None:
        budget = [ELEMENTS_MAX, EMPTY_ELEMENTS_MAX]
    message = AmqpMessage()
    sections: list[tuple[int, Any]] = []
    message.header, at = scan_header(data)
    size, last = len(data), HEADER
    while at < size:
        code, at = section_at(data, at)
        if code < last or (code == last and code not in (DATA, SEQUENCE)):
            raise malformed("message sections are out of order")
        last = code
        if code == MESSAGE_ANNOTATIONS:
            message.message_annotations, at = _annotations_at(data, at, budget)
            continue
        if code == FOOTER:
            if data[at : at + 1] not in (b"\xc1", b"\xd1"):
                raise malformed("the footer is no map")
            at = skip_value(data, at)
            continue
        value, at = decode_value(data, at, budget)
        if code == PROPERTIES:
            message.properties = _properties_of(_typed(value, list))
        elif code == APPLICATION_PROPERTIES:
            message.application_properties = _typed(value, dict)
        elif code == DELIVERY_ANNOTATIONS:
            message.delivery_annotations = _typed(value, dict)
        else:
            sections.append((code, value))
            take(budget, 1)
    message.body = _body_of(sections)
    return message


def _annotations_at(data: bytes, at: int, budget: Budget) -> tuple[dict[Any, Any], int]:
    """Message annotations: producers repeat them, so that their decoding is remembered."""
    end = skip_value(data, at)
    raw = data[at:end]
    known = _ANNOTATIONS.get(raw)
    if known is None:
        known = _typed(decode_value(raw, 0, budget)[0], dict)
        if len(_ANNOTATIONS) < _ANNOTATIONS_MAX and len(raw) < _ANNOTATIONS_BYTES_MAX:
            _ANNOTATIONS[raw] = known
    return dict(known), end


def _body_of(sections: list[tuple[int, Any]]) -> Body | None:
    """Several sections of data, or several sequences, are one body."""
    kinds = {code for code, _ in sections}
    if not sections:
        return None
    if kinds == {VALUE} and len(sections) == 1:
        return ValueBody(sections[0][1])
    if kinds == {DATA}:
        return DataBody(b"".join([_typed(value, bytes) for _, value in sections]))
    if kinds == {SEQUENCE}:
        return SequenceBody([item for _, value in sections for item in _typed(value, list)])
    raise malformed("a body of sections that do not go together")


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise malformed(f"a section holds a {type(value).__name__} instead of a {kind.__name__}")
    return value


_STRING, _NUMBER = (str, type(None)), (int, type(None))
_FIELD_TYPES: list[Any] = [
    (str, int, UUID, bytes, type(None)),
    (bytes, type(None)),
    _STRING,
    _STRING,
    _STRING,
    (str, int, UUID, bytes, type(None)),
    _STRING,
    _STRING,
    _NUMBER,
    _NUMBER,
    _STRING,
    _NUMBER,
    _STRING,
]


def _properties_of(fields: list[Any]) -> Properties:
    values = fields[: len(_FIELD_TYPES)]
    for index, value in enumerate(values):
        if value is None or (type(value) is str and _FIELD_TYPES[index] is _STRING):
            continue
        if not isinstance(value, _FIELD_TYPES[index]):
            raise malformed(f"the property {_PROPERTY_FIELDS[index]} is of another type")
        if type(value) is Symbol:
            values[index] = str(value)
        elif type(value) is Timestamp:
            values[index] = int(value)
    return Properties(*values)
