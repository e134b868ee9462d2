"""Received messages: AMQP sections, decoded as far as an application asks (amqp.md A9). Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from legato.amqp.codec.header import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    VALUE,
    scan_header,
    section_at,
)
from legato.amqp.codec.message import decode_message
from legato.amqp.codec.types import Int
from legato.amqp.codec.values import decode_value, skip_value, whole_budget
from legato.amqp.names import REDELIVERED
from legato.client.messages import (
    BytesMessage,
    DeliveryMode,
    MapMessage,
    Message,
    ObjectMessage,
    StreamMessage,
    TextMessage,
)
from legato.client.messages.bodies import BODIES, fitting, guessed_kind
from legato.client.messages.destinations import Destination, destination_of
from legato.client.messages.large import LargeData, Region
from legato.client.messages.message_ids import correlation_id_of, message_id_text
from legato.client.messages.message_prefix import MessagePrefix
from legato.client.messages.properties import DELIVERY_COUNT, GROUP_ID, GROUP_SEQUENCE, USER_ID
from legato.errors import MessageFormatError, ProtocolError

MESSAGE_TYPE = "x-opt-jms-msg-type"
DESTINATION_KIND = "x-opt-jms-dest"
REPLY_TO_KIND = "x-opt-jms-reply-to"
DELIVERY_TIME = "x-opt-delivery-time"
TYPE_NUMBERS: dict[type[Message], int] = {
    Message: 0,
    ObjectMessage: 1,
    MapMessage: 2,
    BytesMessage: 3,
    StreamMessage: 4,
    TextMessage: 5,
}

_CLASSES = {number: kind for kind, number in TYPE_NUMBERS.items()}
_NULL_BODY = b"\x00\x53\x77\x40"
_UNDECODABLE = (ProtocolError, ValueError, TypeError, AttributeError, IndexError, OverflowError)
_PREFIX_MAX_BYTES = 1024
_UNCOUNTED_HEADER_MAX_BYTES = 7
"""Of a header up to its priority; a delivery count comes after that."""
_CONTENT_TYPE_FIELD = 6
_LEGACY = {DESTINATION_KIND: "x-opt-to-type", REPLY_TO_KIND: "x-opt-reply-type"}
"""Annotations of older clients: `queue` or `topic`, perhaps with `temporary`."""


def read_message(data: bytes, queue: Destination, acknowledge: Callable[..., Any]) -> Message:
    """The message that a broker sent; its parts are decoded when they are asked for.

    Args:
        queue: where it was received from, for messages that do not say where they were sent.
        acknowledge: what `Message.acknowledge()` does.

    Raises:
        ProtocolError: the bytes are no AMQP message.
    """
    received = Received(data, queue)
    message: Message = received.kind.received(received, acknowledge)
    return message


def message_id_of(data: bytes) -> str | None:
    """A message's id."""
    message_id: str | None = Received(data, destination_of("")).headers()["message_id"]
    return message_id


class Received:
    """A message's bytes; where their sections lie is found out as far as it is asked for."""

    __slots__ = ("_body_at", "_body_section", "_data", "_front", "_places", "_queue", "again", "kind")

    _last: ClassVar[MessagePrefix] = MessagePrefix(b"\xff", Message)
    """Of the last message that was scanned."""

    def __init__(self, data: bytes, queue: Destination) -> None:
        self._data = data
        self._queue = queue
        self._front: MessagePrefix | None
        """If it is known, and no section lies between properties and body."""
        self._places: dict[int, tuple[int, int]]
        """Of the sections, where that is not known."""
        self.kind: type[Message]
        """The class of message it is."""
        self.again: bool
        """Whether it says anything of earlier deliveries."""
        front = Received._last
        try:
            if data.startswith(front.beginning):
                at = front.fields_at
                at += data[at - 1]
                section = data[at + 2]
                if section >= DATA and data[at] == 0 and data[at + 1] == 0x53:
                    self._body_at = at
                    self._body_section = section
                    self._front = front
                    self.kind = front.kind
                    self.again = front.again
                    return
            self._front = None
            self._scan()
        except IndexError:
            raise ProtocolError("a message ends within a section", "amqp:decode-error") from None

    def _scan(self) -> dict[int, tuple[int, int]]:
        """Find all sections."""
        data = self._data
        self._body_at = size = len(data)
        self._body_section = 0
        self._places = places = {}
        prefix_end = at = 0
        while at < size:
            begin = at
            code, at = section_at(data, at)
            if code >= DATA:
                self._body_at = begin
                self._body_section = code
                break
            end = skip_value(data, at)
            places[code] = (at, end)
            if code < PROPERTIES:
                prefix_end = end
            at = end
        self.again = DELIVERY_ANNOTATIONS in places or self._is_counted(places)
        annotated = self._annotated_kind(places)
        self.kind = annotated or self._guess()
        if annotated is not None and prefix_end <= _PREFIX_MAX_BYTES and data[:prefix_end] != Received._last.raw:
            Received._last = MessagePrefix(data[:prefix_end], annotated, self.again)
        return places

    def _is_counted(self, places: dict[int, tuple[int, int]]) -> bool:
        place = places.get(HEADER)
        if place is None or place[1] - place[0] <= _UNCOUNTED_HEADER_MAX_BYTES:
            return False
        return scan_header(self._data)[0].delivery_count > 0

    def _annotated_kind(self, places: dict[int, tuple[int, int]]) -> type[Message] | None:
        place = places.get(MESSAGE_ANNOTATIONS)
        if place is None:
            return None
        annotations = decode_value(self._data, place[0])[0]
        number = annotations.get(MESSAGE_TYPE) if isinstance(annotations, dict) else None
        return _CLASSES.get(number) if isinstance(number, int) else None

    def _guess(self) -> type[Message]:
        section = self._body_section
        constructor = self._data[section_at(self._data, self._body_at)[1]] if section == VALUE else 0
        return guessed_kind(section, constructor, self._content_type)

    def _content_type(self) -> str | None:
        fields = self._section(PROPERTIES, list)
        content_type = fields[_CONTENT_TYPE_FIELD] if len(fields) > _CONTENT_TYPE_FIELD else None
        return content_type if isinstance(content_type, str) else None

    def body_sections(self) -> bytes:
        """The body as it came, to be sent on; of a large message it is in `stream`."""
        if self.stream is not None:
            return b""
        return self._data[self._body_at :] if self._body_section in BODIES else _NULL_BODY

    @property
    def has_body(self) -> bool:
        """Whether there is a body section; foreign clients send messages without one."""
        return self._body_section in BODIES

    @property
    def stream(self) -> Region | None:
        """The body sections of a large message."""
        data = self._data
        return data.body if isinstance(data, LargeData) and self._body_section in BODIES else None

    def content(self) -> Region | None:
        """The bytes of a large message's body, if that is one section of data."""
        data = self._data
        return data.content() if isinstance(data, LargeData) and self.kind is BytesMessage else None

    def body(self) -> Any:
        """The body's value, of the type that the message's class has.

        Raises:
            MessageFormatError: its bytes cannot be decoded, or are not of that type.
        """
        try:
            return self._decode_body()
        except _UNDECODABLE as error:
            raise MessageFormatError(f"The message's body cannot be decoded: {error}.", linked=error) from error

    def headers(self) -> dict[str, Any]:
        """Header values by their attribute names.

        Raises:
            MessageFormatError: their bytes cannot be decoded.
        """
        try:
            return self._decode_headers()
        except _UNDECODABLE as error:
            raise MessageFormatError(f"The message's headers cannot be decoded: {error}.", linked=error) from error

    def _decode_body(self) -> Any:
        data = self._data
        if data.__class__ is LargeData:
            return Received(data.whole(), self._queue)._decode_body()
        at = self._body_at + 3
        section = self._body_section
        kind = self.kind
        if section == DATA and kind is BytesMessage:
            constructor = data[at]
            begin = at + 2 if constructor == 0xA0 else at + 5
            end = begin + (data[at + 1] if constructor == 0xA0 else int.from_bytes(data[at + 1 : begin], "big"))
            if end == len(data) and constructor in (0xA0, 0xB0):
                return data[begin:]
        value = self._value()
        if kind is TextMessage and isinstance(value, str):
            return value
        return fitting(kind, value, section, self._content_type)

    def _value(self) -> Any:
        if self._body_section == VALUE and self._data[self._body_at + 1] == 0x53:
            return decode_value(self._data, self._body_at + 3, whole_budget(self._data))[0]
        return self._compound_body()

    def _compound_body(self) -> Any:
        if self._body_section not in BODIES:
            return None
        body = decode_message(self._data[self._body_at :], whole_budget(self._data)).body
        return None if body is None else getattr(body, body.__struct_fields__[0])

    def _decode_headers(self) -> dict[str, Any]:
        front = self._decode_front()
        header, annotations, flagged = front.header, front.annotations, front.flagged
        assert header is not None
        fields = [*self._section(PROPERTIES, list), *[None] * 13]
        message_id, user_id, to, subject, reply_to, correlation_id, content_type, content_encoding = fields[:8]
        expiry_ms, creation_ms, group_id, group_sequence = fields[8:12]
        properties = self._section(APPLICATION_PROPERTIES, dict)
        if group_id is not None:
            properties[GROUP_ID] = group_id
        if group_sequence is not None:
            properties[GROUP_SEQUENCE] = _signed(group_sequence)
        if user_id is not None:
            properties[USER_ID] = user_id.decode("utf-8", "replace")
        properties[DELIVERY_COUNT] = Int(header.delivery_count + 1)
        timestamp = int(creation_ms or 0)
        delivery_time = annotations.get(DELIVERY_TIME)
        values = {
            "message_id": message_id_text(message_id),
            "correlation_id": correlation_id_of(correlation_id),
            "reply_to": None if reply_to is None else self._destination(reply_to, annotations, REPLY_TO_KIND),
            "destination": self._queue if to is None else self._destination(to, annotations, DESTINATION_KIND),
            "timestamp": timestamp,
            "expiration": int(expiry_ms or (timestamp + header.ttl_ms if timestamp and header.ttl_ms else 0)),
            "delivery_time": int(delivery_time) if isinstance(delivery_time, int) else timestamp,
            "delivery_mode": DeliveryMode.PERSISTENT if header.durable else DeliveryMode.NON_PERSISTENT,
            "priority": min(header.priority, 9),
            "type": subject,
            "redelivered": flagged or header.delivery_count > 0,
            "delivery_count": header.delivery_count + 1,
            "properties": properties,
        }
        if content_type is not None:
            values["content_type"] = content_type
        if content_encoding is not None:
            values["content_encoding"] = content_encoding
        return values

    def _decode_front(self) -> MessagePrefix:
        front = self._front or MessagePrefix(b"", self.kind)
        if front.header is None:
            front.annotations = self._section(MESSAGE_ANNOTATIONS, dict)
            front.flagged = self._section(DELIVERY_ANNOTATIONS, dict).get(REDELIVERED) is True
            front.header, _ = scan_header(self._data)
        return front

    def _destination(self, name: str, annotations: dict[str, Any], annotation: str) -> Destination:
        kind = annotations.get(annotation)
        if kind is None:
            legacy = annotations.get(_LEGACY[annotation])
            if isinstance(legacy, str):
                kind = ("topic" in legacy) + 2 * ("temporary" in legacy)
        return destination_of(name, self._queue.kind if kind is None else kind)

    def _section(self, code: int, kind: type) -> Any:
        front = self._front
        if front is not None and front.header is not None:
            # What lies before the properties is known, and after them comes the body.
            place = (len(front.raw) + 3, self._body_at) if code == PROPERTIES else None
        else:
            places = self._places if front is None else self._scan()
            place = places.get(code)
        if place is None:
            return kind()
        value = decode_value(self._data, place[0])[0]
        if not isinstance(value, kind):
            raise ProtocolError(f"a section holds a {type(value).__name__}", "amqp:decode-error")
        return value


def _signed(number: int) -> Int:
    # JMSXGroupSeq is a Java int: -1, which closes a group, crosses as 0xFFFFFFFF.
    return Int(number - (1 << 32) if number >= 1 << 31 else number)
