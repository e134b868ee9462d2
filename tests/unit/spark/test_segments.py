"""Segments of the ledger hold every record once, whatever moment an exporter dies at. No Spark, no JVM."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
import pytest

from legato.core.facts import (
    AnyFact,
    DispatchMarked,
    EpochBegan,
    Kind,
    LogRecord,
    MessageConsumed,
    MessagePublished,
    MessageStored,
    QueueCreated,
)
from legato.errors import ConfigError, StoreCorruptError
from legato.spark.auditor.audit import audit
from legato.spark.exporter import SEGMENT_ROWS_MAX, Exporter, export_all, try_export
from legato.spark.ledger.compaction import compact, read_rows
from legato.spark.ledger.fact_schema import SCHEMA
from legato.spark.ledger.segments import (
    LedgerLock,
    SegmentSpan,
    exported_through,
    segments_of,
    spans,
    sweep,
    write_segment,
)
from legato.spark.query.ledger_query import LedgerQuery
from legato.store.base import Batch
from legato.store.lmdb import LmdbStore
from legato.store.memory import MemoryStore


def grow(store: MemoryStore | LmdbStore, commits: int) -> int:
    """Add commits of one message each to the queue `q`; returns the position of the last."""
    queue = store.queue("q")
    last = 0
    if queue is None:
        store.begin_epoch("broker", 1)
        store.commit(Batch(1, 2, [QueueCreated(1, "q")], []))
    else:
        last = queue.last_seq
    position = 0
    for seq in range(last + 1, last + 1 + commits):
        position = store.commit(Batch(1, 10 * seq, [MessageStored(1, seq, 4, f"ID:{seq}")], [b"body"]))
    return position


def seqs_in(ledger: Path) -> list[int]:
    """The seq of every stored message in the ledger, sorted, with repetitions if there are any."""
    tables = [pq.read_table(path, columns=["seq", "kind"]) for path in ledger.glob("facts-*.parquet")]
    rows = [row for table in tables for row in table.to_pylist()]
    return sorted(row["seq"] for row in rows if row["kind"] == "MessageStored")


def test_a_segment_is_named_by_the_positions_it_holds(tmp_path: Path) -> None:
    span = write_segment(tmp_path, [(7, LogRecord(1, 5, [EpochBegan("a")])), (8, LogRecord(1, 6, [EpochBegan("b")]))])
    assert span == SegmentSpan(7, 8)
    assert [path.name for path in tmp_path.iterdir()] == ["facts-0000000000000007-0000000000000008.parquet"]
    assert exported_through(tmp_path) == 8


def test_a_ledger_that_does_not_exist_is_exported_through_nothing(tmp_path: Path) -> None:
    assert exported_through(tmp_path / "none") == 0
    assert list(spans(tmp_path / "none")) == []


def test_exporting_again_adds_nothing(tmp_path: Path) -> None:
    store = MemoryStore()
    last = grow(store, 5)
    assert Exporter(store, tmp_path).finish(0.0) == [SegmentSpan(1, last)]
    assert Exporter(store, tmp_path).finish(0.0) == []
    assert seqs_in(tmp_path) == [1, 2, 3, 4, 5]


def test_the_next_exporter_continues_after_the_last_segment(tmp_path: Path) -> None:
    store = MemoryStore()
    middle = grow(store, 3)
    Exporter(store, tmp_path).finish(0.0)
    last = grow(store, 4)
    assert Exporter(store, tmp_path).finish(0.0) == [SegmentSpan(middle + 1, last)]
    assert seqs_in(tmp_path) == list(range(1, 8))


def test_a_log_trimmed_up_to_what_was_exported_loses_nothing(tmp_path: Path) -> None:
    store = MemoryStore()
    grow(store, 3)
    Exporter(store, tmp_path).finish(0.0)
    store.trim_log(exported_through(tmp_path), 1000)
    assert Exporter(store, tmp_path).finish(0.0) == []
    grow(store, 2)
    Exporter(store, tmp_path).finish(0.0)
    assert seqs_in(tmp_path) == [1, 2, 3, 4, 5]


def test_facts_wait_in_memory_until_a_segment_is_due(tmp_path: Path) -> None:
    store = MemoryStore()
    grow(store, 3)
    exporter = Exporter(store, tmp_path, segment_s=2.0)
    assert exporter.poll(100.0) == []
    grow(store, 1)
    assert exporter.poll(101.9) == []
    assert len(exporter.poll(102.0)) == 1
    assert seqs_in(tmp_path) == [1, 2, 3, 4]
    assert exporter.poll(200.0) == []


@pytest.mark.parametrize("step", ["replace", "fsync"])
def test_a_crash_before_the_rename_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    store = MemoryStore()
    grow(store, 3)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, step, die)
        with pytest.raises(KeyboardInterrupt):
            Exporter(store, tmp_path).finish(0.0)
    assert exported_through(tmp_path) == 0
    assert len(list(tmp_path.iterdir())) == 1, "the half-written file is there"
    Exporter(store, tmp_path).finish(0.0)
    assert seqs_in(tmp_path) == [1, 2, 3]
    assert [path.name[:6] for path in tmp_path.iterdir()] == ["facts-"], "and was swept"


def test_only_unfinished_files_are_swept(tmp_path: Path) -> None:
    write_segment(tmp_path, [(1, LogRecord(1, 5, [EpochBegan("a")]))])
    (tmp_path / ".writing-facts-x.parquet").write_bytes(b"half")
    assert sweep(tmp_path) == 1
    assert exported_through(tmp_path) == 1


def test_a_ledger_of_another_store_is_refused(tmp_path: Path) -> None:
    store = MemoryStore()
    grow(store, 9)
    Exporter(store, tmp_path).finish(0.0)
    other = MemoryStore()
    grow(other, 1)
    with pytest.raises(ConfigError, match="another store"):
        Exporter(other, tmp_path)


def test_the_ledger_of_a_store_that_was_restored_since_is_refused(tmp_path: Path) -> None:
    """The restored store got past the end of its former ledger without it: what it did until then was in no audit."""
    first = MemoryStore()
    last = grow(first, 9)
    Exporter(first, tmp_path).finish(0.0)
    restored = MemoryStore()
    grow(restored, 4)
    restored.begin_epoch("broker", 1000)
    for seq in range(5, 15):
        there = restored.commit(Batch(2, 1000 + seq, [MessageStored(1, seq, 4, f"ID:{seq}")], [b"body"]))
    assert there > last
    with pytest.raises(ConfigError, match=f"holds other commits than the store's log, up to commit {last}: "):
        Exporter(restored, tmp_path)
    assert exported_through(tmp_path) == last


def test_two_exporters_never_hold_the_lock_together(tmp_path: Path) -> None:
    first, second = LedgerLock(tmp_path), LedgerLock(tmp_path)
    assert first.acquire()
    assert not second.acquire()
    first.close()
    assert second.acquire()
    second.close()


def test_every_column_says_what_the_fact_said(tmp_path: Path) -> None:
    facts: list[AnyFact] = [
        MessageStored(1, 2, 30, "ID:x", producer=4, number=5, txn=b"t", origin=(6, 7)),
        MessageConsumed(1, 2, 8, 900, 3),
    ]
    span = write_segment(tmp_path, [(40, LogRecord(2, 1000, facts))])
    rows = pq.read_table(tmp_path / span.file_name).to_pylist()
    said = [{name: value for name, value in row.items() if value is not None} for row in rows]
    place = {"position": 40, "epoch": 2, "time_us": 1000}
    assert said == [
        {
            **place,
            "ordinal": 0,
            "kind": "MessageStored",
            "tag": 10,
            "queue": 1,
            "seq": 2,
            "size": 30,
            "message_id": "ID:x",
            "producer": 4,
            "number": 5,
            "txn": b"t",
            "origin_queue": 6,
            "origin_seq": 7,
        },
        {
            **place,
            "ordinal": 1,
            "kind": "MessageConsumed",
            "tag": 11,
            "queue": 1,
            "seq": 2,
            "consumer": 8,
            "delivered_us": 900,
            "attempt": 3,
        },
    ]


def test_a_publication_has_a_row_of_its_own_and_one_for_each_copy(tmp_path: Path) -> None:
    facts: list[AnyFact] = [
        MessagePublished(1, 7, 30, "ID:x", [4, 5], producer=4, number=5, txn=b"t", origin=(6, 8), expires_us=9),
        MessagePublished(2, 8, 30, "ID:y", []),
    ]
    span = write_segment(tmp_path, [(40, LogRecord(2, 1000, facts))])
    rows = pq.read_table(tmp_path / span.file_name).to_pylist()
    said = [{name: value for name, value in row.items() if value is not None} for row in rows]
    place = {"position": 40, "epoch": 2, "time_us": 1000}
    message = {**place, "ordinal": 0, "seq": 7, "size": 30, "origin_queue": 6, "origin_seq": 8, "expires_us": 9}
    published = {
        "kind": "MessagePublished",
        "tag": 18,
        "queue": 1,
        "stored": 2,
        "message_id": "ID:x",
        "producer": 4,
        "number": 5,
    }
    unheard = {
        "kind": "MessagePublished",
        "tag": 18,
        "queue": 2,
        "seq": 8,
        "stored": 0,
        "size": 30,
        "message_id": "ID:y",
    }
    assert said == [
        {**message, **published, "txn": b"t"},
        {**place, "ordinal": 1, **unheard},
        {**message, "kind": "MessageStored", "tag": 10, "queue": 4, "topic": 1},
        {**message, "kind": "MessageStored", "tag": 10, "queue": 5, "topic": 1},
    ]


def test_a_record_without_facts_has_a_row(tmp_path: Path) -> None:
    records = [(1, LogRecord(1, 5, [])), (2, LogRecord(1, 6, [EpochBegan("a")])), (3, LogRecord(1, 7, []))]
    span = write_segment(tmp_path, records)
    rows = pq.read_table(tmp_path / span.file_name, columns=["position", "ordinal", "kind", "time_us"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [(1, 0, None, 5), (2, 0, "EpochBegan", 6), (3, 0, None, 7)]
    write_segment(tmp_path, [(4, LogRecord(1, 8, []))])


def test_a_publication_without_copies_alone_is_a_segment(tmp_path: Path) -> None:
    write_segment(tmp_path, [(1, LogRecord(1, 5, [MessagePublished(1, 1, 30, "ID:x", [])]))])
    assert seqs_in(tmp_path) == []


def test_a_segment_is_written_early_when_a_publication_has_many_copies(tmp_path: Path) -> None:
    store = MemoryStore()
    store.begin_epoch("broker", 1)
    store.commit(Batch(1, 2, [QueueCreated(1, "topic://t", Kind.TOPIC)], []))
    subscriptions = list(range(2, 1002))
    store.commit(
        Batch(1, 2, [QueueCreated(each, f"volatile://c/{each}", Kind.SUBSCRIPTION, 1) for each in subscriptions], [])
    )
    for seq in range(1, SEGMENT_ROWS_MAX // len(subscriptions) + 2):
        store.commit(Batch(1, 3, [MessagePublished(1, seq, 4, "ID:x", subscriptions)], [b"body"]))
    assert len(Exporter(store, tmp_path, segment_s=3600).poll(0.0)) == 1


@pytest.mark.slow
def test_a_store_on_disk_is_exported_while_a_broker_writes_to_it(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "store")
    try:
        last = grow(store, 4)
        exporter = start_exporter(tmp_path, "--once")
        assert exporter.wait(60) == 0
        assert exported_through(tmp_path / "ledger") == last
        last = grow(store, 2)
        assert start_exporter(tmp_path, "--once").wait(60) == 0
        assert exported_through(tmp_path / "ledger") == last
    finally:
        store.close()
    assert seqs_in(tmp_path / "ledger") == [1, 2, 3, 4, 5, 6]


def test_an_export_leaves_the_ledger_to_the_exporter_at_work(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "store")
    grow(store, 4)
    store.close()
    lock = LedgerLock(tmp_path / "ledger")
    assert lock.acquire()
    assert not try_export(tmp_path / "store", tmp_path / "ledger")
    assert seqs_in(tmp_path / "ledger") == []
    lock.close()
    assert try_export(tmp_path / "store", tmp_path / "ledger")
    assert seqs_in(tmp_path / "ledger") == [1, 2, 3, 4]


def start_exporter(tmp_path: Path, *options: str) -> subprocess.Popen[bytes]:
    """An exporter process on the store and the ledger in `tmp_path`."""
    command = [sys.executable, "-m", "legato.spark.exporter", "--segment-s", "0", *options]
    command += ["--store", str(tmp_path / "store"), "--ledger", str(tmp_path / "ledger")]
    return subprocess.Popen(command, stdin=subprocess.PIPE)


def test_the_exporter_process_that_is_told_to_finish_ends_after_a_last_export(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "store")
    process = start_exporter(tmp_path)
    try:
        grow(store, 5)
        process.communicate(b"finish\n", timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()
        store.close()
    assert seqs_in(tmp_path / "ledger") == [1, 2, 3, 4, 5]


def test_the_exporter_process_whose_parent_died_leaves_the_rest_to_the_next_one(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "store")
    process = start_exporter(tmp_path, "--segment-s", "3600")
    try:
        grow(store, 5)
        process.communicate(timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()
        store.close()
    assert exported_through(tmp_path / "ledger") == 0


def test_exporters_killed_at_any_moment_leave_a_ledger_without_holes_or_repetitions(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "store", sync=False)
    try:
        grow(store, 20)
        for _ in range(3):
            process = start_exporter(tmp_path)
            wanted = exported_through(tmp_path / "ledger") + 1
            while exported_through(tmp_path / "ledger") < wanted:
                grow(store, 20)
                assert process.poll() is None
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=0.01)
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
            last = grow(store, 20)
    finally:
        store.close()
    assert export_all(tmp_path / "store", tmp_path / "ledger") == last
    seqs = seqs_in(tmp_path / "ledger")
    assert seqs == list(range(1, len(seqs) + 1))


def test_a_large_segment_keeps_each_kind_of_fact_apart(tmp_path: Path) -> None:
    stored: list[AnyFact] = [MessageStored(1, seq, 4, f"ID:{seq}") for seq in range(1, 20_001)]
    span = write_segment(tmp_path, [(1, LogRecord(1, 5, [EpochBegan("a"), *stored])), (2, LogRecord(1, 6, []))])
    file = pq.ParquetFile(tmp_path / span.file_name)
    kinds = [set(file.read_row_group(number, ["kind"])["kind"].to_pylist()) for number in range(file.num_row_groups)]
    assert kinds == [{"EpochBegan"}, {"MessageStored"}, {None}]
    assert file.metadata.num_rows == 20_002


def test_kinds_of_few_facts_share_a_row_group_and_columns_have_one_page(tmp_path: Path) -> None:
    """Each had one of its own, of 58 columns, and a column of nulls a page for each 20,000 rows."""
    few: list[AnyFact] = [EpochBegan("a"), QueueCreated(1, "q"), DispatchMarked(1, 9)]
    stored: list[AnyFact] = [MessageStored(1, seq, 4, f"ID:{seq}") for seq in range(1, 45_001)]
    span = write_segment(tmp_path, [(1, LogRecord(1, 5, [*few, *stored]))])
    assert read_rows(tmp_path / span.file_name).column("kind").to_pylist() == [
        *(type(fact).__name__ for fact in few),
        *(["MessageStored"] * 45_000),
    ]
    metadata = pq.read_metadata(tmp_path / span.file_name)
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [3, 45_000]
    nulls = metadata.row_group(1).column(SCHEMA.names.index("omitted"))
    assert nulls.total_compressed_size < 100, "it has more than one page"


def test_a_column_without_values_is_not_compressed(tmp_path: Path) -> None:
    """A compressor for each of forty columns was a fifth of what a segment costs."""
    span = write_segment(tmp_path, [(1, LogRecord(1, 5, [MessageStored(1, seq, 4, f"ID:{seq}") for seq in (1, 2)]))])
    group = pq.read_metadata(tmp_path / span.file_name).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    said = {"position", "ordinal", "epoch", "time_us", "kind", "tag", "queue", "seq", "size", "message_id"}
    assert {column.path_in_schema: column.compression for column in columns} == {
        name: "ZSTD" if name in said else "UNCOMPRESSED" for name in SCHEMA.names
    }


@pytest.fixture
def written() -> Iterator[Path]:
    """A ledger of one segment in a store's directory, which others may enter."""
    with TemporaryDirectory() as store:
        Path(store).chmod(0o755)
        ledger = Path(store) / "ledger"
        ledger.mkdir()
        write_segment(ledger, [(1, LogRecord(1, 5, [EpochBegan("a")]))])
        yield ledger


def test_where_there_is_no_ledger_the_error_says_what_is_there_instead(written: Path) -> None:
    store, file = written.parent, written.parent / "notes.txt"
    file.touch()
    (empty := store / "empty").mkdir()
    (tables := store / "tables" / "silver").mkdir(parents=True)
    (groups := store / "groups" / "broker_group=one").mkdir(parents=True)
    for place, words in {
        store / "none": "There is no directory",
        file: "is not a directory",
        empty: "There are no segments of a ledger",
        store: f"Did you mean {written}",
        tables.parent: "What is there are tables",
        groups.parent: f"name one, such as {groups}",
    }.items():
        with pytest.raises(ConfigError, match=words) as refused:
            segments_of(place)
        assert str(place) in str(refused.value)
    assert [path.parent for path in segments_of(written)] == [written]


@pytest.mark.parametrize("ask", [audit, LedgerQuery, segments_of], ids=lambda ask: ask.__name__)
def test_a_directory_that_is_no_ledger_is_left_as_it_is(tmp_path: Path, ask: Callable[[Path], object]) -> None:
    """Whoever audited the wrong one had a lock's file in it."""
    with pytest.raises(ConfigError, match="There are no segments of a ledger"):
        ask(tmp_path)
    assert not list(tmp_path.iterdir())


@contextmanager
def nobody() -> Iterator[None]:
    """The block runs as a user who is not root: to root no file is closed."""
    own = os.geteuid()
    os.seteuid(own or 65534)
    try:
        yield
    finally:
        os.seteuid(own)


@pytest.mark.parametrize("closed", ["directory", "segment"])
def test_a_ledger_that_the_user_may_not_read_is_not_called_broken(written: Path, closed: str) -> None:
    (segment,) = written.iterdir()
    written.chmod(0 if closed == "directory" else 0o755)
    segment.chmod(0)
    with nobody(), pytest.raises(ConfigError, match="This user may not read") as refused:
        segments_of(written)
    written.chmod(0o755)
    assert str(segment if closed == "segment" else written) in str(refused.value)


def test_what_changed_in_the_data_of_a_segment_is_noticed(tmp_path: Path) -> None:
    """Of each ten bytes that a disk changed one gave other numbers in silence, and the audit of these was green."""
    store = MemoryStore()
    grow(store, 200)
    span = write_segment(tmp_path, list(store.log(0, 1000)))
    segment = tmp_path / span.file_name
    whole = segment.read_bytes()
    rows = read_rows(segment)
    footer_bytes = int.from_bytes(whole[-8:-4], "little")
    noticed = 0
    for place in range(4, len(whole) - 8 - footer_bytes, 7):
        segment.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            assert read_rows(segment) == rows, f"byte {place} changed, and the rows are others"
        except StoreCorruptError:
            noticed += 1
    assert noticed > 100


def damage(segment: Path) -> None:
    """Change a byte of the data of its first column."""
    content = bytearray(segment.read_bytes())
    column = pq.read_metadata(segment).row_group(0).column(0)
    begin = column.dictionary_page_offset or column.data_page_offset
    content[begin + column.total_compressed_size - 2] ^= 0x55
    segment.write_bytes(content)


def test_a_damaged_segment_is_not_compacted(tmp_path: Path) -> None:
    """It would be written anew, with checksums that hold."""
    store = MemoryStore()
    grow(store, 20)
    records = list(store.log(0, 1000))
    write_segment(tmp_path, records[:10])
    damaged = tmp_path / write_segment(tmp_path, records[10:]).file_name
    damage(damaged)
    whole = damaged.read_bytes()
    before = sorted(path.name for path in tmp_path.glob("facts-*"))
    with pytest.raises(StoreCorruptError, match=f"{damaged.name} cannot be read"):
        compact(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("facts-*")) == before
    assert damaged.read_bytes() == whole
