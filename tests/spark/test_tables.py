"""The ledger's tables, made portion by portion, say what one look at the whole ledger says."""

import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from legato.cli.main import app
from legato.core.facts import AnyFact, EpochBegan, EpochEnded, LogRecord, MessageStored, QueueCreated, RunStored
from legato.errors import ConfigError, StoreCorruptError
from legato.ids import txn_counter
from legato.spark.auditor.audit import audit
from legato.spark.ledger.compaction import compact
from legato.spark.ledger.fact_frames import commits, read_ledger
from legato.spark.ledger.fact_schema import facts_table
from legato.spark.ledger.segments import SegmentSpan, write_rows, write_segment
from legato.spark.query.ledger_query import LedgerQuery
from legato.spark.summaries.message_summary_sql import lifecycle
from legato.spark.tables import delta
from legato.spark.tables.coverage import complaints_of
from legato.spark.tables.gold import ACTIVITY, NAMES, OF_MESSAGES, SETTLED, VIEWS
from legato.spark.tables.gold_tables import read_table, write_gold
from legato.spark.tables.ledger_tables import LedgerTables
from tests.spark.conftest import MakeFacts
from tests.spark.history import DEAD, INVOICES, ORDERS, SECOND_TXN, history, idle_takeover, ms_us
from tests.unit.spark.test_segments import damage

NUMBERED = list(enumerate(history(), 1))
CUTS = (0, 5, 8, len(NUMBERED))
"""Portions that part stored messages from what became of them."""


class WithoutViews(LedgerTables):
    """Its portions are taken over, and the views of gold made when they are asked for."""

    def write_views(self) -> None:
        pass


class Killed(WithoutViews):
    """It dies when all of a portion is written and Spark does not know it yet."""

    def _forget_open(self, batch: int) -> None:
        raise RuntimeError("killed")


class KilledHalfway(WithoutViews):
    """It dies when the messages of a portion are written, and not all that is made of them."""

    def _write(self, frame: DataFrame, table: str, batch: int, *partitions: str, **options: str) -> None:
        if table == f"parts/{OF_MESSAGES[-1].name}":
            raise RuntimeError("killed")
        super()._write(frame, table, batch, *partitions, **options)


class KilledUnrecorded(WithoutViews):
    """It dies when all of a portion is written, and nothing says of which segments."""

    def _write_messages(self, paths: Sequence[str], batch: int) -> None:
        super()._write_messages(paths, batch)
        raise RuntimeError("killed")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("ledger")
    return directory / "ledger", directory / "tables"


@pytest.fixture(scope="module")
def made(spark: SparkSession, places: tuple[Path, Path]) -> LedgerTables:
    """Tables of the history in three runs, of which the second is killed before Spark knows of it, and done again."""
    ledger, tables = places
    ledger.mkdir()
    for begin, end in pairwise(CUTS):
        write_segment(ledger, NUMBERED[begin:end])
        if begin == CUTS[1]:
            with pytest.raises(StreamingQueryException, match="killed"):
                Killed(spark, str(ledger), tables).run_once()
        WithoutViews(spark, str(ledger), tables).run_once()
    return LedgerTables(spark, str(ledger), tables)


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


@pytest.mark.slow
def test_silver_made_in_portions_is_silver_made_at_once(
    spark: SparkSession, made: LedgerTables, places: tuple[Path, Path]
) -> None:
    at_once = lifecycle(read_ledger(spark, places[0]))
    assert rows(made.silver().select(*at_once.columns)) == rows(at_once)
    third = made.silver().where(f"queue = {ORDERS} and seq = 3").collect()[0]
    said = third["producer"], third["sent_txn"], third["consumed_txn"], third["first_epoch"], third["last_epoch"]
    assert said == (1, None, txn_counter(SECOND_TXN), 1, 2)
    assert (third["first_delivered_us"], third["delivered_us"]) == (ms_us(305), ms_us(305))
    open_now = made.silver().where("open").select("queue", "seq")
    assert rows(open_now) == [(ORDERS, 6), (DEAD, 1)]


def test_segments_that_do_not_number_kinds_say_the_same(
    spark: SparkSession, places: tuple[Path, Path], made: LedgerTables, tmp_path: Path
) -> None:
    write_rows(facts_table(NUMBERED).drop_columns(["tag"]), tmp_path / SegmentSpan(1, len(NUMBERED)).file_name)
    former, now = read_ledger(spark, tmp_path), read_ledger(spark, places[0])
    assert former.where("tag is not null").count() == 0
    assert rows(lifecycle(former)) == rows(lifecycle(now))
    assert rows(commits(former)) == rows(commits(now))


@pytest.mark.slow
def test_a_ledger_that_only_spark_can_read_says_the_same(
    spark: SparkSession, made: LedgerTables, places: tuple[Path, Path], tmp_path: Path
) -> None:
    """As on HDFS or S3, here under another name that Hadoop gives a directory."""
    ledger = tmp_path / "ledger"
    ledger.mkdir()
    spark.conf.set("fs.viewfs.mounttable.elsewhere.link./ledger", ledger.as_uri())
    for begin, end in pairwise(CUTS):
        write_segment(ledger, NUMBERED[begin:end])
        WithoutViews(spark, "viewfs://elsewhere/ledger", tmp_path / "tables").run_once()
    elsewhere = LedgerTables(spark, "viewfs://elsewhere/ledger", tmp_path / "tables")
    columns = [name for name in made.silver().columns if name != "batch"]
    assert rows(elsewhere.silver().select(columns)) == rows(made.silver().select(columns))


def test_gold_counts_every_fact_once(made: LedgerTables) -> None:
    audit = {step.name: made.view(step) for step in VIEWS}
    columns = ("destination", "stored", "consumed", "dead_lettered", "returned", "left_twice")
    assert rows(audit["audit"].select(*columns)) == [
        ("DLQ", 1, 0, 0, 0, 0),
        ("invoices", 4, 4, 0, 0, 0),
        ("orders", 6, 4, 1, 1, 0),
    ]
    second = audit["failovers"].where("epoch = 2").collect()[0]
    assert (second["former_broker"], second["broker"], second["clean"]) == ("a", "b", False)
    assert (second["gap_ms"], second["serving_after_ms"], second["waiting_before"]) == (200.0, 200.0, 3)
    assert (second["how"], second["at_most"]) == ("crash", True)
    assert rows(audit["causes"].select("destination", "what", "cause", "messages")) == [
        ("orders", "dead-lettered", "poison", 1),
        ("orders", "redelivered", "rollback", 1),
    ]
    outcomes = audit["transactions"].select("outcome", "cause", "transactions", "received", "sent", "longest_ms")
    assert rows(outcomes) == [("committed", None, 2, 4, 4, 5.0), ("rolled back", "client", 1, 1, 0, None)]
    latencies = audit["latencies"].where("destination = 'orders' and stage = 'end to end'").collect()[0]
    assert (latencies["messages"], latencies["p50_ms"], latencies["longest_ms"]) == (4, 10.0, 300.0)


def test_gold_counts_the_bytes_that_a_sink_has_published(facts_of: MakeFacts) -> None:
    """They are said of all messages of a run together: the table had 0."""
    published: list[AnyFact] = [QueueCreated(1, "bills"), MessageStored(1, 1, 20, "ID:1"), RunStored(1, 2, 3, 60, 0, 0)]
    facts = facts_of([LogRecord(1, 1_000_000, [EpochBegan("one"), *published])])
    view = next(step for step in VIEWS if step.name == "audit")
    tables = {"activity": ACTIVITY.of(facts=facts), "names": NAMES.of(facts=facts)}
    account = view.of(**tables, settled=SETTLED.of(messages=lifecycle(facts)))
    assert rows(account.select("destination", "stored", "bytes")) == [("bills", 4, 80)]


def test_the_tables_can_be_asked_in_sql_without_spark(made: LedgerTables, places: tuple[Path, Path]) -> None:
    made.write_views()
    wanted = rows(made.silver().select("queue", "seq", "open", "stored_us", "batch"))
    with LedgerQuery(places[1]) as query:
        answer = query.table("select queue, seq, open, stored_us, batch from silver").to_pylist()
        ordered = query.table("select distinct destination, kind, queue from silver where not open order by 1")
        gold = query.table("select sum(stored) as stored from gold.audit").to_pylist()
    assert sorted((tuple(row.values()) for row in answer), key=repr) == wanted
    assert {"destination": "orders", "kind": "queue", "queue": ORDERS} in ordered.to_pylist()
    assert gold == [{"stored": read_table(made._spark, places[1], "audit").agg({"stored": "sum"}).collect()[0][0]}]


def test_gold_measures_an_outage_by_who_serves_not_by_who_sends(spark: SparkSession, tmp_path: Path) -> None:
    """After an idle switchover `serving_after_ms` was 46,000."""
    (ledger := tmp_path / "ledger").mkdir()
    records = idle_takeover(EpochEnded("switchover"), cause="switchover")
    write_segment(ledger, list(enumerate(records, 1)))
    tables = WithoutViews(spark, str(ledger), tmp_path / "tables")
    tables.run_once()
    view = next(step for step in VIEWS if step.name == "failovers")
    first, second = tables.view(view).collect()
    assert (first["how"], first["gap_ms"], first["at_most"]) == (None, None, False)
    said = second["how"], second["clean"], second["gap_ms"], second["serving_after_ms"], second["at_most"]
    assert said == ("switchover", True, 50.0, 71.0, False)


@pytest.mark.slow
def test_tables_of_a_ledger_with_a_segment_missing_say_so_first(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ledger := tmp_path / "ledger").mkdir()
    for begin, end in pairwise(CUTS):
        if begin != CUTS[1]:
            write_segment(ledger, NUMBERED[begin:end])
    monkeypatch.setattr("legato.spark.runtime.session.start_session", lambda *_, **__: spark)
    run = CliRunner().invoke(app, ["ledger", "run", str(ledger), str(tmp_path / "tables"), "--once"])
    assert run.exit_code == 1
    name = SegmentSpan(6, 8).file_name
    said = " ".join(run.stderr.split())
    assert "✗ The ledger is incomplete: commits 6-8 are missing." in said
    assert name in run.stderr.replace("\n", "")
    shown = CliRunner().invoke(app, ["ledger", "show", str(tmp_path / "tables")])
    assert "The ledger is incomplete" in shown.stderr
    write_segment(ledger, NUMBERED[CUTS[1] : CUTS[2]])
    LedgerTables(spark, str(ledger), tmp_path / "tables").run_once()
    assert complaints_of(tmp_path / "tables") == []


@pytest.mark.slow
def test_tables_of_a_compacted_ledger_count_nothing_twice(
    spark: SparkSession, made: LedgerTables, tmp_path: Path
) -> None:
    """A compacted segment is a new file to Spark, of which the tables have all, a part, or nothing."""
    ledger, tables = tmp_path / "ledger", tmp_path / "tables"
    ledger.mkdir()
    write_segment(ledger, NUMBERED[:3])
    write_segment(ledger, NUMBERED[3:6])
    WithoutViews(spark, str(ledger), tables).run_once()
    write_segment(ledger, NUMBERED[6:8])
    compact(ledger)
    with pytest.raises(StreamingQueryException, match="killed"):
        Killed(spark, str(ledger), tables).run_once()
    WithoutViews(spark, str(ledger), tables).run_once()
    write_segment(ledger, NUMBERED[8:])
    WithoutViews(spark, str(ledger), tables).run_once()
    compact(ledger)
    WithoutViews(spark, str(ledger), tables).run_once()
    again = LedgerTables(spark, str(ledger), tables)
    columns = [name for name in made.silver().columns if name != "batch"]
    assert rows(again.silver().select(columns)) == rows(made.silver().select(columns))
    assert rows(again.part("activity").drop("batch").where("kind = 'MessageStored'")) == rows(
        made.part("activity").drop("batch").where("kind = 'MessageStored'")
    )
    assert complaints_of(tables) == []
    assert not (tables / "cut").exists()


@pytest.mark.slow
@pytest.mark.parametrize("killed", [KilledHalfway, KilledUnrecorded, Killed])
def test_what_was_written_of_a_portion_before_a_kill_and_a_compaction_is_not_counted_too(
    killed: type[LedgerTables], spark: SparkSession, made: LedgerTables, tmp_path: Path
) -> None:
    """All segments of the portion are in a compacted one when it is made again: it is another portion's then."""
    ledger, tables = tmp_path / "ledger", tmp_path / "tables"
    ledger.mkdir()
    write_segment(ledger, NUMBERED[:3])
    WithoutViews(spark, str(ledger), tables).run_once()
    write_segment(ledger, NUMBERED[3:6])
    write_segment(ledger, NUMBERED[6:])
    with pytest.raises(StreamingQueryException, match="killed"):
        killed(spark, str(ledger), tables).run_once()
    compact(ledger)
    again = LedgerTables(spark, str(ledger), tables)
    again.run_once()
    columns = [name for name in made.silver().columns if name != "batch"]
    assert rows(again.silver().select(columns)) == rows(made.silver().select(columns))
    stored = "kind = 'MessageStored'"
    assert rows(again.part("activity").drop("batch").where(stored).groupBy("queue").sum("facts")) == rows(
        made.part("activity").drop("batch").where(stored).groupBy("queue").sum("facts")
    )
    with LedgerQuery(tables) as query:
        assert query.table("from silver").num_rows == made.silver().count()
    assert complaints_of(tables) == []


@pytest.mark.slow
def test_an_audit_of_a_compacted_ledger_says_the_same(spark: SparkSession, tmp_path: Path) -> None:
    for begin in range(0, len(NUMBERED), 2):
        write_segment(tmp_path, NUMBERED[begin : begin + 2])
    before = audit(tmp_path, spark)
    compact(tmp_path)
    after = audit(tmp_path, spark)
    differs = {field for field in before.__struct_fields__ if getattr(before, field) != getattr(after, field)}
    assert differs <= {"seconds"}, differs


def test_a_run_without_news_changes_nothing(made: LedgerTables) -> None:
    before = made.last_batch()
    made.run_once()
    assert made.last_batch() == before
    assert made.silver().count() == 11


def test_a_continuous_run_takes_over_what_comes_until_it_is_stopped(
    spark: SparkSession, made: LedgerTables, places: tuple[Path, Path]
) -> None:
    ledger, tables = places
    before = made.last_batch()
    write_segment(ledger, [(len(NUMBERED) + 1, LogRecord(2, 1, []))])

    def stopped(wait_s: float) -> bool:
        time.sleep(wait_s)
        return made.last_batch() > before and (tables / "gold" / "audit" / "_SUCCESS").exists()

    made.run(0.1, stopped)
    assert made.last_batch() == before + 1
    assert made.silver().where("open").count() == 2, "what was open is carried along"


def test_a_ledger_that_is_not_there_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no ledger"):
        LedgerTables(spark, str(tmp_path / "none"), tmp_path)


def test_a_segment_that_is_not_whole_stops_a_run_until_it_is_mended(spark: SparkSession, tmp_path: Path) -> None:
    ledger, tables = tmp_path / "ledger", tmp_path / "tables"
    ledger.mkdir()
    segment = ledger / write_segment(ledger, NUMBERED).file_name
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-100])
    with pytest.raises(StoreCorruptError, match=f"{segment.name} cannot be read"):
        WithoutViews(spark, str(ledger), tables).run_once()
    with pytest.raises(StoreCorruptError, match=r"\w\. Bring it back"):
        audit(ledger, spark)
    segment.write_bytes(whole)
    damage(segment)
    with pytest.raises(StoreCorruptError, match=f"{segment.name} cannot be read"):
        audit(ledger, spark)
    with pytest.raises(Exception, match=r"(?i)checksum"):
        read_ledger(spark, ledger).collect()
    segment.write_bytes(whole)
    made = WithoutViews(spark, str(ledger), tables)
    made.run_once()
    assert made.silver().count() == 11


def test_the_queues_of_the_history_are_those_of_the_test() -> None:
    assert {ORDERS, INVOICES, DEAD} == {1, 2, 3}


@pytest.mark.slow
def test_delta_tables_hold_what_the_parquet_tables_hold_and_each_portion_once(
    spark: SparkSession, made: LedgerTables, tmp_path: Path
) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed (pip install 'legato[delta]')")
    ledger, tables = tmp_path / "ledger", tmp_path / "tables"
    ledger.mkdir()
    for begin, end in pairwise(CUTS):
        write_segment(ledger, NUMBERED[begin:end])
        if begin == CUTS[1]:
            # All is committed to the table when it dies: done again, the portion adds nothing.
            with pytest.raises(StreamingQueryException, match="killed"):
                Killed(spark, str(ledger), tables, table_format="delta").run_once()
        tables_of = LedgerTables if end == CUTS[-1] else WithoutViews
        tables_of(spark, str(ledger), tables, table_format="delta").run_once()
    silver = deltalake.DeltaTable(tables / "silver")
    assert silver.transaction_version(delta.APPLICATION) == 2
    assert silver.version() == 3, "it was made, and committed to three times"
    places = [(row["queue"], row["seq"], row["open"]) for row in silver.to_pyarrow_table().to_pylist()]
    assert sorted(places) == sorted((row["queue"], row["seq"], row["open"]) for row in made.silver().collect())
    for step in VIEWS:
        assert rows(read_table(spark, tables, step.name)) == rows(made.view(step)), step.name


def test_a_table_of_gold_is_there_until_the_next_one_is_whole(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's `overwrite` removes it first: who asked meanwhile, or after a crash, found none."""
    path = tmp_path / "gold" / "audit"
    spark.range(2).coalesce(1).write.parquet(str(path))  # as former versions wrote it
    write_gold(spark.range(3), path, 0, as_delta=False)
    with pytest.raises(PySparkException, match="cut short"):
        write_gold(spark.range(1).selectExpr("raise_error('cut short') as id"), path, 1, as_delta=False)
    assert rows(read_table(spark, tmp_path, "audit")) == [(0,), (1,), (2,)]
    write_gold(spark.range(5, 6), path, 1, as_delta=False)
    assert rows(read_table(spark, tmp_path, "audit")) == [(5,)]
    assert {file.name for file in path.iterdir()} == {"part-00000.parquet", "_SUCCESS"}


def test_a_table_of_gold_that_is_not_there_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there are audit"):
        read_table(spark, tmp_path, "none")
    with pytest.raises(ConfigError, match="no tables"):
        read_table(spark, tmp_path, "audit")


def test_tables_are_where_they_were_asked_for_whoever_writes_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Python processes of a cluster work in directories of their own: `./tables` was another one there."""
    (ledger := tmp_path / "ledger").mkdir()
    write_segment(ledger, NUMBERED)
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    made = WithoutViews(spark, str(ledger), Path("tables"))
    monkeypatch.chdir(tmp_path / "there")
    made.run_once()
    assert list((tmp_path / "here" / "tables" / "silver").glob("*/*/*.parquet"))
    assert not list((tmp_path / "there").iterdir())


def test_tables_where_a_file_is_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Spark said `ParentNotDirectoryException`."""
    (tmp_path / "ledger").mkdir()
    (tmp_path / "tables").write_text("")
    with pytest.raises(ConfigError, match="tables is a file"):
        LedgerTables(spark, str(tmp_path / "ledger"), tmp_path / "tables")


def test_tables_in_the_ledger_itself_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    (ledger := tmp_path / "ledger").mkdir()
    for tables in (ledger, ledger / "tables", ledger / ".." / "ledger" / "tables"):
        with pytest.raises(ConfigError, match="put the tables into a directory beside it"):
            LedgerTables(spark, str(ledger), tables)
    LedgerTables(spark, str(ledger), tmp_path / "ledger-tables")
