"""The envelope of each message in a log: its group, its place in a record, and the digest of all before it.

The claim is a number that each writer chooses at random: no two of them ever append the same bytes, so that whoever
finds its own bytes knows that it appended them. A record that is larger than the servers take is split into parts,
each with an envelope of its own.

```text
"LGRL"  version  group   claim   part   parts   digest before   digest   data
4       1 + 3    8       8       4      4       16              16       the rest
```

The digest is BLAKE2b of the digest before and of everything in the message but itself: so it stands for the whole log.
"""

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from legato.errors import LogFormatError
from legato.replication.log import DIGEST_BYTES

MAGIC = b"LGRL"
VERSION = 1
PARTS_MAX = 1 << 16
CLAIM_BYTES = 8

_FIELDS = struct.Struct(f">4sB3x8s{CLAIM_BYTES}sII{DIGEST_BYTES}s")
ENVELOPE_BYTES = _FIELDS.size + DIGEST_BYTES


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message of a log, opened.

    Args:
        part: its index in the record.
        parts: how many the record has.
        before: the digest of the message behind which it was appended.
        digest: of the log up to it, as its writer had it.
        data: its part of the record.
        intact: the digest is that of what is in the message.
    """

    part: int
    parts: int
    before: bytes
    digest: bytes
    data: memoryview
    intact: bool


def group_key(group: str) -> bytes:
    """The eight bytes by which messages of a group are known."""
    return hashlib.blake2b(group.encode(), digest_size=8, person=b"legato-group").digest()


def seal(
    key: bytes, claim: bytes, record: bytes, before: bytes, message_bytes_max: int
) -> Iterator[tuple[bytes, bytes]]:
    """The messages of a record and the digest behind each, to be appended one after the other.

    Args:
        key: the group's, of `group_key`.
        claim: the writer's number, `CLAIM_BYTES` long.
        record: the data.
        before: the digest of the log so far.
        message_bytes_max: the size of the largest message.
    """
    step = message_bytes_max - ENVELOPE_BYTES
    view = memoryview(record)
    parts = max(1, -(-len(record) // step))
    for part in range(parts):
        fields = _FIELDS.pack(MAGIC, VERSION, key, claim, part, parts, before)
        data = view[part * step : (part + 1) * step]
        before = _digest(fields, data)
        yield b"".join((fields, before, data)), before


def unseal(key: bytes, message: bytes) -> Envelope:
    """What is in a message.

    Raises:
        LogFormatError: it is no message of a log, of another version, or another group's.
    """
    if len(message) < ENVELOPE_BYTES or message[: len(MAGIC)] != MAGIC:
        raise LogFormatError("the log holds what Legato did not write: give the group a stream of its own")
    _, version, written_for, _, part, parts, before = _FIELDS.unpack_from(message)
    if version != VERSION:
        raise LogFormatError(
            f"the log has records of format {version}, and this version of Legato reads format {VERSION}: "
            "run the version that wrote them, or upgrade this broker first"
        )
    if written_for != key:
        raise LogFormatError("the log holds records of another group: give each group a log of its own")
    view = memoryview(message)
    digest, data = bytes(view[_FIELDS.size : ENVELOPE_BYTES]), view[ENVELOPE_BYTES:]
    whole = part < parts <= PARTS_MAX and digest == _digest(view[: _FIELDS.size], data)
    return Envelope(part, parts, before, digest, data, whole)


def _digest(fields: bytes | memoryview, data: memoryview) -> bytes:
    digest = hashlib.blake2b(fields, digest_size=DIGEST_BYTES)
    digest.update(data)
    return digest.digest()
