"""Keys of the LMDB store: big-endian, so that byte order is the order of places and positions."""

import hashlib
import struct

_NUMBER = struct.Struct(">I")
_PLACE = struct.Struct(">IQ")
_POSITION = struct.Struct(">Q")
_EXPIRY = struct.Struct(">QIQ")
_PAIR = struct.Struct(">II")
_CHUNK = struct.Struct(">QI")

NAME_BYTES_MAX = 500
"""Longer names are kept under their digest: LMDB's keys end at 511 bytes."""


number_key = _NUMBER.pack
"""The key of a queue or a producer, from its number."""

place_key = _PLACE.pack
"""The key of a place in a queue, from the queue's number and a sequence."""

position_key = _POSITION.pack
"""The key of a log record, from its position, or of a large message, from its number."""

expiry_key = _EXPIRY.pack
"""The key of a block in which messages expire, from the time of the first and the block's place."""

pair_key = _PAIR.pack
"""The key of a subscription under its topic, from their numbers."""

chunk_key = _CHUNK.pack
"""The key of a part of a large message's body, from the large number and the index of the part."""


def read_number(key: bytes | memoryview) -> int:
    """The number in the first bytes of a key."""
    number: int = _NUMBER.unpack_from(key)[0]
    return number


def read_place(key: bytes | memoryview) -> tuple[int, int]:
    """Queue and sequence of a key that `place_key` made."""
    queue, seq = _PLACE.unpack(key)
    return queue, seq


def read_position(key: bytes | memoryview) -> int:
    """The position of a key that `position_key` made."""
    position: int = _POSITION.unpack(key)[0]
    return position


def name_key(name: str) -> bytes:
    """The key of a queue's or producer's name, whatever its length."""
    raw = name.encode()
    if len(raw) <= NAME_BYTES_MAX:
        return b"=" + raw
    return b"#" + hashlib.sha256(raw).digest()


def read_name(key: bytes) -> str:
    """The name in a key that `name_key` made of one that is not too long."""
    return key[1:].decode()


def time_key(time_us: int, txn: bytes) -> bytes:
    """The key of the outcomes of one commit, oldest first; `txn` keeps commits of the same instant apart."""
    return _POSITION.pack(time_us) + txn


def read_time(key: bytes | memoryview) -> int:
    """The time of a key that `time_key` made."""
    time_us: int = _POSITION.unpack_from(key)[0]
    return time_us


def read_expiry(key: bytes | memoryview) -> tuple[int, int, int]:
    """Time, queue and sequence of a key that `expiry_key` made."""
    expires_us, queue, seq = _EXPIRY.unpack(key)
    return expires_us, queue, seq


def read_pair(key: bytes | memoryview) -> tuple[int, int]:
    """The numbers of a key that `pair_key` made."""
    first, second = _PAIR.unpack(key)
    return first, second


def read_chunk_key(key: bytes | memoryview) -> tuple[int, int]:
    """Large number and index of a key that `chunk_key` made."""
    large, index = _CHUNK.unpack(key)
    return large, index
