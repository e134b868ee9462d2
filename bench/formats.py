"""Spark's formats `legato` and `kafka`, each with its own options for the same work, in a session with defaults."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.harness import ROOT

CORES = 2
DRIVER_MEMORY = "2g"


@dataclass(frozen=True)
class Format:
    """A format of Spark at a broker.

    Args:
        name: `legato` or `kafka`.
        address: the URL or the servers.
    """

    name: str
    address: str

    @property
    def key(self) -> str:
        """The column of a row's key."""
        return "correlation_id" if self.name == "legato" else "key"

    @property
    def value(self) -> str:
        """The column of a row's bytes."""
        return "body" if self.name == "legato" else "value"

    @property
    def number(self) -> str:
        """The expression that gives the number of a message that a load client sent at a steady rate."""
        return (
            "cast(substring(message_id, 4) as bigint)"
            if self.name == "legato"
            else "cast(cast(key as string) as bigint)"
        )

    def source(self, place: str) -> dict[str, str]:
        """Options to read a queue or topic from its beginning."""
        if self.name == "legato":
            return {"url": self.address, "queue": place}
        return {"kafka.bootstrap.servers": self.address, "subscribe": place}

    def stream(self, place: str, limit: int) -> dict[str, str]:
        """Options to read it as a stream, in batches of so many rows at most, 0 for any."""
        own = {"subscription": "bench"} if self.name == "legato" else {"startingOffsets": "earliest"}
        bound = {"maxOffsetsPerTrigger": str(limit)} if limit else {}
        return self.source(place) | own | bound

    def sink(self, place: str) -> dict[str, str]:
        """Options to write to it."""
        if self.name == "legato":
            return {"url": self.address, "queue": place}
        return {"kafka.bootstrap.servers": self.address, "topic": place}

    def outgoing(self, rows: DataFrame) -> DataFrame:
        """Rows of `key` and `value` with the columns that the sink wants."""
        return rows.selectExpr(f"key as {self.key}", f"value as {self.value}")


def settings(jars: Sequence[Path]) -> dict[str, str]:
    """Of a session: Spark's defaults, but for what keeps it quiet and small."""
    return {
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


@contextmanager
def session(jars: Sequence[Path]) -> Iterator[SparkSession]:
    """A session with both formats, stopped afterwards."""
    # Spark's workers are to have the packages of this Python.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("legato-f9")
    for name, value in settings(jars).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def make_rows(spark: SparkSession, path: Path, count: int, size: int, files: int) -> None:
    """A directory of Parquet with so many rows of a key and a value."""
    numbers = spark.range(0, count, 1, files)
    rows = numbers.selectExpr("cast(id as string) as key", f"cast(repeat('x', {size}) as binary) as value")
    rows.write.parquet(str(path))
