"""A ledger whose beginning was trimmed: its audit says since when it speaks, and calls nothing lost that is gone."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from legato.cli.ledger import seconds_of
from legato.cli.main import app
from legato.core.facts import DuplicateDropped, LogRecord, MessageConsumed
from legato.errors import ConfigError, StoreCorruptError
from legato.spark.auditor.audit import audit
from legato.spark.ledger.compaction import compact
from legato.spark.ledger.segments import SegmentSpan, exported_through, segments_of, why_incomplete, write_segment
from legato.spark.ledger.trimming import trim, trim_of, trimmed_of
from legato.spark.report.audit_terminal import print_audit
from legato.spark.result import POSITIONS_MISSING, AuditResult
from legato.spark.tables.coverage import complaints_of, trimmed_commits, trimmings_of
from legato.spark.tables.ledger_tables import LedgerTables
from tests.spark.history import WAITING, history, news_history

ALL = 1 << 62


def ledger_of(directory: Path, records: list[LogRecord], cut: int) -> Path:
    """A ledger of three segments: up to the cut, after it, and the last record alone."""
    directory.mkdir(exist_ok=True)
    numbered = list(enumerate(records, 1))
    for part in (numbered[:cut], numbered[cut:-1], numbered[-1:]):
        if part:
            write_segment(directory, part)
    return directory


def trimmed_at(directory: Path, records: list[LogRecord], cut: int) -> Path:
    ledger = ledger_of(directory, records, cut)
    assert trim(ledger, records[cut - 1].time_us + 1)
    return ledger


def cuts(places: Iterable[int], quick: int) -> list[Any]:
    """Where to cut; one of the places is tried before each merge."""
    return [pytest.param(cut, marks=() if cut == quick else pytest.mark.slow) for cut in places]


@pytest.mark.parametrize("cut", cuts([4, 6, 9, 12, len(history()) - 1], quick=9))
def test_an_audit_of_a_trimmed_ledger_finds_nothing_wrong(cut: int, spark: SparkSession, tmp_path: Path) -> None:
    """Wherever it was cut: messages stored before and consumed after, transactions, counters, numbers."""
    ledger = trimmed_at(tmp_path / "ledger", history(), cut)
    waiting = spark.createDataFrame(WAITING, "queue int, seq bigint")
    for result in (audit(ledger, spark), audit(ledger, spark, waiting)):
        assert [(check.name, check.examples) for check in result.failed] == []
        assert result.trimmed_us == history()[cut - 1].time_us
    assert {queue.name: queue.waiting for queue in result.queues if queue.waiting} == {"orders": 1, "DLQ": 1}


@pytest.mark.slow
@pytest.mark.parametrize("cut", cuts(range(3, len(news_history()), 4), quick=7))
def test_topics_and_schedules_may_be_trimmed_too(cut: int, spark: SparkSession, tmp_path: Path) -> None:
    before = {check.name for check in audit(ledger_of(tmp_path / "all", news_history(), 1), spark).failed}
    result = audit(trimmed_at(tmp_path / "ledger", news_history(), cut), spark)
    assert {check.name for check in result.failed} <= before


@pytest.mark.slow
def test_what_is_lost_afterwards_is_found_all_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Facts that are missing after the cut, and segments."""
    records = history()
    spoilt = [
        LogRecord(
            each.epoch, each.time_us, [f for f in each.facts if not (isinstance(f, MessageConsumed) and f.seq == 3)]
        )
        for each in records
    ]
    result = audit(trimmed_at(tmp_path / "facts", spoilt, 6), spark)
    assert {"records torn", "marks missed"} & {check.name for check in result.failed} or not result.passes
    ledger = trimmed_at(tmp_path / "segments", records, 6)
    segments_of(ledger)[1].unlink()
    assert not audit(ledger, spark).complete


@pytest.fixture(scope="module")
def trimmed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    """The audit of a trimmed ledger in which a message comes again whose first copy came before the cut."""
    records = history()
    last = records[-1]
    again = LogRecord(2, last.time_us, [DuplicateDropped(1, 1)])
    return audit(trimmed_at(tmp_path_factory.mktemp("trimmed") / "ledger", [*records[:-1], again, last], 12), spark)


def test_a_number_that_was_stored_before_the_cut_may_be_dropped_after_it(trimmed: AuditResult) -> None:
    assert [check.name for check in trimmed.failed] == []


def test_the_audit_says_from_when_on_it_speaks(trimmed: AuditResult, capsys: pytest.CaptureFixture[str]) -> None:
    print_audit(trimmed)
    assert "The ledger was trimmed: this audit speaks of what happened after 1970-01-01 00:16:40 UTC" in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.mark.slow
def test_a_ledger_may_be_trimmed_again_and_compacted(spark: SparkSession, tmp_path: Path) -> None:
    records = history()
    for position, record in enumerate(records, 1):
        write_segment(tmp_path, [(position, record)])
    for cut in (3, 6, 10):
        assert trim(tmp_path, records[cut - 1].time_us + 1)
        compact(tmp_path)
        found = trimmed_of(tmp_path)
        assert found is not None
        assert found.through == cut
        assert [check.name for check in audit(tmp_path, spark).failed] == []
        # Compaction made one segment of the rest, which is younger as a whole: it is divided for the next cut.
        for path in segments_of(tmp_path)[1:]:
            path.unlink()
        for position in range(cut + 1, len(records) + 1):
            write_segment(tmp_path, [(position, records[position - 1])])
    assert exported_through(tmp_path) == len(records)


def test_the_last_segment_stays_and_young_ones_too(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, history(), 6)
    assert trim_of(ledger, 0) is None
    found = trim_of(ledger, ALL)
    assert found is not None
    assert len(found.sources) == 2
    trim(ledger, ALL)
    assert [path.name for path in segments_of(ledger)] == [
        SegmentSpan(1, len(history()) - 1).file_name,
        SegmentSpan(len(history()), len(history())).file_name,
    ]
    assert trim(ledger, ALL) is None


def test_a_ledger_with_a_gap_is_not_trimmed(tmp_path: Path) -> None:
    for position, record in enumerate(history(), 1):
        if position != 3:
            write_segment(tmp_path, [(position, record)])
    with pytest.raises(StoreCorruptError, match=r"The commits 3-3 are missing .* nothing is trimmed"):
        trim(tmp_path, ALL)


def test_a_ledger_that_begins_later_is_trimmed_and_stays_incomplete(spark: SparkSession, tmp_path: Path) -> None:
    """That of a broker whose store is a copy of another's: it was never trimmed, and filled the disk."""
    records = history()
    for position, record in enumerate(records[4:], 5):
        write_segment(tmp_path, [(position, record)])

    def missing() -> list[Any]:
        (check,) = (check for check in audit(tmp_path, spark).failed if check.name == POSITIONS_MISSING)
        return [(row["first_missing"], row["last_missing"]) for row in check.examples]

    assert missing() == [(1, 4)]
    for cut in (7, 10):
        arguments = ["ledger", "trim", str(tmp_path), "--keep", "30d", "--yes"]
        assert trim(tmp_path, records[cut - 1].time_us + 1)
        assert segments_of(tmp_path)[0].name == SegmentSpan(5, cut).file_name
        assert missing() == [(1, 4)]
    told = CliRunner().invoke(app, arguments)
    assert "begins with commit 5" in told.stderr
    assert "what waited then is kept" in told.stdout


@pytest.mark.slow
def test_a_trim_killed_at_any_step_is_done_or_not(tmp_path: Path) -> None:
    from tests.unit.spark.test_compaction import killed_at, rows_of

    step, states = 0, set()
    while True:
        step += 1
        ledger = ledger_of(tmp_path / str(step), history(), 6)
        before = rows_of(ledger)
        was_killed = killed_at(ledger, step, f"trimming.trim(ledger, {ALL})")
        is_trimmed = trimmed_of(ledger) is not None
        assert is_trimmed or rows_of(ledger) == before
        states.add(is_trimmed)
        trim(ledger, ALL)
        assert trimmed_of(ledger)
        assert len(list(ledger.glob("facts-*"))) == 2
        if not was_killed:
            break
    assert states == {True, False}


def test_the_command_asks_and_can_be_tried(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, history(), 6)
    tried = CliRunner().invoke(app, ["ledger", "trim", str(ledger), "--keep", "30d", "--dry-run"])
    assert tried.exit_code == 0
    assert "would delete" in tried.stdout
    assert trimmed_of(ledger) is None
    unasked = CliRunner().invoke(app, ["ledger", "trim", str(ledger), "--keep", "30d"])
    assert isinstance(unasked.exception, ConfigError)
    done = CliRunner().invoke(app, ["ledger", "trim", str(ledger), "--keep", "30d", "--yes"])
    assert "what waited then is kept" in done.stdout
    assert "nothing to do" in CliRunner().invoke(app, ["ledger", "trim", str(ledger), "--keep", "30d"]).stdout
    wrong = CliRunner().invoke(app, ["ledger", "trim", str(ledger), "--keep", "soon"])
    assert wrong.exit_code == 2


def test_lengths_of_time_are_read() -> None:
    assert [seconds_of(text) for text in ("30d", "12 h", "90m", "1.5w")] == [2_592_000, 43_200, 5400, 907_200]


@pytest.mark.parametrize("first", [1, 4])
def test_tables_say_what_was_trimmed_before_they_took_it_over(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """It counted as taken over; what waited for it stayed open. The ledger of a store that is a copy begins later."""
    monkeypatch.setattr(LedgerTables, "write_views", lambda _: None)
    ledger, tables = tmp_path / "ledger", tmp_path / "tables"
    ledger.mkdir()
    numbered = list(enumerate(history(), 1))
    write_segment(ledger, numbered[first - 1 : 6])
    LedgerTables(spark, str(ledger), tables).run_once()
    assert trimmings_of(tables) == []
    assert "trimmed" not in why_incomplete(ledger)
    before = complaints_of(tables)
    assert bool(before) == (first > 1)
    write_segment(ledger, numbered[6:9])
    write_segment(ledger, numbered[9:])
    assert trim(ledger, ALL)
    LedgerTables(spark, str(ledger), tables).run_once()
    assert complaints_of(tables) == before
    assert trimmed_commits(tables) == [SegmentSpan(7, 9)]
    assert "trimmed through commit 9" in why_incomplete(ledger)
    monkeypatch.setattr("legato.spark.runtime.session.start_session", lambda *_, **__: spark)
    new = str(tmp_path / "new")
    run = CliRunner().invoke(app, ["ledger", "run", str(ledger), new, "--once"])
    assert run.exit_code == bool(before)
    assert "The tables begin after commit 9" in " ".join(run.stderr.split())
    run = CliRunner().invoke(app, ["ledger", "run", str(ledger), str(tables), "--once"])
    assert "Commits 7-9 were trimmed from the ledger before the tables took them over" in " ".join(run.stderr.split())
