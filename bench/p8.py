"""P8: rows per second of Spark's source and sink, against an empty source and sink with the same rows.

With `--processor` by the second of processor time of everything that takes part, Spark's virtual machine and workers,
the broker and what it has beside it: that means something on a busy machine too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree

from pyspark.sql import DataFrame, SparkSession

from bench.emptyspark import Empty
from bench.figures import Goal, Pair, interleave, spread, summary
from bench.harness import ROOT, finish, note, options, pairs_table, temporary_store
from bench.processes import LEGATO, broker, load, processor_s_of_all
from legato.spark import start_session

SOURCE_GOAL, SINK_GOAL = 0.7, 0.5
QUEUE = "bench"
QUIET = 0.1
"""Seconds of processor time in a second, at most, if nothing goes on."""
QUIET_WAIT_S = 60
ROWS_IN_A_BATCH = 13_000
"""About as many messages of 256 bytes are in a frame of the broker."""


Clock = Callable[[], float]


class Sides:
    """What is measured: each returns rows a second.

    Args:
        url: the broker's; `count` messages wait in its queue `QUEUE`.
        clock: what tells the time, in seconds.
    """

    def __init__(
        self, spark: SparkSession, url: str, count: int, size: int, limit: int, scratch: Path, clock: Clock
    ) -> None:
        self._clock = clock
        self._spark = spark
        self._url = url
        self._count = count
        self._limit = limit
        self._scratch = scratch
        self._empty = {"count": count, "size": size, "rows": ROWS_IN_A_BATCH, "limit": limit}
        self._legato = {"url": url, "queue": QUEUE, "includeProperties": "false"}
        self._runs = 0

    def browse(self) -> float:
        """A batch of everything that waits."""
        return self._timed(lambda: _forget(self._spark.read.format("legato").options(**self._legato).load()))

    def browse_nothing(self) -> float:
        """The same rows from the empty source."""
        return self._timed(lambda: _forget(self._spark.read.format("empty").options(**self._empty).load()))

    def count_bare(self) -> float:
        """The same with one column, for which no message has to be read."""
        bare = self._legato | {"columns": "seq"}
        return self._timed(lambda: self._check(self._spark.read.format("legato").options(**bare).load().count()))

    def count_waiting(self) -> float:
        """How many wait: every row comes to Spark for it, with all of its columns."""
        whole = self._legato | {"includeProperties": "true"}
        return self._timed(lambda: self._check(self._spark.read.format("legato").options(**whole).load().count()))

    def _check(self, found: int) -> None:
        if found != self._count:
            raise RuntimeError(f"{found} rows were counted, of {self._count}")

    def consume(self) -> float:
        """A stream of everything that waits; by assignment, so that the queue has to be filled again."""
        self._runs += 1
        reader = self._spark.readStream.format("legato").options(**self._legato)
        reader = reader.option("subscription", f"bench-{self._runs}").option("maxOffsetsPerTrigger", self._limit)
        return self._timed(lambda: self._stream(reader.load()))

    def consume_nothing(self) -> float:
        """The same rows from the empty stream."""
        reader = self._spark.readStream.format("empty").options(**self._empty)
        return self._timed(lambda: self._stream(reader.load()))

    def write(self) -> float:
        """As many rows become messages."""
        return self._timed(lambda: self._save("legato", {"url": self._url, "queue": "written"}))

    def write_nothing(self) -> float:
        """The same rows to the empty sink."""
        return self._timed(lambda: self._save("empty", {}))

    def _save(self, sink: str, given: dict[str, str]) -> None:
        rows = self._spark.read.format("empty").options(**self._empty).load().select("body", "correlation_id")
        rows.write.format(sink).options(**given).mode("append").save()

    def _stream(self, rows: DataFrame) -> None:
        checkpoint = self._scratch / "checkpoint"
        rmtree(checkpoint, ignore_errors=True)
        query = (
            rows.writeStream.format("noop")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def _timed(self, work: Callable[[], None]) -> float:
        _await_quiet()
        began = self._clock()
        work()
        return self._count / (self._clock() - began)


def _await_quiet() -> None:
    """Until what was done before is over for everybody: the ledger's process follows what was stored."""
    before = processor_s_of_all()
    for _ in range(QUIET_WAIT_S):
        time.sleep(1)
        now = processor_s_of_all()
        if now - before < QUIET:
            return
        before = now


def _forget(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def main() -> None:
    """Command line."""
    parser = options(__doc__, count=1_000_000)
    parser.add_argument("--limit", type=int, default=100_000, help="rows of a micro-batch")
    parser.add_argument("--processor", action="store_true", help="count by processor time")
    given = parser.parse_args()
    # Spark's workers import what is measured beside them.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    spark = start_session("legato-p8", master="local[2]", minutes=True)
    spark.dataSource.register(Empty)
    measured: dict[str, list[Pair]] = {}
    with temporary_store() as base, broker(LEGATO, base / "store") as running:
        url = f"amqp://127.0.0.1:{running.port}"
        sides = Sides(
            spark,
            url,
            given.count,
            given.size,
            given.limit,
            base,
            processor_s_of_all if given.processor else time.monotonic,
        )
        load("send", running.port, given.count, given.size)
        sides.browse_nothing(), sides.browse()  # Until the JVM is warm.
        measured["batch source"] = interleave(sides.browse, sides.browse_nothing, given.pairs)
        note(pairs_table("browse", "empty", "rows/s", measured["batch source"]))
        counted = spread([sides.count_waiting() for _ in range(given.pairs)]).median
        bare = spread([sides.count_bare() for _ in range(given.pairs)]).median
        said = f"count() of {given.count:,} waiting messages: {given.count / counted:.2f} s, {counted:,.0f} rows/s; "
        said += f"of their column seq: {given.count / bare:.2f} s, {bare:,.0f} rows/s"
        note(said)
        streams = []
        for number in range(given.pairs):
            if number:
                load("send", running.port, given.count, given.size)
            streams.append(Pair(sides.consume(), sides.consume_nothing()))
        measured["stream source"] = streams
        note(pairs_table("consume", "empty", "rows/s", streams))
        measured["sink"] = interleave(sides.write, sides.write_nothing, given.pairs)
    goals = {"batch source": SOURCE_GOAL, "stream source": SOURCE_GOAL, "sink": SINK_GOAL}
    found = {name: summary(pairs, Goal(goals[name], at_least=True)) for name, pairs in measured.items()}
    text = "\n\n".join(f"{name}\n" + pairs_table("legato", "empty", "rows/s", each) for name, each in measured.items())
    text += f"\n\n{said}"
    worst = min(found, key=lambda name: float(str(found[name]["ratio"])) / goals[name])
    result = found[worst] | {
        "met": all(each["met"] for each in found.values()),
        "goal": f"sources {SOURCE_GOAL}, sink {SINK_GOAL} of an empty one",
        "unit": "rows/s of processor" if given.processor else "rows/s",
        "count": {
            "messages": given.count,
            "s": round(given.count / counted, 3),
            "bare_s": round(given.count / bare, 3),
        },
        "ratios": {name: each["ratio"] for name, each in found.items()},
        "sides": [f"Legato's {worst}", "an empty one"],
    }
    runs = {name: [[round(pair.figure), round(pair.peer)] for pair in pairs] for name, pairs in measured.items()}
    finish("P8", f"Spark's source and sink, {given.count:,} rows of {given.size} bytes", text, result, runs=[runs])


if __name__ == "__main__":
    main()
