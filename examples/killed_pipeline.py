"""20,000 numbers go from a queue to a table and on to another queue, while Spark and the broker are killed.

    pip install 'legato[broker,spark]'
    python killed_pipeline.py             # two minutes; --numbers 5000 takes one, --out DIR keeps the files

`pipeline()` is a driver as one runs it; `main()` kills it and the broker with SIGKILL, starts them again, and counts.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from legato.client import ConnectionFactory
from legato.spark import audit, start_session
from legato.testing import broker_pair

ROWS_OF_A_BATCH = 1000


def pipeline(url: str, out: Path) -> None:
    """Run until somebody kills it. Started again, it goes on where its checkpoints are."""
    spark = start_session("numbers")
    numbers = (
        spark.readStream.format("legato")
        .options(url=url, queue="numbers", subscription="table")
        .options(payload="text", maxOffsetsPerTrigger=ROWS_OF_A_BATCH)
        .load()
        .selectExpr("cast(body as long) as number", "seq", "timestamp")
    )
    into_table = numbers.writeStream.format("parquet").option("path", f"{out}/numbers")
    into_table.option("checkpointLocation", f"{out}/checkpoints/table").start()

    (out / "numbers").mkdir(parents=True, exist_ok=True)  # Spark reads no directory that is not there yet
    table = spark.readStream.schema(numbers.schema).parquet(f"{out}/numbers")
    into_queue = table.selectExpr("cast(number as string) as body").writeStream.format("legato")
    into_queue = into_queue.options(url=url, queue="counted")
    into_queue.option("checkpointLocation", f"{out}/checkpoints/queue").start()
    spark.streams.awaitAnyTermination()


class Driver:
    """A process with `pipeline()`, its JVM and its workers."""

    def __init__(self, url: str, out: Path) -> None:
        self.out = out
        with (out / "driver.log").open("ab") as log:
            command = [sys.executable, __file__, "--drive", url, "--out", str(out)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        """SIGKILL for all of them."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def wait_for_batches(self, count: int) -> None:
        """Wait until Spark has committed so many batches of the table, over all drivers."""
        self.wait_until(lambda: len(list(self.out.glob("checkpoints/table/commits/[0-9]*"))) >= count)

    def wait_until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            if self.process.poll() is not None:
                raise SystemExit(f"The driver ended; see {self.out / 'driver.log'} (keep it with --out DIR).")
            time.sleep(0.1)


def send(url: str, numbers: range) -> None:
    with ConnectionFactory(url).create_context() as context:
        producer, queue = context.create_producer(), context.create_queue("numbers")
        for number in numbers:
            producer.send(queue, str(number))


def receive(url: str, count: int) -> list[int]:
    """So many messages of the queue `counted`, and all that come in a second after them."""
    found: list[int] = []
    with ConnectionFactory(url).create_context() as context:
        consumer = context.create_consumer(context.create_queue("counted"))
        while body := consumer.receive_body(str, timeout_s=120 if len(found) < count else 1):
            found.append(int(body))
    return found


def main(count: int, out: Path) -> bool:
    """Kill and count; whether each number is in the table once, in the queue once, and in the ledger's account."""
    wanted = list(range(1, count + 1))
    batches = count // ROWS_OF_A_BATCH
    with broker_pair(out, options=["--ledger"]) as pair:
        url = pair.url
        send(url, range(1, count + 1))
        driver = Driver(url, out)
        try:
            driver.wait_for_batches(batches // 4)
            driver.kill()
            print("SIGKILL to Spark: driver, JVM and workers", flush=True)
            driver = Driver(url, out)
            driver.wait_for_batches(batches // 2)
            pair.fail_over()
            print("SIGKILL to the broker; its backup serves", flush=True)
            driver.wait_for_batches(batches * 3 // 4)
            driver.kill()
            pair.fail_over()
            print("SIGKILL to both", flush=True)
            driver = Driver(url, out)
            in_queue = receive(url, count)
        finally:
            driver.kill()
    spark = start_session("count")
    in_table = [row.number for row in spark.read.parquet(f"{out}/numbers").select("number").collect()]
    result = audit(out / "store" / "ledger", spark, store_dir=out / "store")
    print(f"in the table {len(in_table):,} numbers, {len(set(in_table)):,} of them different")
    print(f"in the queue {len(in_queue):,} numbers, {len(set(in_queue)):,} of them different")
    print(f"the audit: {result.verdict}")
    return sorted(in_table) == wanted and sorted(in_queue) == wanted and result.passes


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--numbers", type=int, default=20_000, help="how many, 4,000 at least")
    parser.add_argument("--out", type=Path, help="a new directory that stays")
    parser.add_argument("--drive", metavar="URL", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive:
        pipeline(given.drive, given.out)
        sys.exit()
    if given.out is not None and given.out.exists() and any(given.out.iterdir()):
        parser.error(f"{given.out} is not empty")
    with tempfile.TemporaryDirectory() as scratch:
        directory = (given.out or Path(scratch)).absolute()
        directory.mkdir(parents=True, exist_ok=True)
        sys.exit(0 if main(given.numbers, directory) else 1)
