"""The ledger's tables on disk, brought up to date by Structured Streaming, each segment exactly once.

    TABLES/checkpoint           what Spark has read
    TABLES/silver/batch=N       a row a message: settled ones (`open=false`), and what waits after them (`open=true`)
    TABLES/parts/NAME/batch=N   the steps of `gold.py` for the portion
    TABLES/gold/NAME            the views of `gold.py` over all portions

1. What is streamed are the names of segments, not rows: each query then reads only the columns and kinds that it needs.
2. A portion is written under its number. Done again after a crash, it replaces what was there: nothing counts twice.
3. Messages that are open are carried from portion to portion: a run costs its facts and what waits, not the history.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from legato.errors import ConfigError
from legato.spark.gold import BRONZE, OF_FACTS, OF_MESSAGES, VIEWS, Step, inputs
from legato.spark.ledger import read_segments
from legato.spark.messages import MESSAGES_SCHEMA, OPEN, added_up, messages, tallied, tallies

SEGMENTS_PER_BATCH = 500
"""Bounds the memory of a portion: at most a quarter of a million rows are in a segment."""

_SEGMENT_NAMES = "path string, modificationTime timestamp, length bigint, content binary"


class LedgerTables:
    """The tables made of a ledger.

    Args:
        spark: a session.
        ledger: directory of the segments, as Spark names it.
        tables: directory of the tables; it is made if need be.
        segments_per_batch: most segments in a portion.
        keep_bronze: copy the facts too, into `TABLES/bronze`: the segments may then be deleted.

    Raises:
        ConfigError: there is no such ledger.
    """

    def __init__(
        self,
        spark: SparkSession,
        ledger: str,
        tables: Path,
        *,
        segments_per_batch: int = SEGMENTS_PER_BATCH,
        keep_bronze: bool = False,
    ) -> None:
        if "://" not in ledger and not Path(ledger).is_dir():
            raise ConfigError(f"no ledger in {ledger}")
        self._spark = spark
        self._ledger = ledger
        self._tables = tables
        self._segments_per_batch = segments_per_batch
        self._keep_bronze = keep_bronze

    def run_once(self) -> None:
        """Take over all that the ledger holds now, and bring the views up to date."""
        self._query().trigger(availableNow=True).start().awaitTermination()
        self.write_views()

    def run(self, every_s: float, stopped: Callable[[float], bool]) -> None:
        """Take over what comes, every so many seconds, until `stopped`, which waits for at most its argument."""
        query = self._query().trigger(processingTime=f"{every_s} seconds").start()
        shown = -1
        while not stopped(every_s):
            if not query.isActive:
                query.awaitTermination()
            if self.last_batch() != shown:
                shown = self.last_batch()
                self.write_views()
        query.stop()

    def _query(self) -> DataStreamWriter:
        segments = (
            self._spark.readStream.format("binaryFile")
            .schema(_SEGMENT_NAMES)
            .option("pathGlobFilter", "facts-*.parquet")
            .option("recursiveFileLookup", "true")
            .option("maxFilesPerTrigger", str(self._segments_per_batch))
            .option("maxFileAge", "36500d")
            .load(self._ledger)
            .select("path")
        )
        writer = segments.writeStream.option("checkpointLocation", str(self._tables / "checkpoint"))
        return writer.foreachBatch(self._take_over)

    def _take_over(self, segments: DataFrame, batch: int) -> None:
        paths = [row["path"] for row in segments.collect()]
        if not paths:
            return
        facts = BRONZE.of(segments=read_segments(self._spark, paths))
        if self._keep_bronze:
            self._write(facts, "bronze", batch)
        every = tallies(facts)
        before = self._open_after(self._before(batch))
        if before is not None:
            every = every.unionByName(tallied(before))
        self._write(messages(added_up(every)).selectExpr("*", f"{OPEN} as open"), "silver", batch, "open")
        settled = self._silver(batch).where("not open")
        for steps, name, source in ((OF_FACTS, "facts", facts), (OF_MESSAGES, "messages", settled)):
            for step in steps:
                self._write(step.of(**{name: source}).coalesce(1), f"parts/{step.name}", batch)
        self._forget_open(batch)

    def _write(self, frame: DataFrame, table: str, batch: int, *partitions: str) -> None:
        writer = frame.write.mode("overwrite").option("compression", "zstd")
        writer.partitionBy(*partitions).parquet(str(self._tables / table / f"batch={batch}"))

    def _silver(self, batch: int | None = None) -> DataFrame:
        """What was written for a portion, or for all."""
        path = self._tables / "silver" / ("" if batch is None else f"batch={batch}")
        columns = f"{MESSAGES_SCHEMA}, {'batch int, ' if batch is None else ''}open string"
        return self._spark.read.schema(columns).parquet(str(path)).withColumn("open", F.expr("open = 'true'"))

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
        return self._silver(batch).where("open") if batch >= 0 else None

    def _forget_open(self, batch: int) -> None:
        """What was open before the portion before this one is never asked for again."""
        for number in self._batches():
            if number < self._before(batch):
                shutil.rmtree(self._tables / "silver" / f"batch={number}" / "open=true", ignore_errors=True)

    def silver(self) -> DataFrame:
        """One row for each message: all that are settled, and those that were open after the last portion.

        Raises:
            ConfigError: nothing was taken over yet.
        """
        last = self.last_batch()
        if last < 0:
            raise ConfigError(f"no tables in {self._tables}: `legato ledger run` makes them")
        return self._silver().where(f"not open or batch = {last}")

    def part(self, name: str) -> DataFrame:
        """What a step wrote for all portions together."""
        return self._spark.read.parquet(str(self._tables / "parts" / name)).where(f"batch <= {self.last_batch()}")

    def view(self, step: Step) -> DataFrame:
        """A table of gold, as of the last portion."""
        return step.of(**{name: self.part(name) for name in inputs(step)})

    def write_views(self) -> None:
        """Bring the tables of gold up to date."""
        if self.last_batch() >= 0:
            for step in VIEWS:
                path = str(self._tables / "gold" / step.name)
                self.view(step).coalesce(1).write.mode("overwrite").parquet(path)
