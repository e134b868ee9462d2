"""F9: Spark's `format("legato")` beside its `format("kafka")` on a Kafka node, in one warm session of two cores.

Streams read (into `noop` with all columns, into Parquet), batches read and written, streams written, the latency from a
send to its row in the driver, and the first batch of a fresh driver. Kafka confirms from memory, or with `--fsync` from
disk, as Legato always does.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench import kafka
from bench.beside import LEGATO_NAME, Aim, Outcome, conclude
from bench.figures import Goal, Pair, percentile
from bench.formats import Format, make_rows, session
from bench.harness import note, options, temporary_store
from bench.processes import LEGATO, RAW, broker, processor_s_of_all, processor_s_of_family, start

BATCHES = 10
"""Of a stream's run."""
SKIPPED = 0.4
"""Share of the messages before a latency counts: until batches are as long as they will be."""
ARRIVAL_S = 120.0
FIRST_BATCH_MAX_S = 5.0
ROWS_OF_FIRST_BATCH = 1000
STREAM_GOAL = Goal(1.0, at_least=True)
LATENCY_GOAL = Goal(1.1, at_least=False)
FIRST_GOAL = Goal(1.0, at_least=False)
SENDER = kafka.JAVA / "KafkaRate.java"


@dataclass(frozen=True)
class Side:
    """A format, and the process whose time is not to be counted while it works: the other's broker."""

    format: Format
    other_pid: int

    def processor_s(self) -> float:
        """Of Spark and of this side's broker."""
        return processor_s_of_all() - processor_s_of_family(self.other_pid)


@dataclass(frozen=True)
class Run:
    """Rows a second, and processor time for each, of Spark and of the side's broker."""

    rate: float
    processor_us: float


class Work:
    """What is measured, without what goes before it."""

    def __init__(self, spark: SparkSession, scratch: Path, count: int, size: int) -> None:
        self._spark = spark
        self._scratch = scratch
        self._count = count
        self._size = size
        self._names = (f"run-{number}" for number in itertools.count(1))
        self.rows = scratch / "rows"
        make_rows(spark, self.rows, count, size, BATCHES)

    def fill(self, side: Side, place: str) -> None:
        """Write all rows there, as a batch."""
        rows = side.format.outgoing(self._spark.read.parquet(str(self.rows)))
        rows.write.format(side.format.name).options(**side.format.sink(place)).mode("append").save()

    def write_batch(self, side: Side) -> Run:
        """A batch of all rows."""
        place = next(self._names)
        return self._timed(side, lambda: self.fill(side, place))

    def count_batch(self, side: Side) -> Run:
        """How many there are, with all columns."""
        return self._timed(side, lambda: self._check(self._waiting(side).count()))

    def sum_batch(self, side: Side) -> Run:
        """The length of all bodies as text."""
        length = f"sum(length(cast({side.format.value} as string))) as length"

        def work() -> None:
            found = self._waiting(side).selectExpr(length).collect()[0]["length"]
            self._check(found // self._size)

        return self._timed(side, work)

    def _waiting(self, side: Side) -> DataFrame:
        return self._spark.read.format(side.format.name).options(**side.format.source("waiting")).load()

    def write_stream(self, side: Side) -> Run:
        """A stream of all rows, in ten batches."""
        place = next(self._names)
        rows = self._spark.readStream.schema("key string, value binary").option("maxFilesPerTrigger", 1)
        outgoing = side.format.outgoing(rows.parquet(str(self.rows)))
        return self._timed(side, lambda: self._stream(outgoing, side.format.name, side.format.sink(place)))

    def read_stream(self, side: Side) -> Run:
        """A stream of all rows with all columns into nothing, in ten batches."""
        rows = self._stream_of(side)
        return self._timed(side, lambda: self._stream(rows, "noop", {}))

    def read_into_parquet(self, side: Side) -> Run:
        """A stream of all rows' keys, times and bodies into Parquet."""
        rows = self._stream_of(side).select(side.format.key, "timestamp", side.format.value)
        target = {"path": str(self._scratch / next(self._names))}
        return self._timed(side, lambda: self._stream(rows, "parquet", target))

    def _stream_of(self, side: Side) -> DataFrame:
        """Legato's stream consumes what it reads: its queue is filled before. Kafka's topic is read again."""
        place = "waiting"
        if side.format.name == "legato":
            place = next(self._names)
            self.fill(side, place)
        given = side.format.stream(place, self._count // BATCHES)
        return self._spark.readStream.format(side.format.name).options(**given).load()

    def _stream(self, rows: DataFrame, sink: str, given: dict[str, str]) -> None:
        writer = rows.writeStream.format(sink).options(**given)
        checkpoint = str(self._scratch / "checkpoints" / next(self._names))
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        self._check(sum(progress["numInputRows"] for progress in query.recentProgress))

    def _check(self, found: int) -> None:
        if found != self._count:
            raise RuntimeError(f"{found} rows came, of {self._count}")

    def _timed(self, side: Side, work: Callable[[], None]) -> Run:
        before_s, began = side.processor_s(), time.monotonic()
        work()
        took, spent_s = time.monotonic() - began, side.processor_s() - before_s
        return Run(self._count / took, spent_s / self._count * 1e6)

    def latency_ms(self, side: Side, rate: int, seconds: float) -> tuple[float, float]:
        """The median and the 99th percentile from the instant a send was due to its row in the driver."""
        place, count = next(self._names), round(rate * seconds)
        arrived: list[tuple[float, list[int]]] = []

        def take(batch: DataFrame, _number: int) -> None:
            numbers = [row[0] for row in batch.selectExpr(side.format.number).collect()]
            arrived.append((time.monotonic(), numbers))

        sender = start(sender_of(side.format, place, rate, count, self._size), stdin=subprocess.PIPE)
        assert sender.stdin is not None
        assert sender.stdout is not None
        query = None
        try:
            if sender.stdout.readline().strip() != "ready":
                raise RuntimeError(f"the sender for {side.format.name} ended with code {sender.wait()}")
            rows = self._spark.readStream.format(side.format.name).options(**side.format.stream(place, 0)).load()
            writer = rows.writeStream.foreachBatch(take).trigger(processingTime="0 seconds")
            query = writer.option("checkpointLocation", str(self._scratch / "checkpoints" / place)).start()
            while not (query.lastProgress or query.exception()):
                time.sleep(0.1)
            if (error := query.exception()) is not None:
                raise RuntimeError(f"the stream of {side.format.name} failed") from error
            sender.stdin.write("\n")
            sender.stdin.flush()
            began = json.loads(sender.stdout.readline())["started"]
            deadline = time.monotonic() + seconds + ARRIVAL_S
            while sum(len(numbers) for _, numbers in arrived) < count and time.monotonic() < deadline:
                time.sleep(0.1)
            if sender.wait(ARRIVAL_S):
                raise RuntimeError(f"the sender for {side.format.name} failed")
        finally:
            sender.kill()
            if query is not None:
                query.stop()
        return spread_of(arrived, began, rate, count)


def sender_of(target: Format, place: str, rate: int, count: int, size: int) -> list[str]:
    """The command line of what sends at a steady rate; it prints when it began."""
    common = [str(rate), str(count), str(size)]
    if target.name == "kafka":
        jars = ":".join(map(str, kafka.jars(kafka.BROKER)))
        return ["java", "-cp", jars, str(SENDER), target.address, place, *common]
    port = target.address.rpartition(":")[2]
    command = [sys.executable, "-m", RAW, "latency", "--port", port, "--address", place]
    return [*command, *itertools.chain(*zip(("--rate", "--count", "--size"), common, strict=True))]


def spread_of(arrived: Sequence[tuple[float, list[int]]], began: float, rate: int, count: int) -> tuple[float, float]:
    """Median and 99th percentile, in ms, of what arrived; each message exactly once.

    Raises:
        RuntimeError: one is missing, or came twice.
    """
    if sorted(number for _, numbers in arrived for number in numbers) != list(range(count)):
        raise RuntimeError(f"{sum(len(numbers) for _, numbers in arrived)} rows came, not each of {count} once")
    found = [
        (at - began - number / rate) * 1000
        for at, numbers in arrived
        for number in numbers
        if number >= count * SKIPPED
    ]
    return percentile(found, 50), percentile(found, 99)


@dataclass(frozen=True)
class Rate:
    """A case that gives rows a second."""

    name: str
    run: Callable[[Side], Run]
    goal: Goal | None


def rates(work: Work) -> list[Rate]:
    """All cases that give rows a second; what has no goal in the issue has none here."""
    return [
        Rate("stream read, noop, all columns", work.read_stream, STREAM_GOAL),
        Rate("stream read into Parquet", work.read_into_parquet, STREAM_GOAL),
        Rate("batch read, count()", work.count_batch, None),
        Rate("batch read, lengths of bodies", work.sum_batch, None),
        Rate("batch write", work.write_batch, None),
        Rate("stream write", work.write_stream, None),
    ]


def compare(case: Rate, own: Side, peer: Side, pairs: int, peer_name: str) -> Outcome:
    """Warm both with a run, then run them in turn."""
    case.run(own), case.run(peer)
    outcome = Outcome(case.name, Aim("rows/s", case.goal), peer=peer_name)
    for _ in range(pairs):
        runs = []
        for side in (own, peer):
            runs.append(run := case.run(side))
            note(
                f"{case.name}, {side.format.name}: {run.rate:,.0f} rows/s; {run.processor_us:.2f} us of processor time"
            )
        outcome.pairs.append(Pair(*(run.rate for run in runs)))
        outcome.processor_us.append(Pair(*(run.processor_us for run in runs)))
    return outcome


def first_batch(target: Format, rows: Path, scratch: Path, jars: Sequence[Path]) -> tuple[float, float]:
    """Seconds until a fresh driver has written its first batch, without the start of its session; its processor time.

    The processor time is of the driver, its JVM and its workers, and the steadier figure on a busy machine.
    """
    place = f"first-{time.monotonic_ns()}"
    command = [sys.executable, "-m", "bench.firstbatch", target.name, "--address", target.address, "--place", place]
    command += ["--rows", str(rows), "--checkpoint", str(scratch / place), "--jars", ",".join(map(str, jars))]
    process = start(command)
    said, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"the driver for {target.name} ended with code {process.returncode}")
    found = json.loads(said.splitlines()[-1])
    took, spent = found["s"], found["processor_s"]
    note(f"first batch of a fresh driver, {target.name}: {took:.1f} s; {spent:.1f} s of processor time")
    return took, spent


def latencies(work: Work, own: Side, peer: Side, given: argparse.Namespace, peer_name: str) -> list[Outcome]:
    """The case of latency; the 99th percentile has no goal."""
    name = f"latency at {given.rate:,} rows a second"
    outcomes = [
        Outcome(f"{name}, p50", Aim("ms", LATENCY_GOAL), peer=peer_name),
        Outcome(f"{name}, p99", Aim("ms", None), peer=peer_name),
    ]
    for _ in range(given.pairs):
        found = [work.latency_ms(side, given.rate, given.seconds) for side in (own, peer)]
        note(f"{name}: p50 {found[0][0]:.0f} and {found[1][0]:.0f} ms, p99 {found[0][1]:.0f} and {found[1][1]:.0f} ms")
        for outcome, figure, of_peer in zip(outcomes, *found, strict=True):
            outcome.pairs.append(Pair(figure, of_peer))
    return outcomes


def first_batches(
    own: Format, peer: Format, scratch: Path, rows: Path, jars: Sequence[Path], pairs: int, peer_name: str
) -> list[Outcome]:
    """The case of a fresh driver: its bound is five seconds; Kafka's time is only told."""
    name = "first batch of a fresh driver"
    bound = Outcome(f"{name}, against its bound", Aim("s", FIRST_GOAL), peer=f"{FIRST_BATCH_MAX_S:g} s")
    beside = Outcome(name, Aim("s", None), peer=peer_name)
    spent = Outcome(f"{name}, processor time", Aim("s", None), peer=peer_name)
    for _ in range(pairs):
        (took, own_s), (of_peer, peer_s) = (first_batch(side, rows, scratch, jars) for side in (own, peer))
        bound.pairs.append(Pair(took, FIRST_BATCH_MAX_S))
        beside.pairs.append(Pair(took, of_peer))
        spent.pairs.append(Pair(own_s, peer_s))
    return [bound, beside, spent]


def main() -> None:
    """Command line; exit code 2 where Kafka cannot run."""
    parser = options(__doc__, count=1_000_000)
    parser.add_argument("--only", default="", help="only the cases whose name has this in it")
    parser.add_argument("--fsync", action="store_true", help="Kafka writes to disk before it confirms")
    parser.add_argument("--rate", type=int, default=5000, help="rows a second, for the latency")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long messages are sent, for the latency")
    given = parser.parse_args()
    try:
        jars = kafka.connector_jars()
        versions = {
            "kafka": kafka.release(kafka.BROKER, "kafka_2.13"),
            "spark-sql-kafka": kafka.release(kafka.CONNECTOR, "spark-sql-kafka-0-10_2.13"),
        }
    except kafka.KafkaAbsent as absent:
        print(absent, file=sys.stderr)
        sys.exit(2)
    peer_name = f"Kafka {versions['kafka']}" + (" with fsync" if given.fsync else "")
    outcomes: list[Outcome] = []
    with (
        temporary_store() as scratch,
        kafka.node(scratch / "kafka", fsync=given.fsync) as node,
        broker(LEGATO, scratch / "legato") as running,
        session(jars) as spark,
    ):
        own = Side(Format("legato", f"amqp://127.0.0.1:{running.port}"), node.pid)
        peer = Side(Format("kafka", node.servers), running.process.pid)
        work = Work(spark, scratch, given.count, given.size)
        for side in (own, peer):
            work.fill(side, "waiting")
        for case in rates(work):
            if given.only in case.name:
                outcomes.append(compare(case, own, peer, given.pairs, peer_name))
        if given.only in "latency":
            outcomes += latencies(work, own, peer, given, peer_name)
        if given.only in "first batch":
            few = scratch / "few"
            make_rows(spark, few, ROWS_OF_FIRST_BATCH, given.size, 1)
            outcomes += first_batches(own.format, peer.format, scratch, few, jars, given.pairs, peer_name)
    if not outcomes:
        sys.exit(f"No case has {given.only!r} in its name.")
    question = f"rows of {given.size} bytes through Spark: {LEGATO_NAME} beside {peer_name}"
    conclude("F9", question, outcomes, versions_of_peers=versions)


if __name__ == "__main__":
    main()
