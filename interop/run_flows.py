"""`interop/run-flows`: flows of three stages with inbox and outbox, while brokers and services are killed.

Every flow has to come to its end, every stage to have worked on it once: so say the database and the ledger, or the
brokers' own log of facts, which becomes the ledger (`--no-spark`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine, create_engine
from tests.support.postgres import postgres_server

from interop.flow_service import CREATE, STAGES
from interop.outcomes import FAILED, PASSED, Outcome, Report
from legato.drill.history import audit_log
from legato.flows import Flows, Transaction
from legato.spark.job import run_audit
from legato.testing import BrokerPair, broker_pair

SERVICES = 2
VICTIMS = ("service", "broker")
PROGRESS_WAIT_S = 300.0
LOOK_EVERY_S = 0.1
BROKERS_FORGET_S = 1
"""A client that was killed does not come back: what it had is somebody else's after so long."""


class Service:
    """One process of the service, started again whenever it was killed."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        self._command = [sys.executable, "-m", "interop.flow_service", *arguments]
        self._log = log
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        """SIGKILL, and a new life."""
        self._process.kill()
        self._process.wait()
        self._process = self._start()

    def end(self, timeout_s: float = PROGRESS_WAIT_S) -> None:
        """Ask it to stop, and wait for that."""
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Books:
    """What the database says."""

    def __init__(self, url: str) -> None:
        self.engine: Engine = create_engine(url)
        with self.engine.begin() as connection:
            for statement in CREATE:
                connection.exec_driver_sql(statement)
            for stage in STAGES:
                connection.exec_driver_sql(f"INSERT INTO totals VALUES ('{stage}', 0)")

    def number(self, sql: str) -> int:
        """One number."""
        with self.engine.connect() as connection:
            return int(connection.exec_driver_sql(sql).scalar_one())

    def done(self) -> int:
        """How many flows have come to their end."""
        return self.number("SELECT number FROM totals WHERE stage = 'Orders.done'")

    def worked(self) -> dict[str, Counter[str]]:
        """How often each stage has worked on each item."""
        found: dict[str, Counter[str]] = {stage: Counter() for stage in STAGES}
        with self.engine.connect() as connection:
            for stage, item in connection.exec_driver_sql("SELECT stage, item FROM work"):
                found[stage][item] += 1
        return found

    def wait_until(self, sql: str, number: int) -> None:
        """Wait for a number as long as it changes.

        Raises:
            TimeoutError: it does not any more.
        """
        last, deadline = -1, time.monotonic() + PROGRESS_WAIT_S
        while (now := self.number(sql)) != number:
            if now != last:
                last, deadline = now, time.monotonic() + PROGRESS_WAIT_S
            if time.monotonic() > deadline:
                raise TimeoutError(f"{sql}: {now}, not {number}")
            time.sleep(LOOK_EVERY_S)


@dataclass(frozen=True)
class Facts:
    """What the brokers say of all messages.

    Attributes:
        complaints: what an audit does not like.
    """

    stored: int
    consumed: int
    complaints: Sequence[str]


def facts_of(store: Path, *, with_spark: bool) -> Facts:
    """The audit of the ledger by Spark, or that of the log by itself."""
    if not with_spark:
        finding = audit_log(store)
        return Facts(finding.stored, finding.consumed, finding.complaints)
    audit = run_audit(store / "ledger", store_dir=store)
    complaints = [f"{check.sentence} ({check.count})" for check in audit.checks if check.count]
    return Facts(audit.total("stored"), audit.total("consumed"), complaints)


def begin(flows: Flows, numbers: range) -> None:
    """Begin a flow for each number, with a row beside it."""
    for number in numbers:
        item = f"item{number}"
        with flows.initiate(item, transaction=Transaction.INBOX_OUTBOX) as initiation:
            initiation.database.exec_driver_sql(f"INSERT INTO orders VALUES ('{item}')")
            initiation.request("Orders.place", item, reply_to="Orders.done")


def torment(
    pair: BrokerPair, services: Sequence[Service], books: Books, flows: Flows, count: int, kills: int, seed: int
) -> Counter[str]:
    """Begin flows, and kill somebody again and again while they are on their way."""
    chance = random.Random(seed)
    killed: Counter[str] = Counter()
    victims = [VICTIMS[number % len(VICTIMS)] for number in range(kills)]
    chance.shuffle(victims)
    edges = [round(count * part / (kills + 1)) for part in range(kills + 2)]
    for part, victim in enumerate(victims):
        begin(flows, range(edges[part], edges[part + 1]))
        time.sleep(chance.uniform(0, 0.5))
        if victim == "service":
            chance.choice(services).kill()
        else:
            pair.fail_over()
        killed[victim] += 1
        print(f"= {part + 1} of {kills}: {victim} killed; {edges[part + 1]} begun, {books.done()} done", flush=True)
    begin(flows, range(edges[-2], count))
    return killed


def verdict(count: int, books: Books, facts: Facts, batch: int) -> list[Outcome]:
    """Whether everything was done once, by the database and by the ledger; a bundle is one message in that."""
    items = {f"item{number}" for number in range(count)}
    worked = books.worked()
    lost = [(stage, item) for stage in STAGES for item in items - worked[stage].keys()]
    twice = [(stage, item) for stage in STAGES for item, times in worked[stage].items() if times > 1]
    totals = {stage: books.number(f"SELECT number FROM totals WHERE stage = '{stage}'") for stage in STAGES}
    waiting = books.number("SELECT count(*) FROM legato_outbox")
    inbox = books.number("SELECT count(*) FROM legato_inbox")
    messages = count * len(STAGES)
    stored = facts.stored == messages if batch == 1 else facts.stored <= messages
    consumed = facts.consumed == (messages if batch == 1 else facts.stored)
    return [
        _outcome("database: no stage has missed a flow", not lost, f"{len(lost)}: {lost[:10]}"),
        _outcome("database: no stage has worked on a flow twice", not twice, f"{len(twice)}: {twice[:10]}"),
        _outcome("database: the totals are the numbers of flows", totals == dict.fromkeys(STAGES, count), f"{totals}"),
        _outcome("database: one job for each flow", books.number("SELECT count(*) FROM orders") == count, ""),
        _outcome("database: nothing waits in the outbox", waiting == 0, f"{waiting}"),
        _outcome("database: the inbox has each message once", inbox == messages, f"{inbox}"),
        _outcome("ledger: each message was stored once", stored, f"{facts.stored}"),
        _outcome("ledger: each message was consumed once", consumed, f"{facts.consumed}"),
        _outcome("ledger: every sentence of the audit holds", not facts.complaints, f"{facts.complaints}"),
    ]


def _outcome(name: str, good: bool, reason: str) -> Outcome:
    return Outcome(name, PASSED if good else FAILED, reason="" if good else reason)


@contextlib.contextmanager
def database_of(kind: str, directory: Path) -> Iterator[str]:
    """A database of that kind."""
    if kind == "postgresql":
        with postgres_server() as server:
            yield server.create("flows")
    else:
        yield f"sqlite:///{directory}/flows.db"


def run(count: int, kills: int, kind: str, seed: int, directory: Path, *, with_spark: bool, batch: int = 1) -> Report:
    """All of it."""
    began = time.monotonic()
    environment = {"LEGATO_SERVER_RECONNECT_TIMEOUT_S": str(BROKERS_FORGET_S)}
    with database_of(kind, directory) as database:
        books = Books(database)
        with broker_pair(directory, options=() if with_spark else ("--no-ledger",), environment=environment) as pair:
            services = [
                Service([pair.url, database, str(batch)], directory / f"service-{number}.log")
                for number in range(SERVICES)
            ]
            flows = Flows(pair.url, database=database)
            try:
                killed = torment(pair, services, books, flows, count, kills, seed)
                books.wait_until("SELECT number FROM totals WHERE stage = 'Orders.done'", count)
                books.wait_until("SELECT count(*) FROM legato_outbox", 0)
                took_s = time.monotonic() - began
                flows.stop()
            finally:
                for service in services:
                    service.end()
            store = pair.store
        outcomes = verdict(count, books, facts_of(store, with_spark=with_spark), batch)
        books.engine.dispose()
    print(f"  {count} flows of {len(STAGES)} calls in {took_s:.0f} s, {dict(killed)} killed, {kind}")
    ledger = "Spark" if with_spark else "log"
    versions = {"flows": str(count), "database": kind, "ledger": ledger, "batch": str(batch)} | {
        f"killed {who}": str(n) for who, n in killed.items()
    }
    return Report(f"flows-{kind}", outcomes, time.monotonic() - began, versions)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; the exit code says whether everything was done once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flows", type=int, default=1000, help="how many are begun")
    parser.add_argument("--kills", type=int, default=20, help="services and brokers, half of them each")
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--batch", type=int, default=1, help="messages that a stage takes and sends together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="an empty directory for logs, store and database")
    parser.add_argument("--no-spark", action="store_true", help="audit the brokers' log, not the ledger")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="legato-flows-", dir="/var/tmp") as scratch:
        directory = given.keep or Path(scratch)
        directory.mkdir(parents=True, exist_ok=True)
        report = run(
            given.flows,
            given.kills,
            given.database,
            given.seed,
            directory,
            with_spark=not given.no_spark,
            batch=given.batch,
        )
    path = report.write(f"flows-{given.database}")
    code = report.show()
    result = json.loads(path.read_text())
    print(json.dumps({name: result[name] for name in ("suite", "passed", "failed", "seconds", "versions")}))
    return code


if __name__ == "__main__":
    sys.exit(main())
