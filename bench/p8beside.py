"""P1 while Spark reads another queue of the same broker, against P1 while Spark reads as many rows of an empty source.

Spark takes most of a small machine for itself, whatever it reads: what the broker loses by being read shows against
rows that cost nothing. P1 with no Spark beside it is shown too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree

from pyspark.sql import DataFrame, SparkSession

from bench.emptyspark import Empty
from bench.figures import Goal, Pair, interleave, spread
from bench.harness import ROOT, finish_pairs, note, options, table, temporary_store
from bench.p1 import WARM_UP
from bench.processes import LEGATO, Broker, broker, load, send_and_receive
from legato.spark import start_session
from legato.spark.connector.requests import Requests

GOAL = 0.85
QUEUE = "beside"
SPARE_S = 30
"""So long the rows last that a stream finds waiting."""


class Beside:
    """Measures P1 at a broker, with streams beside it that take so many rows a second."""

    def __init__(self, spark: SparkSession, running: Broker, scratch: Path, count: int, size: int, rate: int) -> None:
        self._spark = spark
        self._running = running
        self._scratch = scratch
        self._count = count
        self._size = size
        self._rate = rate
        self._requests = Requests(f"amqp://127.0.0.1:{running.port}")
        self.rows: dict[str, list[float]] = {"legato": [], "empty": []}
        """How many rows a second Spark did read, in each run."""

    def alone(self) -> float:
        """Messages a second with no Spark at work."""
        return send_and_receive(self._running.port, self._count, self._size)

    def beside_legato(self) -> float:
        """Messages a second while Spark reads from this broker."""
        missing = self._rate * SPARE_S - self._waiting()
        if missing > 0:
            load("send", self._running.port, missing, self._size, "--address", QUEUE)
        reader = self._spark.readStream.format("legato").option("url", f"amqp://127.0.0.1:{self._running.port}")
        reader = reader.option("queue", QUEUE).option("subscription", "beside").option("includeProperties", "false")
        with self._reading("legato", reader.option("maxOffsetsPerTrigger", self._rate).load()):
            return self.alone()

    def beside_nothing(self) -> float:
        """Messages a second while Spark reads rows that cost nothing."""
        given = {"count": self._rate * 1000, "size": self._size, "rows": 13_000, "limit": self._rate}
        with self._reading("empty", self._spark.readStream.format("empty").options(**given).load()):
            return self.alone()

    def _waiting(self) -> int:
        found = self._requests.ask("query", "queue", match=QUEUE)["results"]
        return sum(int(row["depth"]) for row in found)

    @contextmanager
    def _reading(self, name: str, rows: DataFrame) -> Iterator[None]:
        checkpoint = self._scratch / f"checkpoint-{name}"
        if name == "empty":
            rmtree(checkpoint, ignore_errors=True)
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query = writer.trigger(processingTime="1 second").start()
        try:
            while not query.recentProgress:
                query.awaitTermination(1)
            before = len(query.recentProgress)
            yield
            batches = query.recentProgress[before:]
        finally:
            query.stop()
        lasted_ms = sum(max(each.durationMs["triggerExecution"], 1000) for each in batches)
        rate = 1000 * sum(each.numInputRows for each in batches) / max(lasted_ms, 1)
        self.rows[name].append(rate)
        note(f"beside {name}: Spark read {rate:,.0f} rows/s")


def main() -> None:
    """Command line."""
    # Of a shorter run chance decides whether two or three of the batches begin in it.
    parser = options(__doc__, count=300_000)
    parser.add_argument("--rate", type=int, default=40_000, help="rows that Spark reads in a second")
    given = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    spark = start_session("legato-p8beside", master="local[2]", minutes=True)
    spark.dataSource.register(Empty)
    with temporary_store() as base, broker(LEGATO, base / "store") as running:
        sides = Beside(spark, running, base, given.count, given.size, given.rate)
        send_and_receive(running.port, WARM_UP, given.size)
        pairs: list[Pair] = interleave(sides.beside_legato, sides.beside_nothing, given.pairs)
        alone = spread([sides.alone() for _ in range(given.pairs)])
    rows = {name: spread(rates).median for name, rates in sides.rows.items()}
    remark = table(
        ["medians", "P1, msg/s", "Spark, rows/s"],
        [
            ["alone", alone.median, 0],
            ["Spark reads here", spread([pair.figure for pair in pairs]).median, rows["legato"]],
            ["Spark reads nothing", spread([pair.peer for pair in pairs]).median, rows["empty"]],
        ],
    )
    finish_pairs(
        "P8BESIDE",
        f"P1 while Spark reads {given.rate:,} rows/s from the same broker, against as many from nowhere",
        ("beside Legato", "beside empty"),
        pairs,
        Goal(GOAL, at_least=True),
        unit="msg/s",
        remark=remark,
        alone=round(alone.median),
        spark_rows_per_s={name: round(rate) for name, rate in rows.items()},
    )


if __name__ == "__main__":
    main()
