"""`interop/run-declarative`: the projects for Spark's declarative pipelines in `examples/`, each run twice.

It needs `legato[broker,pipelines]`, which adds Spark Connect's libraries; `PYTHON=...` names a Python that has them.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.parquet as parquet
import pyspark

from interop.broker import ROOT
from interop.outcomes import FAILED, PASSED, Outcome, Report
from legato.client import ConnectionFactory, TextMessage
from legato.spark.exporter import export_all
from legato.testing import broker_pair

SPARK_HOME = Path(pyspark.__path__[0])
NEEDED = ("grpc", "yaml", "zstandard")
ORDERS, LARGE_ORDERS = "orders", "large-orders"
COUNT = 1000
"""Orders that are sent before each run; half of them are large."""


class Project:
    """A project of `examples/`, run in a copy whose tables and checkpoints are its own."""

    def __init__(self, name: str, directory: Path, environment: dict[str, str]) -> None:
        self._directory = directory
        self._environment = environment
        directory.mkdir(parents=True)
        specification = (ROOT / "examples" / name / "spark-pipeline.yml").read_text()
        lines = [line for line in specification.splitlines() if not line.startswith("storage:")]
        lines.append(f"storage: {(directory / 'storage').as_uri()}")
        (directory / "spark-pipeline.yml").write_text("\n".join(lines) + "\n")
        (directory / "transformations").symlink_to(ROOT / "examples" / name / "transformations")

    def run(self) -> None:
        """Once, to its end.

        Raises:
            CalledProcessError: it failed; its output has all that it said.
        """
        metastore = f"jdbc:derby:;databaseName={self._directory / 'metastore'};create=true"
        subprocess.run(
            [
                *(str(SPARK_HOME / "bin" / "spark-pipelines"), "run"),
                # The default catalog forgets, and the second run would fail over the tables of the first.
                *("--conf", "spark.sql.catalogImplementation=hive"),
                *("--conf", f"spark.sql.warehouse.dir={(self._directory / 'warehouse').as_uri()}"),
                *("--conf", f"spark.hadoop.javax.jdo.option.ConnectionURL={metastore}"),
            ],
            cwd=self._directory,
            env={**os.environ, "SPARK_HOME": str(SPARK_HOME), "PYSPARK_PYTHON": sys.executable, **self._environment},
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def table(self, name: str) -> list[dict[str, object]]:
        """The rows of a table."""
        files = sorted((self._directory / "warehouse" / name).glob("*.parquet"))
        return [row for file in files for row in parquet.read_table(file).to_pylist()]


class Suite:
    """What is tried, one after the other; each adds an outcome."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.outcomes: list[Outcome] = []

    def run(self) -> None:
        """All of it."""
        with broker_pair(self._directory) as pair:
            project = Project("declarative_queue", self._directory / "queue", {"LEGATO_URL": pair.url})
            for number, name in ((1, "a-queue-becomes-a-table-and-rows-messages"), (2, "a-second-run-goes-on")):
                send(pair.url)
                self._try(name, lambda number=number: self._queue(project, pair.url, number))  # type: ignore[misc]
            store = pair.store
        ledger = self._directory / "exported"
        ledger.mkdir()
        export_all(store, ledger)
        project = Project("declarative_ledger", self._directory / "ledger", {"LEGATO_LEDGER": str(ledger)})
        self._try("the-ledger-becomes-bronze-silver-and-gold", lambda: self._ledger(project))
        self._try("a-second-run-of-the-ledger-counts-nothing-twice", lambda: self._ledger(project))

    def _try(self, name: str, test: Callable[[], str]) -> None:
        began = time.monotonic()
        try:
            fault = test()
        except subprocess.CalledProcessError as error:
            fault = f"exit code {error.returncode}: {error.output[-3000:]}"
        milliseconds = round(1000 * (time.monotonic() - began))
        print(f"{'✕' if fault else '✓'} {name} ({milliseconds / 1000:.0f} s) {fault}", flush=True)
        self.outcomes.append(Outcome(name, FAILED if fault else PASSED, milliseconds, fault))

    def _queue(self, project: Project, url: str, runs: int) -> str:
        project.run()
        amounts = sorted(int(str(row["amount"])) for row in project.table("orders"))
        wanted = sorted([*range(COUNT)] * runs)
        if amounts != wanted:
            return f"{len(amounts)} rows are in the table, and not {len(wanted)}"
        large = sorted(int(text) for text in drain(url))
        return "" if large == [*range(COUNT // 2, COUNT)] else f"{len(large)} messages came out"

    def _ledger(self, project: Project) -> str:
        project.run()
        rows = [row for row in project.table("audit") if row["destination"] == LARGE_ORDERS]
        found = tuple(sum(int(str(row[name])) for row in rows) for name in ("stored", "consumed", "left_twice"))
        return "" if found == (COUNT, COUNT, 0) else f"stored, consumed and left twice: {found}"


def send(url: str) -> None:
    """Orders of every amount below `COUNT`."""
    with (
        ConnectionFactory(url).create_connection() as connection,
        connection.create_session(transacted=True) as session,
    ):
        producer = session.create_producer(session.create_queue(ORDERS))
        for amount in range(COUNT):
            producer.send(TextMessage(str(amount)))
        session.commit()


def drain(url: str) -> list[str]:
    """The messages of the large orders, consumed."""
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        connection.start()
        consumer = session.create_consumer(session.create_queue(LARGE_ORDERS))
        found = []
        while (message := consumer.receive(timeout_s=1)) is not None:
            assert isinstance(message, TextMessage)
            found.append(str(message.body))
        return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; the exit code says whether everything went well."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--keep", type=Path, help="a directory for tables and logs, which is not deleted")
    options = parser.parse_args(arguments)
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        print(f"{', '.join(missing)} are missing: pip install 'legato[broker,pipelines]'")
        return 2
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="legato-declarative-") as scratch:
        directory = (options.keep or Path(scratch)).absolute()
        directory.mkdir(parents=True, exist_ok=True)
        suite = Suite(directory)
        suite.run()
    report = Report("declarative", suite.outcomes, time.monotonic() - began)
    print(f"{report.count(PASSED)} passed, {report.count(FAILED)} failed, 0 skipped")
    report.write("declarative")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
