"""JMS messages to AMQP's sections (amqp.md A9); the way back is in `received`. Pure."""

from __future__ import annotations

from typing import Any

from legato.amqp.codec.header import Header, encode_header
from legato.amqp.codec.types import Byte
from legato.amqp.codec.values import (
    encode_binary,
    encode_compound,
    encode_string,
    encode_symbol,
    encode_uint,
    encode_value,
)
from legato.amqp.names import DUPLICATE_ID
from legato.client.mapping.received import DELIVERY_TIME, DESTINATION_KIND, MESSAGE_TYPE, REPLY_TO_KIND, TYPE_NUMBERS
from legato.client.messages.destinations import Destination, DestinationKind
from legato.client.messages.message import DeliveryMode, Message
from legato.client.messages.message_ids import encode_id
from legato.client.messages.properties import GROUP_ID, GROUP_SEQUENCE, HEADER_PROPERTIES
from legato.errors import MessageFormatError

_NULL = b"\x40"
_PROPERTIES_PREFIX = b"\x00\x53\x73"
_ANNOTATIONS_PREFIX = b"\x00\x53\x72"
_DELIVERY_TIME_KEY = encode_symbol(DELIVERY_TIME)
_PROPERTIES_LIST = _PROPERTIES_PREFIX + b"\xc0"
_BYTE = [bytes((value,)) for value in range(256)]
_CACHE_MAX = 4096


class Envelope:
    """The encoded sections that a producer's messages to one destination share."""

    __slots__ = (
        "_annotation_sections",
        "_annotations",
        "_fronts",
        "_plain",
        "_plain_bytes",
        "_to",
        "_user_id",
        "destination",
    )

    def __init__(self, destination: Destination, user_id: str | None = None) -> None:
        """Encode what stays the same.

        Args:
            user_id: who sends, if the message is to say so (JMSXUserID).
        """
        self.destination = destination
        self._to = encode_string(destination.name)
        self._user_id = _NULL if user_id is None else encode_binary(user_id.encode())
        self._plain = self._user_id + self._to + _NULL * 6 + b"\x83"
        """What lies between message id and timestamp if no other property is set."""
        self._plain_bytes = 1 + 2 + len(self._plain) + 8
        self._annotations: dict[tuple[type[Message], DestinationKind | None], list[bytes]] = {}
        self._annotation_sections: dict[tuple[type[Message], DestinationKind | None], bytes] = {}
        self._fronts: dict[tuple[int, int, int, type[Message], DestinationKind | None], bytes] = {}

    def encode(
        self, message: Message, ttl_ms: int, delivery_time_ms: int = 0, duplicate_id: str | bytes | None = None
    ) -> bytes:
        """Encode a message whose headers are set; an id of None and a timestamp of 0 are left out.

        Args:
            ttl_ms: milliseconds until it expires, 0 for never.
            delivery_time_ms: not to be delivered before, in milliseconds since 1970; 0 for at once.
            duplicate_id: goes in place of the message's property of that name.

        Raises:
            MessageFormatError: a header or property is of a type that cannot be sent.
        """
        if message._headers_unread:
            message._read_headers()
        reply_to = message._reply_to
        properties = message._properties
        items = properties._values if properties else {}
        if duplicate_id is not None:
            # In front, where the broker finds it first.
            items = {DUPLICATE_ID: duplicate_id} | items | {DUPLICATE_ID: duplicate_id}
        source = message._source
        try:
            key = (
                message._delivery_mode,
                message._priority,
                ttl_ms,
                type(message),
                None if reply_to is None else reply_to.kind,
            )
            front = None if delivery_time_ms else self._fronts.get(key)
            if front is None:
                front = self._front(*key, delivery_time_ms)
            return b"".join(
                (
                    front,
                    self._properties(message, reply_to),
                    _encode_application_properties(items) if items else b"",
                    message._encoded_body() if source is None else source.body_sections(),
                )
            )
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise MessageFormatError(f"The message cannot be sent: {error}.", linked=error) from error

    def _front(
        self,
        mode: int,
        priority: int,
        ttl_ms: int,
        kind: type[Message],
        reply_kind: DestinationKind | None,
        delivery_time_ms: int,
    ) -> bytes:
        """The sections before the properties: header and message annotations."""
        header = encode_header(
            Header(durable=mode == DeliveryMode.PERSISTENT, priority=priority, ttl_ms=ttl_ms or None)
        )
        front = header + self._annotation(kind, reply_kind, delivery_time_ms)
        if not delivery_time_ms and len(self._fronts) < _CACHE_MAX:
            self._fronts[mode, priority, ttl_ms, kind, reply_kind] = front
        return front

    def _annotation(self, kind: type[Message], reply_kind: DestinationKind | None, delivery_time_ms: int) -> bytes:
        key = (kind, reply_kind)
        known = self._annotation_sections.get(key)
        if known is None:
            items: dict[str, Byte] = {
                MESSAGE_TYPE: Byte(_type_number(kind)),
                DESTINATION_KIND: Byte(self.destination.kind),
            }
            if reply_kind is not None:
                items[REPLY_TO_KIND] = Byte(reply_kind)
            parts = [part for name, value in items.items() for part in (encode_symbol(name), encode_value(value))]
            self._annotations[key] = parts
            known = self._annotation_sections[key] = _ANNOTATIONS_PREFIX + encode_compound(0xC1, parts)
        if delivery_time_ms:
            delayed = [*self._annotations[key], _DELIVERY_TIME_KEY, encode_value(delivery_time_ms)]
            return _ANNOTATIONS_PREFIX + encode_compound(0xC1, delayed)
        return known

    def _properties(self, message: Message, reply_to: Destination | None) -> bytes:
        message_id = message._message_id
        timestamp = message._timestamp
        if (
            message_id
            and timestamp
            and reply_to is None
            and not message._expiration
            and message._correlation_id is None
            and message._type is None
            and message._properties is None
            and message._content_type is None
            and message._content_encoding is None
        ):
            # Most messages have nothing else: the same list, put together in one step.
            raw_id = message_id.encode()
            size = len(raw_id) + self._plain_bytes
            if size < 256:
                return b"".join(
                    (
                        _PROPERTIES_LIST,
                        _BYTE[size],
                        b"\x0a\xa1",
                        _BYTE[len(raw_id)],
                        raw_id,
                        self._plain,
                        timestamp.to_bytes(8, "big"),
                    )
                )
        return self._all_properties(message, reply_to, message_id, timestamp)

    def _all_properties(
        self, message: Message, reply_to: Destination | None, message_id: str | None, timestamp: int
    ) -> bytes:
        correlation_id = message._correlation_id
        kind = message._type
        application = message._properties
        group_id, group_sequence = (None, None) if application is None else _group_of(application._values)
        content_type, content_encoding = message._content_type, message._content_encoding
        parts = [
            _NULL if message_id is None else encode_string(message_id),
            self._user_id,
            self._to,
            _NULL if kind is None else encode_string(kind),
            _NULL if reply_to is None else encode_string(reply_to.name),
            _NULL if correlation_id is None else encode_id(correlation_id),
            _NULL if content_type is None else encode_symbol(content_type),
            _NULL if content_encoding is None else encode_symbol(content_encoding),
            _encode_time(message._expiration),
            _encode_time(timestamp),
            _NULL if group_id is None else encode_string(group_id),
            _NULL if group_sequence is None else encode_uint(group_sequence & 0xFFFFFFFF),
        ]
        while parts[-1] == _NULL:
            parts.pop()
        return _PROPERTIES_PREFIX + encode_compound(0xC0, parts)


def _encode_time(milliseconds: int) -> bytes:
    return b"\x83" + milliseconds.to_bytes(8, "big") if milliseconds else _NULL


def _type_number(kind: type[Message]) -> int:
    for base in kind.__mro__:
        number = TYPE_NUMBERS.get(base)
        if number is not None:
            return number
    raise TypeError(f"a {kind.__name__} is no message")


def _group_of(properties: dict[str, Any]) -> tuple[str | None, int | None]:
    return properties.get(GROUP_ID), properties.get(GROUP_SEQUENCE)


def _encode_application_properties(items: dict[str, Any]) -> bytes:
    parts = []
    for name, value in items.items():
        if name not in HEADER_PROPERTIES:
            parts.append(encode_string(name))
            parts.append(encode_value(value))
    return b"\x00\x53\x74" + encode_compound(0xC1, parts) if parts else b""
