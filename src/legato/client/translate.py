"""JMS messages to AMQP's sections (AMQP.md A9); the way back is in `received`. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from legato.amqp.codec import encode_binary, encode_compound, encode_string, encode_symbol, encode_uint, encode_value
from legato.amqp.header import Header, encode_header
from legato.amqp.types import Byte, Int, ULong
from legato.client.destinations import Destination, DestinationKind
from legato.client.messages import BytesMessage, DeliveryMode, Message
from legato.client.received import DESTINATION_KIND, MESSAGE_TYPE, REPLY_TO_KIND, TYPE_NUMBERS, Received
from legato.errors import MessageFormatError

_NULL = b"\x40"
_PROPERTIES_PREFIX = b"\x00\x53\x73"
_VALUE_PREFIX = b"\x00\x53\x77"
_DATA_PREFIX = b"\x00\x53\x75"
_PROPERTIES_LIST = _PROPERTIES_PREFIX + b"\xc0"
_PLAIN = frozenset(("_correlation_id", "_type", "_properties"))
"""Attributes that a message without further AMQP properties does not have."""
_BYTE = [bytes((value,)) for value in range(256)]
_CACHE_MAX = 4096


class Envelope:
    """What a producer's messages to one destination have in common, encoded once."""

    __slots__ = ("_annotations", "_headers", "_plain", "_plain_bytes", "_to", "destination")

    def __init__(self, destination: Destination) -> None:
        self.destination = destination
        self._to = encode_string(destination.name)
        self._plain = _NULL + self._to + _NULL * 6 + b"\x83"
        """What lies between message id and timestamp if no other property is set."""
        self._plain_bytes = 1 + 2 + len(self._plain) + 8
        self._annotations: dict[tuple[type[Message], DestinationKind | None], bytes] = {}
        self._headers: dict[tuple[int, int, int], bytes] = {}

    def encode(self, message: Message, ttl_ms: int) -> bytes:
        """Encode a message whose headers are set.

        Raises:
            MessageFormatError: a header or property is of a type that cannot be sent.
        """
        if message._headers_unread:
            message._read_headers()
        values = message.__dict__
        reply_to = values.get("_reply_to")
        properties = message._properties
        try:
            return b"".join(
                (
                    self._header(values["_delivery_mode"], values["_priority"], ttl_ms),
                    self._annotation(type(message), None if reply_to is None else reply_to.kind),
                    self._properties(values, reply_to),
                    _encode_application_properties(properties._values) if properties else b"",
                    _encode_body(message),
                )
            )
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise MessageFormatError(f"The message cannot be sent: {error}.", linked=error) from error

    def _header(self, mode: int, priority: int, ttl_ms: int) -> bytes:
        key = (mode, priority, ttl_ms)
        known = self._headers.get(key)
        if known is None:
            known = encode_header(
                Header(durable=mode == DeliveryMode.PERSISTENT, priority=priority, ttl_ms=ttl_ms or None)
            )
            if len(self._headers) < _CACHE_MAX:
                self._headers[key] = known
        return known

    def _annotation(self, kind: type[Message], reply_kind: DestinationKind | None) -> bytes:
        key = (kind, reply_kind)
        known = self._annotations.get(key)
        if known is None:
            items: dict[str, Byte] = {
                MESSAGE_TYPE: Byte(_type_number(kind)),
                DESTINATION_KIND: Byte(self.destination.kind),
            }
            if reply_kind is not None:
                items[REPLY_TO_KIND] = Byte(reply_kind)
            parts = [part for name, value in items.items() for part in (encode_symbol(name), encode_value(value))]
            known = self._annotations[key] = b"\x00\x53\x72" + encode_compound(0xC1, parts)
        return known

    def _properties(self, values: dict[str, Any], reply_to: Destination | None) -> bytes:
        message_id = values["_message_id"].encode()
        timestamp = values["_timestamp"].to_bytes(8, "big")
        size = len(message_id) + self._plain_bytes
        if size < 256 and reply_to is None and not values["_expiration"] and _PLAIN.isdisjoint(values):
            # Most messages have nothing else: the same list, put together in one step.
            return b"".join(
                (_PROPERTIES_LIST, _BYTE[size], b"\x0a\xa1", _BYTE[len(message_id)], message_id, self._plain, timestamp)
            )
        return self._all_properties(values, reply_to, message_id, timestamp)

    def _all_properties(
        self, values: dict[str, Any], reply_to: Destination | None, message_id: bytes, timestamp: bytes
    ) -> bytes:
        correlation_id = values.get("_correlation_id")
        expiration = values["_expiration"]
        kind = values.get("_type")
        application = values.get("_properties")
        group_id, group_sequence = (None, None) if application is None else _group_of(application._values)
        parts = [
            encode_string(message_id.decode()),
            _NULL,
            self._to,
            _NULL if kind is None else encode_string(kind),
            _NULL if reply_to is None else encode_string(reply_to.name),
            _NULL if correlation_id is None else _encode_id(correlation_id),
            _NULL,
            _NULL,
            b"\x83" + expiration.to_bytes(8, "big") if expiration else _NULL,
            b"\x83" + timestamp,
        ]
        if group_id is not None or group_sequence is not None:
            parts.append(_NULL if group_id is None else encode_string(group_id))
            parts.append(_NULL if group_sequence is None else encode_uint(group_sequence & 0xFFFFFFFF))
        return _PROPERTIES_PREFIX + encode_compound(0xC0, parts)


def _type_number(kind: type[Message]) -> int:
    for base in kind.__mro__:
        number = TYPE_NUMBERS.get(base)
        if number is not None:
            return number
    raise TypeError(f"a {kind.__name__} is no message")


def _group_of(properties: dict[str, Any]) -> tuple[str | None, int | None]:
    return properties.get("JMSXGroupID"), properties.get("JMSXGroupSeq")


def _encode_application_properties(items: dict[str, Any]) -> bytes:
    parts = []
    for name, value in items.items():
        if name.startswith("JMSX"):
            continue
        parts.append(encode_string(name))
        # Java reads a small number as an int or a long, a large one only as a long.
        if type(value) is int and -(1 << 31) <= value < 1 << 31:
            value = Int(value)
        parts.append(encode_value(value))
    return b"\x00\x53\x74" + encode_compound(0xC1, parts) if parts else b""


def _encode_body(message: Message) -> bytes:
    if message._body_unread and isinstance(message._source, Received):
        return message._source.body_sections()
    body = message._body_value
    if isinstance(message, BytesMessage):
        size = len(body)
        if size < 256:
            return b"".join((_DATA_PREFIX, b"\xa0", _BYTE[size], body))
        return b"".join((_DATA_PREFIX, b"\xb0", size.to_bytes(4, "big"), body))
    if type(body) is str:
        return _VALUE_PREFIX + encode_string(body)
    return _VALUE_PREFIX + encode_value(body)


_ID_TYPES: dict[str, Callable[[str], Any]] = {
    "ID:AMQP_UUID:": UUID,
    "ID:AMQP_ULONG:": lambda text: ULong(int(text)),
    "ID:AMQP_BINARY:": bytes.fromhex,
}


def _encode_id(value: str | bytes) -> bytes:
    if isinstance(value, bytes):
        return encode_binary(value)
    for prefix, kind in _ID_TYPES.items():
        if value.startswith(prefix):
            return encode_value(kind(value.removeprefix(prefix)))
    return encode_string(value)
