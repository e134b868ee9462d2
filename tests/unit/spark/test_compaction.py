"""Compaction of a ledger: fewer segments that say the same, whatever moment it dies at. No Spark, no JVM."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tools.count_independently import Count, count_ledger, read_segments
from typer.testing import CliRunner, Result

from legato.cli.main import app
from legato.core.facts import AnyFact, LogRecord, MessageStored
from legato.errors import ConfigError, StoreCorruptError, StoreFormatError
from legato.spark.exporter import Exporter
from legato.spark.ledger.compaction import compact, merges_of, read_rows
from legato.spark.ledger.segments import SegmentSpan, being_read, exported_through, segments_of, spans, write_segment
from legato.spark.ledger.trimming import trim
from legato.spark.query.ledger_query import LedgerQuery
from legato.store.memory import MemoryStore
from tests.spark.history import history, news_history
from tests.support.small_disk import small_disk
from tests.unit.spark.test_segments import grow, seqs_in

DISK_BYTES = 4 << 20
ROOM_BYTES = 8 << 10
RECORDS = [*history(), *history()]


def ledger_of(directory: Path, records: list[LogRecord] = RECORDS, each: int = 3) -> Path:
    directory.mkdir(exist_ok=True, parents=True)
    numbered = list(enumerate(records, 1))
    for begin in range(0, len(numbered), each):
        write_segment(directory, numbered[begin : begin + each])
    return directory


def rows_of(ledger: Path) -> list[dict[str, Any]]:
    """What readers see, in the order of the log."""
    rows = [row for segment in segments_of(ledger) for row in read_rows(segment).to_pylist()]
    return sorted(rows, key=lambda row: repr((row["position"], row["ordinal"] or 0, row)))


def counted(ledger: Path) -> list[str]:
    count = Count()
    count_ledger(read_segments(ledger), set(), count)
    return [*count.lines, *count.wrong]


@pytest.mark.parametrize("records", [RECORDS, news_history()], ids=["queues", "topics"])
def test_a_compacted_ledger_says_the_same(records: list[LogRecord], tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, records)
    before, said, last = rows_of(ledger), counted(ledger), exported_through(ledger)
    done = compact(ledger)
    assert (done.files_before, done.files_after) == (-(-len(records) // 3), 1)
    assert len(list(ledger.glob("*.parquet"))) == 1
    assert rows_of(ledger) == before
    assert counted(ledger) == said
    assert exported_through(ledger) == last
    assert compact(ledger).files_after == 1, "again it has nothing to do"


def test_segments_stay_below_a_number_of_rows(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    before = rows_of(ledger)
    compact(ledger, rows_max=40)
    assert 1 < len(segments_of(ledger)) < 10
    assert max(pq.read_metadata(segment).num_rows for segment in segments_of(ledger)) <= 40
    assert rows_of(ledger) == before


def test_kinds_are_row_groups_of_their_own_in_a_large_segment(tmp_path: Path) -> None:
    for begin in (0, 15_000):
        facts: list[AnyFact] = [MessageStored(1, seq, 4, f"ID:{seq}") for seq in range(begin, begin + 15_000)]
        write_segment(tmp_path, [(begin + 1, LogRecord(1, 1, facts)), (begin + 2, LogRecord(1, 1, []))])
        if not begin:
            (tmp_path / SegmentSpan(1, 2).file_name).rename(tmp_path / SegmentSpan(1, 15_000).file_name)
    compact(tmp_path)
    (segment,) = segments_of(tmp_path)
    metadata = pq.read_metadata(segment)
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [30_000, 2]


def test_a_segment_of_a_former_version_gets_today_s_columns(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    before = rows_of(ledger)
    segment = segments_of(ledger)[0]
    table = pq.read_table(segment)
    pq.write_table(table.select(table.column_names[: table.column_names.index("group_id")]).drop(["paused"]), segment)
    compact(ledger)
    assert rows_of(ledger) == before


def test_a_gap_in_the_log_stays_one(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    segments_of(ledger)[3].unlink()
    compact(ledger)
    assert sorted(spans(ledger)) == [SegmentSpan(1, 9), SegmentSpan(13, len(RECORDS))]


def test_a_segment_that_is_not_whole_stops_it_before_anything_is_changed(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    broken = segments_of(ledger)[4]
    broken.write_bytes(broken.read_bytes()[:-20])
    names = sorted(os.listdir(ledger))
    with pytest.raises(StoreCorruptError, match=broken.name):
        compact(ledger)
    assert sorted({*os.listdir(ledger)} - {"_compactor.lock"}) == names


KILLED = """
import os, signal, sys
from pathlib import Path

left = int(sys.argv[2])

def counted(function):
    def call(*arguments, **options):
        global left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return call

import pyarrow.parquet
from legato.spark.ledger import compaction, segments, trimming

ledger = Path(sys.argv[1])
for name in ("replace", "unlink", "fsync", "utime", "open"):
    setattr(os, name, counted(getattr(os, name)))
pyarrow.parquet.ParquetWriter.write_table = counted(pyarrow.parquet.ParquetWriter.write_table)
Path.unlink = counted(Path.unlink)
exec(sys.argv[3])
"""


def killed_at(ledger: Path, step: int, work: str) -> bool:
    """Do the work in a process that is killed before its Nth call to the system; whether it was."""
    process = subprocess.run([sys.executable, "-c", KILLED, str(ledger), str(step), work], check=False)
    assert process.returncode in (0, -signal.SIGKILL)
    return process.returncode != 0


@pytest.mark.slow
def test_a_compaction_killed_at_any_step_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Each step in turn: readers see the same after it, the next one finishes, an exporter goes on meanwhile."""
    step = 0
    while True:
        step += 1
        ledger = ledger_of(tmp_path / str(step), history(), each=5)
        before = rows_of(ledger)
        was_killed = killed_at(ledger, step, "compaction.compact(ledger)")
        assert rows_of(ledger) == before, f"killed before step {step}"
        with LedgerQuery(ledger) as query:
            assert query.table("select count(*) as n from facts").to_pylist() == [{"n": len(before)}]
        assert exported_through(ledger) == len(history())
        compact(ledger)
        assert rows_of(ledger) == before
        assert [path.name for path in ledger.iterdir() if path.name.startswith((".", "facts"))] == [
            SegmentSpan(1, len(history())).file_name
        ]
        if not was_killed:
            break
    assert step > 10, "it has so many steps"


@pytest.mark.parametrize("change", [compact, lambda ledger: trim(ledger, 1 << 62)], ids=["compact", "trim"])
def test_one_that_fails_on_a_full_disk_leaves_the_room_that_it_found(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    """The store is on that disk, too, mostly: what a compaction had written kept it full."""
    with small_disk(tmp_path / "disk", DISK_BYTES) as disk:
        ledger = ledger_of(disk.path / "ledger")
        disk.fill()
        disk.leave(ROOM_BYTES)
        names = {path.name for path in ledger.iterdir()}
        with pytest.raises(OSError, match="No space left"):
            change(ledger)
        left = {path.name for path in ledger.iterdir()} - names
        assert {name for name in left if not name.endswith(".lock")} == set()


def test_an_exporter_goes_on_after_and_beside_a_compaction(tmp_path: Path) -> None:
    store = MemoryStore()
    grow(store, 2)
    exporter = Exporter(store, tmp_path)
    for _ in range(4):
        grow(store, 2)
        exporter.finish(0.0)
    compact(tmp_path)
    last = grow(store, 2)
    exporter.finish(0.0)
    assert exported_through(tmp_path) == last
    grow(store, 1)
    Exporter(store, tmp_path).finish(0.0)
    assert seqs_in(tmp_path) == list(range(1, 14))
    compact(tmp_path)
    assert seqs_in(tmp_path) == list(range(1, 14))
    assert len(segments_of(tmp_path)) == 1


def test_files_go_when_nobody_reads_them(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    old = segments_of(ledger)
    told: list[str] = []
    waits = threading.Event()

    def tell(line: str) -> None:
        told.append(line)
        waits.set()

    with being_read(ledger), being_read(ledger):
        work = threading.Thread(target=compact, args=(ledger,), kwargs={"tell": tell})
        work.start()
        assert waits.wait(60)
        assert "waiting for an audit or a query that reads the ledger" in told
        assert all(path.exists() for path in old)
    work.join()
    assert len(segments_of(ledger)) == 1


def test_a_query_goes_on_over_a_compaction(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    with LedgerQuery(ledger) as query:
        work = threading.Thread(target=compact, args=(ledger,))
        work.start()
        assert query.table("select count(*) as n from facts").to_pylist() == [{"n": len(rows_of(ledger))}]
    work.join()
    assert len(segments_of(ledger)) == 1


def test_two_compactions_at_once_are_one_and_an_error(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    errors: list[str] = []

    def meanwhile(_line: str) -> None:
        try:
            compact(ledger)
        except ConfigError as error:
            errors.append(str(error))

    compact(ledger, tell=meanwhile)
    assert errors == [f"Another compaction or trim of {ledger} is at work: let it finish."]


def of_a_newer_version(table: pa.Table, what: str) -> pa.Table:
    if what == "columns":
        return table.append_column("flavour", pa.array(["sweet"] * len(table)))
    kinds = table.column("kind").cast(pa.string()).to_pylist()
    kinds[-1] = "MessageTasted"
    return table.set_column(table.schema.get_field_index("kind"), "kind", pa.array(kinds).dictionary_encode())


@pytest.mark.parametrize(("what", "name"), [("columns", "flavour"), ("facts", "MessageTasted")])
@pytest.mark.parametrize("change", [compact, lambda ledger: trim(ledger, 1 << 62)], ids=["compact", "trim"])
def test_a_segment_of_a_newer_version_is_left_as_it_is(
    what: str, name: str, change: Callable[[Path], object], tmp_path: Path
) -> None:
    """What this version does not know went with the segments that it was in."""
    ledger = ledger_of(tmp_path)
    second = segments_of(ledger)[1]
    pq.write_table(of_a_newer_version(pq.read_table(second, partitioning=None), what), second)
    before = {path.name: path.read_bytes() for path in ledger.glob("*.parquet")}
    with pytest.raises(StoreFormatError, match=rf"{second.name} has {what} that this .* does not know \({name}\)"):
        change(ledger)
    assert {path.name: path.read_bytes() for path in ledger.glob("*.parquet")} == before


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["ledger", *map(str, arguments)])


def test_the_command_asks_and_can_be_tried(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    tried = run("compact", ledger, "--dry-run")
    assert tried.exit_code == 0
    assert tried.stdout.startswith(f"would make 1 segment of 10 in {ledger}")
    assert len(merges_of(ledger)) == 1
    unasked = run("compact", ledger)
    assert "add --yes to do so, or --dry-run" in str(unasked.exception)
    done = run("compact", ledger, "--yes")
    assert done.exit_code == 0, done.output
    assert "10 segments became 1" in done.stdout
    assert "nothing to do" in run("compact", ledger, "--yes").stdout
    assert "There is no directory" in str(run("compact", tmp_path / "none", "--yes").exception)
