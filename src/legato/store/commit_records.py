"""Records of commits: all that a commit or the beginning of an epoch did, as bytes with which it is done again.

A journal and a replicated log carry these bytes; a store applies them with `prepare`, the same function that applies
what a broker commits. So a store that is brought up to date from records is the same as the one that wrote them.

A record has no digest and no length of its own: what carries it has both, and chains each record to the one before
(`Applied`). A record has its epoch and its position in the log of facts, which is one more than that of the record
before it in the whole life of a store.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never, get_args

import msgspec

from legato import __version__, limits
from legato.core.facts import AnyFact, EpochBegan, LogRecord, decode_record, encode_record
from legato.core.records import Applied, Batch, CommitRecord, EpochRecord, Meta
from legato.errors import FencedError, StoreCorruptError, StoreFormatError
from legato.store.base import FORGOTTEN_FOR_EACH, FORMAT_VERSION

__all__ = [
    "AnyRecord",
    "Applied",
    "Beat",
    "CommitRecord",
    "EpochRecord",
    "decode",
    "encode_beat",
    "encode_commit",
    "encode_epoch",
    "encode_log_bytes",
    "refuse_other_rules",
    "refuse_unless_next",
    "rules",
]


_FACTS_KNOWN = max(fact.__struct_config__.tag for fact in get_args(AnyFact))
"""The highest tag of a fact: who does not know it cannot read a log that has it."""


def rules() -> dict[str, int]:
    """The constants by which the same record could leave different stores in different versions."""
    return {
        "attempts kept": limits.HISTORY_ATTEMPTS,
        "batches kept": limits.BATCHES_KEPT,
        "duplicate ids forgotten": FORGOTTEN_FOR_EACH,
        "facts known": _FACTS_KNOWN,
        "format": FORMAT_VERSION,
        "takers kept": limits.TAKEN_MESSAGES,
    }


class Beat(msgspec.Struct, frozen=True):
    """A primary that commits nothing is still the primary. It changes nothing.

    Args:
        epoch: in which it is the primary.
        position: of the last commit.
        time_us: its clock, microseconds since 1970.
        listen: where it serves.
        token: lets a backup in, where peers need a password.
        connections: how many it has, if they are many.
        left: why it is the primary no more: it answers nobody from here on; empty if it is.
        lease_ms: for so long it answers after its last record; 0 if a former version wrote it.
    """

    epoch: int
    position: int
    time_us: int
    listen: str = ""
    token: str = ""
    connections: int = 0
    left: str = ""
    lease_ms: int = 0


AnyRecord: TypeAlias = CommitRecord | EpochRecord | Beat


class _Commit(msgspec.Struct, array_like=True, tag=1, frozen=True, gc=False):
    position: int
    log_bytes: bytes
    steady_us: int
    bodies: list[bytes]
    chunks: list[tuple[int, int, bytes]] = []
    ended: list[int] = []
    runs: list[list[bytes]] = []


class _Epoch(msgspec.Struct, array_like=True, tag=2, frozen=True, gc=False):
    position: int
    log_bytes: bytes
    version: str
    rules: dict[str, int]
    origin: bytes = b""


class _Beat(msgspec.Struct, array_like=True, tag=3, frozen=True, gc=False):
    epoch: int
    position: int
    time_us: int
    listen: str = ""
    token: str = ""
    connections: int = 0
    left: str = ""
    lease_ms: int = 0


class _CommitToWrite(msgspec.Struct, array_like=True, tag=1, frozen=True, gc=False):
    """`_Commit` with blocks that are not bytes yet, which msgspec encodes and does not decode."""

    position: int
    log_bytes: bytes
    steady_us: int
    bodies: list[bytes]
    chunks: list[tuple[int, int, bytes]]
    ended: list[int]
    runs: list[object]


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(_Commit | _Epoch | _Beat)


def encode_log_bytes(batch: Batch) -> bytes:
    """The log record of a batch, encoded."""
    return encode_record(LogRecord(batch.epoch, batch.time_us, batch.facts))


def encode_commit(batch: Batch, position: int) -> tuple[CommitRecord, bytes]:
    """The record of a commit, and its bytes.

    Args:
        batch: what is to be committed.
        position: that its log record will have.
    """
    log_bytes = encode_log_bytes(batch)
    written = _CommitToWrite(
        position, log_bytes, batch.steady_us, batch.bodies, batch.chunks, batch.ended, list(batch.runs)
    )
    return CommitRecord(position, batch, log_bytes), _encode(written)


def encode_epoch(epoch: int, position: int, broker: str, now_us: int, origin: bytes = b"") -> tuple[EpochRecord, bytes]:
    """The record of an epoch that begins, and its bytes; arguments as of `EpochRecord`."""
    log_bytes = encode_record(LogRecord(epoch, now_us, [EpochBegan(broker)]))
    record = EpochRecord(epoch, position, broker, now_us, log_bytes, __version__, rules(), origin)
    return record, _encode(_Epoch(position, log_bytes, record.version, record.rules, origin))


def encode_beat(beat: Beat) -> bytes:
    """The bytes of a beat."""
    return _encode(_Beat(*msgspec.structs.astuple(beat)))


def decode(data: bytes | memoryview) -> AnyRecord:
    """A record from its bytes.

    Raises:
        StoreCorruptError: they are none, or not of a version that this one knows.
    """
    try:
        return _decoded(_decoder.decode(data))
    except msgspec.DecodeError as error:
        raise StoreCorruptError(f"a record of a commit cannot be read: {error}") from error


def _decoded(found: _Commit | _Epoch | _Beat) -> AnyRecord:
    match found:
        case _Commit(position, log_bytes, steady_us, bodies, chunks, ended, runs):
            log = decode_record(log_bytes)
            batch = Batch(log.epoch, log.time_us, log.facts, bodies, chunks, ended, [*runs], steady_us)
            return CommitRecord(position, batch, log_bytes)
        case _Epoch(position, log_bytes, version, known, origin):
            log = decode_record(log_bytes)
            if len(log.facts) != 1 or not isinstance(began := log.facts[0], EpochBegan):
                raise StoreCorruptError(f"record {position} should begin an epoch, and does not")
            return EpochRecord(log.epoch, position, began.broker, log.time_us, log_bytes, version, known, origin)
        case _Beat():
            return Beat(*msgspec.structs.astuple(found))
        case _:
            assert_never(found)


def refuse_other_rules(record: EpochRecord) -> None:
    """See that this version applies records as the one that wrote them.

    Raises:
        StoreFormatError: it would make something else of them; which version can, and why this one cannot.
    """
    here = rules()
    differing = sorted(name for name in here.keys() | record.rules.keys() if here.get(name) != record.rules.get(name))
    if record.rules and differing:
        name = differing[0]
        raise StoreFormatError(
            f"the primary of epoch {record.epoch} runs Legato {record.version}, whose commits this version "
            f"({__version__}) would apply in another way ({name}: {record.rules.get(name)} there, {here.get(name)} "
            "here): upgrade this broker, and upgrade the primary last"
        )


def refuse_unless_next(record: CommitRecord | EpochRecord, meta: Meta) -> None:
    """See that a record may be applied to a store in the state `meta`.

    Raises:
        FencedError: it is of another epoch than the store's, or begins another than the next one.
        StoreCorruptError: records before it are missing, or it was applied already.
    """
    if isinstance(record, EpochRecord):
        if record.epoch != meta.epoch + 1:
            raise FencedError(f"epoch {record.epoch} cannot begin: the store is in epoch {meta.epoch}")
    elif record.epoch != meta.epoch:
        raise FencedError(f"epoch {record.epoch} is over: the store is in epoch {meta.epoch}")
    if record.position != meta.log_position + 1:
        raise StoreCorruptError(
            f"record {record.position} cannot be applied to a store of {meta.log_position} commits: "
            "it is not the next one"
        )
