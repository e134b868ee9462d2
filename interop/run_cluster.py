"""`interop/run-cluster`: ledger and connector on a Spark standalone cluster: a master, two workers, and `spark-submit`.

The cluster is started for the occasion, with the Spark that is installed here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pyspark

import legato.cli
from interop.broker import ROOT, free_port
from interop.outcomes import FAILED, PASSED, Outcome, Report
from legato.client import ConnectionFactory, TextMessage
from legato.spark.exporter import export_all
from legato.testing import broker_pair

QUEUE, SINK = "cluster.in", "cluster.out"
FIRST, SECOND = "first", "second"
MESSAGES = 1000
WORKERS = 2
START_WAIT_S = 600.0
STOP_WAIT_S = 30.0
MEMORY = "1g"
COUNTED = ("stored", "consumed")
SPARK_HOME = Path(pyspark.__path__[0])
SCRIPT = ROOT / "interop" / "cluster_job.py"


class Cluster:
    """A master and its workers.

    Args:
        directory: for the workers' directories and everybody's logs.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port, self._page = free_port(), free_port()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        """Its URL."""
        return f"spark://127.0.0.1:{self._port}"

    @property
    def works(self) -> list[Path]:
        """Where each worker keeps its executors."""
        return [self._directory / f"worker-{number}" for number in range(WORKERS)]

    def start(self) -> None:
        """Start all; returns when the workers are registered."""
        addresses = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(self._page)]
        self._start("master", "org.apache.spark.deploy.master.Master", *addresses)
        self._wait_until(lambda: self._said() is not None)
        for work in self.works:
            shape = ["--cores", "1", "--memory", MEMORY, "--work-dir", str(work), "--webui-port", "0"]
            self._start(work.name, "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", *shape, self.master)
        self._wait_until(lambda: (self._said() or {}).get("aliveworkers") == WORKERS)

    def applications(self) -> list[str]:
        """What ran here and is over, by name."""
        return [each["name"] for each in (self._said() or {"completedapps": []})["completedapps"]]

    def end(self) -> None:
        """End the workers, and then the master."""
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(STOP_WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, name: str, *command: str) -> None:
        with (self._directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(SPARK_HOME / "bin" / "spark-class"), *command],
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env=environment(),
            )
        self._processes.append(process)

    def _said(self) -> dict[str, Any] | None:
        """What the master's page says as JSON; None while there is none."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=5) as answer:
                told: dict[str, Any] = json.load(answer)
                return told
        except OSError:
            return None

    def _wait_until(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_WAIT_S
        while not reached():
            if time.monotonic() > deadline or any(process.poll() is not None for process in self._processes):
                raise RuntimeError(f"The cluster did not start; see the logs in {self._directory}.")
            time.sleep(0.1)


@contextmanager
def cluster(directory: Path) -> Iterator[Cluster]:
    """A cluster for the time of a block."""
    started = Cluster(directory)
    try:
        started.start()
        yield started
    finally:
        started.end()


class Suite:
    """What is tried, one after the other; each adds an outcome."""

    def __init__(self, directory: Path, running: Cluster, url: str, ledger: Path, only: Sequence[str]) -> None:
        self._directory = directory
        self._only = only
        self._cluster = running
        self._url = url
        self._ledger = ledger
        self.outcomes: list[Outcome] = []

    def run(self) -> None:
        """All of it."""
        self._try("ledger-run-takes-a-master", self._ledger_run)
        self._try("ledger-run-by-spark-submit", self._ledger_by_submit)
        self._try("executors-read-and-write-queues", self._connector)
        self._try("executors-read-and-write-queues-by-spark-submit", self._connector_by_submit)

    def _try(self, name: str, test: Callable[[], str]) -> None:
        if self._only and not any(part in name for part in self._only):
            return
        began = time.monotonic()
        try:
            fault = test()
        except OSError as error:
            fault = str(error)
        except subprocess.CalledProcessError as error:
            fault = f"exit code {error.returncode}: {error.output[-2000:]}"
        milliseconds = round(1000 * (time.monotonic() - began))
        print(f"{'✕' if fault else '✓'} {name} ({milliseconds / 1000:.0f} s) {fault}", flush=True)
        self.outcomes.append(Outcome(name, FAILED if fault else PASSED, milliseconds, fault))

    def _ledger_run(self) -> str:
        before = len(self._cluster.applications())
        self._legato("ledger", "run", str(self._ledger), str(self._tables("a")), "--once", "--master", self._master)
        return self._fault_of(self._tables("a")) or self._elsewhere(before)

    def _ledger_by_submit(self) -> str:
        before = len(self._cluster.applications())
        program = Path(legato.cli.__path__[0], "__main__.py")
        self._submit(program, "ledger", "run", str(self._ledger), str(self._tables("b")), "--once")
        return self._fault_of(self._tables("b")) or self._elsewhere(before)

    def _connector(self) -> str:
        return self._fault_of_job(self._python(SCRIPT, *self._job(FIRST), "--master", self._master))

    def _connector_by_submit(self) -> str:
        return self._fault_of_job(self._submit(SCRIPT, *self._job(SECOND)))

    def _job(self, name: str) -> list[str]:
        checkpoint = self._directory / f"checkpoint-{name}"
        return [
            "--url",
            self._url,
            "--source",
            f"{QUEUE}.{name}",
            "--sink",
            f"{SINK}.{name}",
            "--checkpoint",
            str(checkpoint),
        ]

    def _fault_of_job(self, output: str) -> str:
        told = json.loads(output.splitlines()[-1])
        if (told["waiting"], told["passed_on"]) != (MESSAGES, MESSAGES):
            return f"{MESSAGES} messages are there; the job tells {told}"
        workers = {Path(place).parents[1] for place in told["places"]}
        return "" if workers == set(self._cluster.works) else f"rows were read in {sorted(map(str, workers))}"

    def _fault_of(self, tables: Path) -> str:
        """What is wrong with the tables of the ledger."""
        rows = parquet.read_table(tables / "gold" / "audit").to_pylist()
        found = {name: sum(row[name] for row in rows if row["destination"] == QUEUE) for name in COUNTED}
        wanted = dict.fromkeys(COUNTED, MESSAGES)
        return "" if found == wanted else f"the audit has {found} of {QUEUE}, and not {wanted}"

    def _elsewhere(self, before: int) -> str:
        """Whether it ran here and not on the workers: the master knows what ran there."""
        return "" if len(self._cluster.applications()) > before else "the master knows nothing of it"

    def _tables(self, name: str) -> Path:
        return self._directory / f"tables-{name}"

    @property
    def _master(self) -> str:
        return self._cluster.master

    def _legato(self, *words: str) -> str:
        return run([sys.executable, "-m", "legato.cli", *words])

    def _python(self, script: Path, *words: str) -> str:
        return run([sys.executable, str(script), *words])

    def _submit(self, script: Path, *words: str) -> str:
        return run([str(SPARK_HOME / "bin" / "spark-submit"), "--master", self._master, str(script), *words])


def environment() -> dict[str, str]:
    """Which Spark, and which Python: those that run this."""
    return {**os.environ, "SPARK_HOME": str(SPARK_HOME), "PYSPARK_PYTHON": sys.executable}


def run(command: Sequence[str]) -> str:
    """What a command says.

    Raises:
        CalledProcessError: it failed; its output has all that it said.
    """
    try:
        done = subprocess.run(command, env=environment(), check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        error.output = f"{error.output}\n{error.stderr}"
        raise
    return done.stdout


def fill(url: str, name: str) -> None:
    """Messages that wait in a queue."""
    with (
        ConnectionFactory(url).create_connection() as connection,
        connection.create_session(transacted=True) as session,
    ):
        producer = session.create_producer(session.create_queue(name))
        for number in range(MESSAGES):
            producer.send(TextMessage(f"n{number}"))
        session.commit()


def drain(url: str, name: str) -> None:
    """Consume them."""
    with (
        ConnectionFactory(url).create_connection() as connection,
        connection.create_session(transacted=True) as session,
    ):
        connection.start()
        consumer = session.create_consumer(session.create_queue(name))
        for _ in range(MESSAGES):
            assert consumer.receive(timeout_s=30) is not None
        session.commit()


def run_suite(directory: Path, only: Sequence[str] = ()) -> Report:
    """All of it: the ledger is that of a broker that was stopped, the queues are those of one that runs."""
    began = time.monotonic()
    before, now = directory / "before", directory / "now"
    for each in (before, now):
        each.mkdir(parents=True, exist_ok=True)
    with broker_pair(before) as pair:
        fill(pair.url, QUEUE)
        drain(pair.url, QUEUE)
    ledger = before / "ledger"
    ledger.mkdir()
    export_all(before / "store", ledger)
    with broker_pair(now) as pair, cluster(directory) as running:
        for name in (FIRST, SECOND):
            fill(pair.url, f"{QUEUE}.{name}")
        suite = Suite(directory, running, pair.url, ledger, only)
        suite.run()
    return Report("cluster", suite.outcomes, time.monotonic() - began, {"workers": str(WORKERS)})


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; the exit code says whether everything went well."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--keep", type=Path, help="a directory for tables and logs, which is not deleted")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="PART", help="only tests with such a part in their name"
    )
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="legato-cluster-") as scratch:
        report = run_suite((options.keep or Path(scratch)).absolute(), options.only)
    print(f"{report.count(PASSED)} passed, {report.count(FAILED)} failed, 0 skipped")
    if not options.only:
        report.write("cluster")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
