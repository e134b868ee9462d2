"""The ledger's tables on disk, brought up to date by Structured Streaming, each segment exactly once.

    TABLES/checkpoint           what Spark has read
    TABLES/silver/batch=N       a row a message: settled ones (`open=false`), and what waits after them (`open=true`)
    TABLES/parts/NAME/batch=N   the steps of `gold.py` for the portion
    TABLES/gold/NAME            the views of `gold.py` over all portions
    TABLES/coverage             of which segments the portions are made
    TABLES/cut                  parts of compacted segments, while a portion is made of them

1. What is streamed are the names of segments, not rows: each query then reads only the columns and kinds that it needs.
2. A portion is written under its number. Done again after a crash, it replaces what was there: nothing counts twice.
3. Messages that are open are carried from portion to portion: a run costs its facts and what waits, not the history.
4. As Delta tables, silver and gold are the same files and what is made of them, committed to a log (`delta.py`).
"""

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import IntegerType, StructField, StructType

from legato.errors import ConfigError, StoreCorruptError
from legato.spark.ledger.compaction import by_kind, read_rows
from legato.spark.ledger.fact_frames import read_segments
from legato.spark.ledger.segments import being_read, live, refuse_unreadable, trimmed_by, write_rows
from legato.spark.runtime.session import SMALL_QUERY_SETTINGS, on, session_like
from legato.spark.runtime.thresholds import INTERPRET_TABLES_BYTES_MAX
from legato.spark.summaries import silver_writer
from legato.spark.summaries.message_summary import MESSAGES_SCHEMA
from legato.spark.summaries.message_summary_sql import OPEN, added_up, messages, tallied, tallies
from legato.spark.tables import delta, flow_tables
from legato.spark.tables.coverage import forget_coverage, note_coverage, spans_before, without
from legato.spark.tables.gold import BRONZE, OF_FACTS, OF_MESSAGES, VIEWS, Step
from legato.spark.tables.gold_tables import write_gold
from legato.store.segment_names import SegmentSpan, span_of

SEGMENTS_PER_BATCH = 500
"""Bounds the memory of a portion: at most a quarter of a million rows are in a segment."""

_AT_ONCE = 3
"""Queries under way."""

TableFormat = Literal["parquet", "delta"]

_SILVER_PARTITIONS = {"batch": pa.int32(), "open": pa.bool_()}

_LOCAL_FILES_SETTINGS = {
    # To look at some hundred files of this machine takes less time than a job that does.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
}
"""Settings where the ledger is a directory of this machine."""

_MESSAGES_SETTINGS = {
    # Each message is a group of its own: a small first map for frequent ones is looked into for nothing.
    "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
    # A task's messages should fit into the processor's memory.
    "spark.sql.files.maxPartitionBytes": str(2 << 20),
    # Open and settled messages are written side by side: to sort them first costs a fifth of the writing.
    "spark.sql.maxConcurrentOutputFileWriters": "4",
}
"""Settings of the query that makes a row of each message."""

_NUMBERS = {"parquet.writer.version": "v2", "parquet.enable.dictionary": "false"}
"""How silver is written: numbers that mostly differ from row to row are packed as differences, not looked up."""

_CUT = "cut"
"""Where parts of segments are for as long as a portion is made of them."""

_SEGMENT_NAMES = "path string, modificationTime timestamp, length bigint, content binary"


class LedgerTables:
    """The tables made of a ledger.

    Args:
        spark: a session.
        ledger: directory of the segments, as Spark names it.
        tables: directory of the tables; it is made if need be.
        segments_per_batch: most segments in a portion.
        keep_bronze: copy the facts too, into `TABLES/bronze`: the segments may then be deleted.
        table_format: what silver and gold are; as Delta tables they need a directory of this machine's.

    Raises:
        ConfigError: there is no such ledger, nowhere for tables, or what the format needs is not installed.
    """

    def __init__(
        self,
        spark: SparkSession,
        ledger: str,
        tables: Path,
        *,
        segments_per_batch: int = SEGMENTS_PER_BATCH,
        keep_bronze: bool = False,
        table_format: TableFormat = "parquet",
    ) -> None:
        if "://" not in ledger and not Path(ledger).is_dir():
            raise ConfigError(f"no ledger in {ledger}")
        if tables.exists() and not tables.is_dir():
            raise ConfigError(f"{tables} is a file. The tables need a directory, which is made if there is none.")
        if "://" not in ledger and tables.resolve().is_relative_to(Path(ledger).resolve()):
            # What is cut from segments, and is called like one, would be read as a part of the ledger.
            raise ConfigError(f"{tables} is in the ledger {ledger}: put the tables into a directory beside it.")
        if table_format == "delta":
            delta.require_delta()
        self._delta = table_format == "delta"
        self._spark = spark = session_like(spark, {} if "://" in ledger else _LOCAL_FILES_SETTINGS)
        self._small = session_like(spark, SMALL_QUERY_SETTINGS)
        self._of_messages = session_like(spark, _MESSAGES_SETTINGS)
        self._ledger = ledger
        self._tables = tables.absolute()  # Tasks write there too, and work in directories of their own.
        self._segments_per_batch = segments_per_batch
        self._keep_bronze = keep_bronze
        self._unreadable: StoreCorruptError | None = None
        """What ended the query."""
        self._schemas: dict[str, StructType] = {}
        """Of what steps write, as far as is known: to ask the files is a job for each."""

    def run_once(self) -> None:
        """Take over all that the ledger holds now, and bring the views up to date.

        Raises:
            StoreCorruptError: a segment is not whole; what came before it is taken over.
        """
        self._await(self._query().trigger(availableNow=True).start())
        self.write_views()

    def run(self, every_s: float, stopped: Callable[[float], bool]) -> None:
        """Take over what comes, every so many seconds, until `stopped`, which waits for at most its argument."""
        query = self._query().trigger(processingTime=f"{every_s} seconds").start()
        shown = -1
        while not stopped(every_s):
            if not query.isActive:
                self._await(query)
            if self.last_batch() != shown:
                shown = self.last_batch()
                self.write_views()
        query.stop()

    def _await(self, query: StreamingQuery) -> None:
        try:
            query.awaitTermination()
        except StreamingQueryException:
            if self._unreadable is not None:
                raise self._unreadable from None
            raise

    def _query(self) -> DataStreamWriter:
        segments = (
            self._spark.readStream.format("binaryFile")
            .schema(_SEGMENT_NAMES)
            .option("pathGlobFilter", "facts-*.parquet")
            .option("recursiveFileLookup", "true")
            .option("maxFilesPerTrigger", str(self._segments_per_batch))
            .option("maxFileAge", "36500d")
            # Compaction may remove what is listed; what it held comes in a new file.
            .option("ignoreMissingFiles", "true")
            .load(self._ledger)
            .select("path")
        )
        writer = segments.writeStream.option("checkpointLocation", str(self._tables / "checkpoint"))
        return writer.foreachBatch(self._take_over)

    def _take_over(self, segments: DataFrame, batch: int) -> None:
        with being_read(self._ledger):
            self._take_over_paths([row["path"] for row in segments.collect()], batch)
        shutil.rmtree(self._tables / _CUT, ignore_errors=True)

    def _take_over_paths(self, paths: list[str], batch: int) -> None:
        trimmed: list[SegmentSpan] = []
        if files := _files(paths):
            paths, trimmed = self._not_taken_over(files, batch)
        self._refuse_unreadable(paths)
        if self._delta and delta.committed(self._tables / "silver") >= batch:
            return
        self._forget(batch)
        if not paths:
            return
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            # One is planned while another is computed.
            of_facts = pool.submit(self._write_facts, paths, batch)
            self._write_messages(paths, batch)
            of_facts.result()
        note_coverage(self._tables, batch, paths, trimmed)
        if flow_tables.any_flows(self._tables, batch):
            facts = read_segments(self._spark, paths)
            silver = self._silver(self._spark, batch)
            flow_tables.take_over(self._tables, batch, self._before(batch), facts, self.part("names"), silver)
        if self._delta:
            delta.commit_files(self._tables / "silver", batch, self._silver_files(batch), _SILVER_PARTITIONS)
        self._forget_open(batch)

    def _forget(self, batch: int) -> None:
        """Remove what was written of a portion before this process was killed.

        The segments that it was made of may be in a compacted one by now, which is another portion's: what were left
        of it here would be there twice.
        """
        # From here on it counts as cut short.
        (self._tables / "parts" / OF_MESSAGES[-1].name / f"batch={batch}" / "_SUCCESS").unlink(missing_ok=True)
        for tables in (self._tables, self._tables / "parts"):
            for written in tables.glob(f"*/batch={batch}"):
                shutil.rmtree(written)
        forget_coverage(self._tables, batch)

    def _not_taken_over(self, files: Sequence[Path], batch: int) -> tuple[list[str], list[SegmentSpan]]:
        """The files, without what earlier portions have: a compacted segment may hold that again, under a new name.

        What is gone meanwhile is in a compacted segment, which is new to Spark too.

        Returns:
            Their paths, and the positions in them of which only what a trimming left is there.
        """
        taken = spans_before(self._tables, batch)
        found = {span: file for file in files if file.exists() and (span := span_of(file.name)) is not None}
        paths: list[str] = []
        trimmed: list[SegmentSpan] = []
        begin = min((span.first for span in (*taken, *found)), default=1)
        for span in live(found):
            left = without(span, taken)
            if left and span.first == begin:  # Only a ledger's first segment is one that a trimming left.
                self._refuse_unreadable([_spark_path(found[span])])
                trimmed = left if trimmed_by(found[span]) is not None else []
            if left == [span]:
                paths.append(_spark_path(found[span]))
            elif left:
                self._refuse_unreadable([_spark_path(found[span])])
                paths += [_spark_path(self._cut(found[span], part)) for part in left]
        return paths, trimmed

    def _cut(self, file: Path, span: SegmentSpan) -> Path:
        """Some positions of a segment, as a segment."""
        rows = read_rows(file)
        position = rows.column("position")
        within = pc.and_(pc.greater_equal(position, span.first), pc.less_equal(position, span.last))
        (self._tables / _CUT).mkdir(parents=True, exist_ok=True)
        cut = self._tables / _CUT / span.file_name
        write_rows(by_kind(rows.filter(within)), cut)
        return cut

    def _refuse_unreadable(self, paths: Sequence[str]) -> None:
        try:
            refuse_unreadable(_files(paths))
        except StoreCorruptError as error:
            # Spark makes something else of it.
            self._unreadable = error
            raise

    def _write_facts(self, paths: Sequence[str], batch: int) -> None:
        """The steps that ask facts, and bronze."""
        facts = BRONZE.of(segments=read_segments(self._spark, paths))
        if self._keep_bronze:
            self._write(facts, "bronze", batch)
        for step in OF_FACTS:
            self._write(step.of(facts=facts).coalesce(1), f"parts/{step.name}", batch)

    def _write_messages(self, paths: Sequence[str], batch: int) -> None:
        """Silver, and the steps that ask what is settled in it."""
        if files := _files(paths):
            before = self._silver_path(self._before(batch)) / silver_writer.OPEN
            try:
                silver_writer.write_silver(
                    files, sorted(before.glob("*.parquet")), self._silver_path(batch), on(self._spark)
                )
            except StoreCorruptError as error:
                self._unreadable = error
                raise
        else:
            self._write_silver(paths, batch)
        settled = self._silver(self._spark, batch).where("not open")
        for step in OF_MESSAGES:
            self._write(step.of(messages=settled).coalesce(1), f"parts/{step.name}", batch)

    def _write_silver(self, paths: Sequence[str], batch: int) -> None:
        """Of segments that tasks cannot read by themselves, but Spark can."""
        every = tallies(read_segments(self._of_messages, paths))
        before = self._open_after(self._before(batch))
        if before is not None:
            every = every.unionByName(tallied(before))
        silver = messages(added_up(every)).selectExpr("*", f"{OPEN} as open")
        self._write(silver, "silver", batch, "open", **_NUMBERS)

    def _silver_files(self, batch: int) -> Iterator[Path]:
        """What is settled in all portions up to this one, and what is open after it."""
        for number in {*(each for each in self._batches() if each < batch), batch}:
            yield from (self._silver_path(number) / silver_writer.CLOSED).glob("*.parquet")
            if number == batch:
                yield from (self._silver_path(number) / silver_writer.OPEN).glob("*.parquet")

    def _silver_path(self, batch: int) -> Path:
        return self._tables / "silver" / f"batch={batch}"

    def _write(self, frame: DataFrame, table: str, batch: int, *partitions: str, **options: str) -> None:
        writer = frame.write.mode("overwrite").options(compression="zstd", **options)
        writer.partitionBy(*partitions).parquet(str(self._tables / table / f"batch={batch}"))

    def _silver(self, session: SparkSession, batch: int | None = None) -> DataFrame:
        """What was written for a portion, or for all."""
        path = self._tables / "silver" if batch is None else self._silver_path(batch)
        columns = f"{MESSAGES_SCHEMA}, {'batch int, ' if batch is None else ''}open string"
        return session.read.schema(columns).parquet(str(path)).withColumn("open", F.expr("open = 'true'"))

    def _before(self, batch: int) -> int:
        return max((number for number in self._batches() if number < batch), default=-1)

    def last_batch(self) -> int:
        """The number of the last portion that was taken over, -1 if none was."""
        return max(self._batches(), default=-1)

    def _batches(self) -> list[int]:
        """Portions whose last part is there: a portion that was cut short does not count."""
        last = self._tables / "parts" / OF_MESSAGES[-1].name
        return [int(path.parent.name.removeprefix("batch=")) for path in last.glob("batch=*/_SUCCESS")]

    def _open_after(self, batch: int) -> DataFrame | None:
        return self._silver(self._of_messages, batch).where("open") if batch >= 0 else None

    def _forget_open(self, batch: int) -> None:
        """What was open before the portion before this one is never asked for again."""
        for number in self._batches():
            if number < self._before(batch):
                shutil.rmtree(self._silver_path(number) / silver_writer.OPEN, ignore_errors=True)

    def silver(self) -> DataFrame:
        """One row for each message: all that are settled, and those that were open after the last portion.

        Raises:
            ConfigError: nothing was taken over yet.
        """
        last = self.last_batch()
        if last < 0:
            raise ConfigError(f"no tables in {self._tables}: `legato ledger run` makes them")
        return self._silver(self._spark).where(f"not open or batch = {last}")

    def part(self, name: str, session: SparkSession | None = None) -> DataFrame:
        """What a step wrote for all portions together."""
        reader = (session or self._spark).read
        part = self._tables / "parts" / name
        if name not in self._schemas:
            # The last portion has all columns; former versions wrote fewer.
            last = reader.parquet(str(part / f"batch={self.last_batch()}")).schema
            self._schemas[name] = StructType([*last, StructField("batch", IntegerType())])
        return reader.schema(self._schemas[name]).parquet(str(part)).where(f"batch <= {self.last_batch()}")

    def view(self, step: Step) -> DataFrame:
        """A table of gold, as of the last portion."""
        files = (self._tables / "parts").glob("*/batch=*/*.parquet")
        session = (
            self._small if sum(file.stat().st_size for file in files) < INTERPRET_TABLES_BYTES_MAX else self._spark
        )
        return step.of(**{name: self.part(name, session) for name in step.inputs})

    def write_views(self) -> None:
        """Bring the tables of gold up to date."""
        last = self.last_batch()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for done in [pool.submit(self._write_view, step, last) for step in VIEWS if last >= 0]:
                done.result()
        if (self._tables / "parts" / flow_tables.PARTS[-1]).is_dir():
            self._write_gold(flow_tables.NAME, flow_tables.view(self.part), last)

    def _write_view(self, step: Step, batch: int) -> None:
        if not all((self._tables / "parts" / name / f"batch={batch}").is_dir() for name in step.inputs):
            return  # The last portion is a former version's, which did not have this table.
        self._write_gold(step.name, self.view(step), batch)

    def _write_gold(self, name: str, table: DataFrame, batch: int) -> None:
        write_gold(table, self._tables / "gold" / name, batch, as_delta=self._delta)


def _files(paths: Sequence[str]) -> list[Path]:
    """Those that are files of this machine, in the order of the log, or none if some are not."""
    if not all(path.startswith("file:") for path in paths):
        return []
    return sorted(Path(re.sub("^file:(//)?", "", path)) for path in paths)


def _spark_path(file: Path) -> str:
    """A file of this machine as Spark names it: in its paths nothing is escaped, as it would be in a URL."""
    return f"file:{file.absolute()}"
