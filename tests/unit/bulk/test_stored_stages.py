"""What a store cannot keep of a stage is refused before it is published, whoever wrote the file."""

import struct
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from legato import limits
from legato.amqp.codec.stubs import STUB_MARK
from legato.bulk.packing import pack
from legato.bulk.requests import StageOptions
from legato.bulk.stage_encoder import records_of
from legato.bulk.stage_files import (
    BlockRun,
    DigestRecord,
    MessageRecord,
    Record,
    RunRecord,
    StageTicket,
    path_of,
    read_stage,
    write_stage,
)
from legato.bulk.stored_stages import checked
from legato.errors import StoreCorruptError
from legato.store.blocks import pack_bodies, pack_references

NOW_US = 1_700_000_000_000_000
TOO_LATE_US = (limits.TIME_MS_MAX + 1) * 1000
TICKET = StageTicket("sink", 3, "a", 0.0)
MESSAGE = MessageRecord("t", True, 4, 0, 0, b"d", "", "ID:1", b"body")


def written(tmp_path: Path, *records: Record) -> Path:
    path = path_of(tmp_path, "sink", 0, "a")
    write_stage(path, iter(records))
    return path


def read_sound_stage(path: Path) -> list[Record]:
    return checked(path.name, read_stage(path))


def run_of(*blocks: bytes, count: int, size: int, priority: int = 4) -> BlockRun:
    return BlockRun(RunRecord("q", priority, count, size, False, [len(block) for block in blocks]), list(blocks))


def test_what_rows_become_is_sound(tmp_path: Path) -> None:
    rows = 1000
    batch = pa.RecordBatch.from_pydict(
        {
            "body": [b"x" * (row % 300) for row in range(rows)],
            "priority": [row % 3 for row in range(rows)],
            "time_to_live_ms": [row % 5 for row in range(rows)],
            "destination": [f"q{row % 7}" for row in range(rows)],
            "duplicate_id": [f"{row}" if row % 7 == 3 else None for row in range(rows)],
        }
    )
    records = list(records_of(batch, StageOptions(), TICKET, 0, NOW_US))
    path = written(tmp_path, *records, DigestRecord(rows, bytes(16)))
    assert read_sound_stage(path) == read_stage(path)
    assert {type(record) for record in read_stage(path)} == {BlockRun, MessageRecord, DigestRecord}


@pytest.mark.parametrize(
    "changed",
    [
        {"priority": -1},
        {"priority": 10},
        {"expires_us": -5},
        {"expires_us": TOO_LATE_US},
        {"deliver_us": -5},
        {"deliver_us": TOO_LATE_US},
        {"body": b"a" * 40 + STUB_MARK},
        {"duplicate_id": bytes(limits.LARGE_MESSAGE_BYTES + 1)},
    ],
)
def test_a_message_that_cannot_be_stored_is_refused(tmp_path: Path, changed: dict[str, object]) -> None:
    assert read_sound_stage(written(tmp_path, MESSAGE)) == [MESSAGE]
    with pytest.raises(StoreCorruptError, match="cannot be published"):
        read_sound_stage(written(tmp_path, MESSAGE, msgspec.structs.replace(MESSAGE, **changed)))


def test_a_digest_that_is_none_is_refused(tmp_path: Path) -> None:
    for digest in (DigestRecord(-1, bytes(16)), DigestRecord(1, bytes(15)), DigestRecord(1 << 40, bytes(16))):
        with pytest.raises(StoreCorruptError, match="digest"):
            read_sound_stage(written(tmp_path, digest))


GOOD = pack_bodies(0, [0, 1], [b"12", b"345"], NOW_US)
ENDS_AT = struct.calcsize(">BBxxIQ") + 8


@pytest.mark.parametrize(
    "run",
    [
        run_of(GOOD, count=3, size=5),
        run_of(GOOD, count=2, size=6),
        run_of(GOOD, count=2, size=5, priority=11),
        run_of(GOOD, count=2, size=5, priority=-1),
        run_of(count=0, size=0),
        run_of(GOOD[:10], count=2, size=5),
        run_of(b"", count=2, size=5),
        run_of(GOOD[:1] + b"\2" + GOOD[2:], count=2, size=5),
        run_of(b"\7" + GOOD[1:], count=2, size=5),
        run_of(GOOD[:1] + b"\2" + GOOD[2 : ENDS_AT + 8] + bytes(32) + b"12345", count=2, size=5),
        run_of(pack_bodies(0, [0, 2], [b"12", b"345"], NOW_US), count=2, size=5),
        run_of(pack_bodies(0, [1, 2], [b"12", b"345"], NOW_US), count=2, size=5),
        run_of(pack_bodies(0, [0, 2, 2], [b"1", b"2", b"345"], NOW_US), count=3, size=5),
        run_of(pack_bodies(0, [0, 1], [b"12", b"345"], NOW_US, [0, TOO_LATE_US]), count=2, size=5),
        run_of(pack_bodies(0, [0, 1], [b"12", b"345"], TOO_LATE_US), count=2, size=5),
        run_of(pack_references(0, [0, 1], [2, 3], 7, NOW_US), count=2, size=5),
        run_of(GOOD[:ENDS_AT] + struct.pack(">II", 9, 5) + b"12345", count=2, size=5),
        run_of(pack_bodies(0, [0, 1], [STUB_MARK, b"3"], NOW_US), count=2, size=17),
    ],
)
def test_a_run_that_cannot_be_stored_is_refused(tmp_path: Path, run: BlockRun) -> None:
    with pytest.raises(StoreCorruptError, match="cannot be published"):
        read_sound_stage(written(tmp_path, run))


def test_a_run_that_can_be_stored_is_taken(tmp_path: Path) -> None:
    """Also if the mark of large messages is in the middle of one."""
    inside = STUB_MARK + b"4"
    runs = [
        run_of(GOOD, GOOD, count=4, size=10),
        run_of(pack_bodies(0, [0, 1], [inside, b""], NOW_US, [0, TOO_LATE_US - 1000]), count=2, size=17),
    ]
    assert len(read_sound_stage(written(tmp_path, *runs))) == 2


def test_a_run_whose_blocks_go_back_is_told(tmp_path: Path) -> None:
    """The same record was read again and again."""
    path = written(tmp_path, BlockRun(RunRecord("q", 4, 1, 1, False, [-40]), [b""]))
    with pytest.raises(StoreCorruptError, match="not what was written"):
        read_stage(path)


@pytest.mark.parametrize("time_ms", [limits.TIME_MS_MAX, 10**14, 10**16, 2**63 - 1])
def test_times_beyond_all_are_the_last_one(tmp_path: Path, time_ms: int) -> None:
    """A sum of 64 bits was negative, and no commit could have it."""
    column = pa.array([time_ms])
    ways: list[dict[str, pa.Array]] = [
        {"body": pa.array(["1"]), "time_to_live_ms": column},
        {"body": pa.array(["1"]), "time_to_live_ms": column, "duplicate_id": pa.array(["d"])},
        {"body": pa.array(["1"]), "delivery_delay_ms": column},
    ]
    for way in ways:
        records = list(records_of(pa.RecordBatch.from_pydict(way), StageOptions("q"), TICKET, 0, NOW_US))
        [record] = read_sound_stage(written(tmp_path, *records))
        if isinstance(record, MessageRecord):
            assert max(record.expires_us, record.deliver_us) == limits.TIME_MS_MAX * 1000
            assert min(record.expires_us, record.deliver_us) == 0
        else:
            messages = pa.array([b"1"], pa.binary())
            head, _ = pack(messages, NOW_US, np.array([limits.TIME_MS_MAX * 1000]))[0]
            assert isinstance(record, BlockRun)
            assert bytes(record.pieces[0]).startswith(head[:-8][:16])
            assert head[-8:] in bytes(record.pieces[0])


@pytest.mark.parametrize("further", [{}, {"duplicate_id": ["d"]}])
def test_rows_that_stand_for_large_messages_of_others_are_refused(further: dict[str, list[str]]) -> None:
    """They were read as the large message that they named."""
    batch = pa.RecordBatch.from_pydict({"body": [bytes(40) + STUB_MARK], **further})
    with pytest.raises(ValueError, match="ends as no message may"):
        list(records_of(batch, StageOptions("q"), TICKET, 0, NOW_US))


def test_a_duplicate_id_longer_than_a_message_is_refused() -> None:
    batch = pa.RecordBatch.from_pydict({"body": ["1"], "duplicate_id": ["x" * (limits.LARGE_MESSAGE_BYTES + 1)]})
    with pytest.raises(ValueError, match="duplicate id has more than"):
        list(records_of(batch, StageOptions("q"), TICKET, 0, NOW_US))
