"""`interop/run-spark`: a Spark stream between queues, while its driver, its workers and the broker are killed.

A producer sends all the while. Everything that was sent has to come out exactly once.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from interop.outcomes import FAILED, PASSED, Outcome, Report
from legato.client import ConnectionFactory, Session, TextMessage
from legato.errors import TransactionRolledBackError
from legato.testing import BrokerPair, broker_pair

SOURCE, SINK = "chaos.in", "chaos.out"
VICTIMS = ("driver", "worker", "broker")
WORKERS = ("pyspark.worker", "python_streaming_source_runner", "python_streaming_sink_runner")
"""Python processes of Spark that work on a stream, by what is in their command lines."""
PROGRESS_WAIT_S = 600.0
"""The longest that the job may take to finish a batch: Spark takes some seconds to start."""
DRAIN_WAIT_S = 30.0
IN_A_TRANSACTION = 20
"""Messages that are sent together: one at a time would be as slow as the disk."""


class Job:
    """The Spark job, started again whenever it ended.

    Args:
        directory: for its checkpoint and its log.
    """

    def __init__(self, url: str, directory: Path) -> None:
        self._url = url
        self._checkpoint = directory / "checkpoint"
        self._log = directory / "job.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    @property
    def batches(self) -> int:
        """Batches that Spark has committed."""
        names = [path.name for path in (self._checkpoint / "commits").glob("[0-9]*")]
        return max((int(name) + 1 for name in names if name.isdecimal()), default=0)

    def keep_running(self) -> None:
        """Start it if it does not run."""
        if self._process is None or self._process.poll() is not None:
            self._process = self._start()

    def _start(self, *options: str) -> subprocess.Popen[bytes]:
        self.starts += 1
        command = [
            *(sys.executable, "-m", "interop.spark_job", "--url", self._url),
            *("--source", SOURCE, "--sink", SINK, "--checkpoint", str(self._checkpoint), *options),
        ]
        with self._log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        """SIGKILL to the driver, its JVM and all of Spark's Python."""
        if self._process is not None:
            self._kill_group()
            self._process.wait()

    def _kill_group(self) -> None:
        assert self._process is not None
        for pid in self._members():
            with_no_process_is_fine(pid, signal.SIGKILL)

    def kill_a_worker(self, chance: random.Random) -> str:
        """SIGKILL to one of the Python processes that work on the stream; returns which.

        Those are the executors' workers, and what asks the broker for offsets. Others only answer when a query starts.

        Raises:
            TimeoutError: there is none.
        """
        deadline = time.monotonic() + PROGRESS_WAIT_S
        while time.monotonic() < deadline:
            self.keep_running()
            working = {pid: command_of(pid) for pid in self._members()}
            if workers := [pid for pid in working if any(name in working[pid] for name in WORKERS)]:
                pid = chance.choice(workers)
                with_no_process_is_fine(pid, signal.SIGKILL)
                return working[pid].split()[-1]
            time.sleep(0.1)
        raise TimeoutError("Spark has no Python process; see the job's log")

    def _members(self) -> list[int]:
        """The processes of the job's session, also those in groups of their own."""
        assert self._process is not None
        session = self._process.pid
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    if os.getsid(int(entry.name)) == session:
                        found.append(int(entry.name))
                except ProcessLookupError:
                    continue
        return found

    def finish(self) -> int:
        """Run until nothing is left; returns the exit code."""
        self.kill()
        self._process = self._start("--until-empty")
        return self._process.wait()


def with_no_process_is_fine(pid: int, number: int) -> None:
    """Send a signal to a process that may be gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def command_of(pid: int) -> str:
    """The command line of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


class Sending(threading.Thread):
    """Sends numbered messages, evenly, until told that it is enough; what a broker's death cut off is stored once.

    Args:
        at_least: so many are sent, however early it is enough.
    """

    def __init__(self, url: str, at_least: int, per_s: float) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._at_least = at_least
        self._per_s = per_s
        self.is_enough = threading.Event()
        self.sent = 0

    def run(self) -> None:
        began = time.monotonic()
        with (
            ConnectionFactory(self._url).create_connection() as connection,
            connection.create_session(transacted=True) as session,
        ):
            producer = session.create_producer(session.create_queue(SOURCE))
            while self.sent < self._at_least or not self.is_enough.is_set():
                numbers = range(self.sent, self.sent + IN_A_TRANSACTION)
                for number in numbers:
                    producer.send(TextMessage(f"n{number}"))
                commit(session)
                self.sent = numbers.stop
                ahead_s = self.sent / self._per_s - (time.monotonic() - began)
                if ahead_s > 0.01:
                    time.sleep(ahead_s)


def commit(session: Session) -> None:
    """Commit what was sent, again and again if the broker dies meanwhile."""
    while True:
        try:
            session.commit()
        except TransactionRolledBackError:
            session.replay()
        else:
            return


def torment(pair: BrokerPair, job: Job, sending: Sending, kills: int, chance: random.Random) -> Counter[str]:
    """Kill somebody again and again, all kinds equally often, each time after the job got on."""
    killed: Counter[str] = Counter()
    victims = [VICTIMS[number % len(VICTIMS)] for number in range(kills)]
    chance.shuffle(victims)
    for number, victim in enumerate(victims, 1):
        job.keep_running()
        wait_for_progress(job)
        time.sleep(chance.uniform(0, 1.5))
        what = victim
        if victim == "driver":
            job.kill()
        elif victim == "worker":
            what = job.kill_a_worker(chance)
        else:
            pair.fail_over()
        killed[victim] += 1
        print(f"= {number} of {kills}: {what} killed; {sending.sent} sent, {job.batches} batches", flush=True)
    return killed


def wait_for_progress(job: Job) -> None:
    """Wait until one more batch is committed, or nothing is left to do.

    Raises:
        TimeoutError: it does not get on.
    """
    before, deadline = job.batches, time.monotonic() + PROGRESS_WAIT_S
    while job.batches == before:
        if time.monotonic() > deadline:
            raise TimeoutError("the Spark job does not get on; see its log")
        job.keep_running()
        time.sleep(0.1)


def collect(url: str) -> Counter[int]:
    """How often each number came out."""
    seen: Counter[int] = Counter()
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        consumer = session.create_consumer(session.create_queue(SINK))
        connection.start()
        while (message := consumer.receive(timeout_s=DRAIN_WAIT_S if not seen else 3)) is not None:
            assert isinstance(message, TextMessage)
            seen[int(str(message.body).removeprefix("N"))] += 1
    return seen


def run(count: int, kills: int, per_s: float, seed: int, directory: Path) -> Report:
    """All of it."""
    began = time.monotonic()
    chance = random.Random(seed)
    with broker_pair(directory) as pair:
        job = Job(pair.url, directory)
        sending = Sending(pair.url, count, per_s)
        sending.start()
        try:
            killed = torment(pair, job, sending, kills, chance)
            sending.is_enough.set()
            sending.join()
            code = job.finish()
        finally:
            job.kill()
        seen = collect(pair.url)
    count = sending.sent
    lost = sorted(set(range(count)) - seen.keys())
    twice = sorted(number for number, times in seen.items() if times > 1)
    print(f"  {count} in, {seen.total()} out, {dict(killed)} killed, {job.starts} starts, {job.batches} batches")
    outcomes = [
        _outcome("the-job-comes-to-its-end", code == 0, f"exit code {code}"),
        _outcome("nothing-is-lost", not lost, f"{len(lost)} lost: {lost[:20]}"),
        _outcome("nothing-comes-twice", not twice, f"{len(twice)} twice: {twice[:20]}"),
        _outcome("nothing-else-comes-out", seen.keys() <= set(range(count)), "numbers that nobody sent"),
    ]
    versions = {"messages": str(count), "kills": str(sum(killed.values()))} | {k: str(n) for k, n in killed.items()}
    return Report("spark", outcomes, time.monotonic() - began, versions)


def _outcome(name: str, good: bool, reason: str) -> Outcome:
    return Outcome(name, PASSED if good else FAILED, reason="" if good else reason)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; the exit code says whether everything came out once."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument(
        "--count", type=int, default=200_000, help="messages at least; as many more as are sent until the last kill"
    )
    parser.add_argument("--kills", type=int, default=30, help="how often somebody is killed")
    parser.add_argument("--per-s", type=float, default=1000, help="messages sent in a second")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000), help="decides who is killed, and when")
    parser.add_argument("--keep", type=Path, help="a directory for stores and logs, which is not deleted")
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="legato-spark-") as scratch:
        directory = options.keep or Path(scratch)
        directory.mkdir(parents=True, exist_ok=True)
        report = run(options.count, options.kills, options.per_s, options.seed, directory)
    for each in report.outcomes:
        print(f"{'✓' if each.outcome == PASSED else '✕'} {each.test} {each.reason}")
    report.write("spark")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
