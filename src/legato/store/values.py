"""Values of the LMDB store, except blocks of messages (`blocks.py`)."""

import struct
from typing import TypeVar

import msgspec

from legato.core.facts import LogRecord, decode_record, plain
from legato.core.records import Attempt, Meta, ProducerRecord, QueueRecord, TakenMessage
from legato.errors import StoreCorruptError

T = TypeVar("T")

_DELIVERY = struct.Struct(">I?")
_NUMBER = struct.Struct(">I")

encode = msgspec.msgpack.Encoder(enc_hook=plain).encode
"""The bytes of a `Meta`, `QueueRecord`, `ProducerRecord`, `TakenMessage`, or list of transaction ids."""

pack_number = _NUMBER.pack

_meta = msgspec.msgpack.Decoder(Meta)
_queue = msgspec.msgpack.Decoder(QueueRecord)
_producer = msgspec.msgpack.Decoder(ProducerRecord)
_txns = msgspec.msgpack.Decoder(list[bytes])
_taken = msgspec.msgpack.Decoder(TakenMessage)
_attempts = msgspec.msgpack.Decoder(list[Attempt])

COUNT_MAX = (1 << 32) - 1
"""A delivery count stays here rather than overflow."""


def decode_meta(value: bytes | memoryview) -> Meta:
    """The state of the whole store. Raises `StoreCorruptError`, as all decoders here."""
    return _decode(_meta, value)


def decode_queue(value: bytes | memoryview) -> QueueRecord:
    """A queue's record."""
    return _decode(_queue, value)


def decode_producer(value: bytes | memoryview) -> ProducerRecord:
    """A numbered producer's record."""
    return _decode(_producer, value)


def decode_taken(value: bytes | memoryview) -> TakenMessage:
    """A message that left its queue after others had had it."""
    return _decode(_taken, value)


def decode_txns(value: bytes | memoryview) -> list[bytes]:
    """The transactions of one commit, of which the outcome is kept."""
    return _decode(_txns, value)


def decode_number(value: bytes | memoryview) -> int:
    """The number of a queue or a producer, kept under its name."""
    try:
        number: int = _NUMBER.unpack(value)[0]
    except struct.error as error:
        raise StoreCorruptError(f"a number in the store cannot be read: {error}") from error
    return number


def encode_delivery(count: int, flagged: bool, history: list[Attempt]) -> bytes:
    """A delivery count, the flag that the message may have been seen, and the last failed deliveries."""
    fixed = _DELIVERY.pack(min(count, COUNT_MAX), flagged)
    return fixed + encode(history) if history else fixed


def decode_delivery(value: bytes | memoryview) -> tuple[int, bool, list[Attempt]]:
    """Decode a record of `encode_delivery`."""
    try:
        count, flagged = _DELIVERY.unpack_from(value)
    except struct.error as error:
        raise StoreCorruptError(f"a delivery count in the store cannot be read: {error}") from error
    history = _decode(_attempts, value[_DELIVERY.size :]) if len(value) > _DELIVERY.size else []
    return count, flagged, history


def decode_log(value: bytes | memoryview, position: int) -> LogRecord:
    """The log record at `position`."""
    try:
        return decode_record(value)
    except msgspec.DecodeError as error:
        raise StoreCorruptError(f"the log record at {position} cannot be read: {error}") from error


def _decode(decoder: msgspec.msgpack.Decoder[T], value: bytes | memoryview) -> T:
    try:
        return decoder.decode(value)
    except msgspec.DecodeError as error:
        raise StoreCorruptError(f"a record in the store cannot be read: {error}") from error
