"""Records of commits as bytes."""

import pytest

from legato.core.records import Batch
from legato.errors import StoreCorruptError, StoreFormatError
from legato.store.commit_records import (
    Beat,
    CommitRecord,
    EpochRecord,
    decode,
    encode_beat,
    encode_commit,
    encode_epoch,
    refuse_other_rules,
)
from tests.conformance.store import NOW_US, batch_of, consumed, stored


def test_records_come_back_as_they_were() -> None:
    batch = batch_of(3, stored(1), consumed(1), steady_us=7)
    batch.chunks, batch.ended, batch.runs = [(1 << 32, 0, b"part")], [1 << 32], [[memoryview(b"block"), b"another"]]
    record, data = encode_commit(batch, 9)
    decoded = decode(memoryview(data))
    assert isinstance(decoded, CommitRecord)
    assert (decoded.epoch, decoded.position, decoded.log_bytes) == (3, 9, record.log_bytes)
    assert decoded.batch == Batch(
        3, NOW_US, batch.facts, batch.bodies, batch.chunks, batch.ended, [[b"block", b"another"]], 7
    )
    epoch, data = encode_epoch(4, 10, "broker", NOW_US, b"origin")
    assert decode(data) == epoch
    beat = Beat(4, 10, NOW_US)
    assert decode(encode_beat(beat)) == beat


def test_what_is_no_record_is_told_in_a_sentence() -> None:
    _, data = encode_commit(batch_of(3, stored(1)), 9)
    for damaged in (b"", data[:-1], data + b"\0", data[1:], b"\x94\x02\x01\xc4\x00\xa0", b"\xff" * 40):
        with pytest.raises(StoreCorruptError, match="cannot be read"):
            decode(damaged)


def test_a_version_with_other_rules_does_not_apply_what_it_would_change() -> None:
    record, data = encode_epoch(4, 10, "broker", NOW_US)
    refuse_other_rules(record)
    other = EpochRecord(4, 10, "broker", NOW_US, record.log_bytes, "9.9", record.rules | {"takers kept": 1})
    with pytest.raises(StoreFormatError, match=r"Legato 9\.9.*takers kept: 1 there.*upgrade this broker"):
        refuse_other_rules(other)
    assert data
