"""A process with a service of flows, which a test can stop at a named point and kill there."""

from __future__ import annotations

import asyncio
import functools
import multiprocessing
import os
import signal
import time
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

from sqlalchemy import Connection

from legato.failpoints import VARIABLE, DrillOrders, FlowPoint
from legato.flows import Context, Flows, Policy, Transaction
from legato.flows.starting import database_support

WAIT_S = 60.0
LOOK_EVERY_S = 0.002
GRACE_S = 0.3
"""After so long the outbox's rows are the sweepers': what these tests wait for."""
TABLES = (
    "CREATE TABLE plain (item TEXT)",
    "CREATE TABLE keyed (item TEXT PRIMARY KEY)",
    "CREATE TABLE jobs (item TEXT PRIMARY KEY, quantity INTEGER)",
)


def insert(connection: Connection, table: str, item: str) -> None:
    """A row."""
    connection.exec_driver_sql(f"INSERT INTO {table} (item) VALUES ('{item}')")


def declare(flows: Flows, level: Transaction) -> None:
    """Stages that write into the database, each in its way, and go on to `Done`, which is the test's."""

    @flows.terminator("Plain", transaction=level)
    def plain(context: Context[None], item: str) -> None:
        if level is not Transaction.MESSAGING:
            insert(context.database, "plain", item)
        context.initiate("on").send("Done", item)

    @flows.terminator("Coroutine", transaction=level)
    async def coroutine(context: Context[None], item: str) -> None:
        await asyncio.sleep(0)
        plain(context, item)
        await asyncio.sleep(0)

    @flows.terminator("Keyed", transaction=level)
    def keyed(context: Context[None], item: str) -> None:
        insert(context.database, "keyed", item)
        context.initiate("on").send("Done", item)

    @flows.terminator("Looking", transaction=level)
    def looking(context: Context[None], item: str) -> None:
        found = context.database.exec_driver_sql(f"SELECT 1 FROM keyed WHERE item = '{item}'").first()
        if found is None:
            insert(context.database, "keyed", item)
        context.initiate("on").send("Done", item)

    @flows.terminator("Setting", transaction=level)
    def setting(context: Context[None], item: str) -> None:
        context.database.exec_driver_sql(
            f"INSERT INTO jobs VALUES ('{item}', 1) ON CONFLICT (item) DO UPDATE SET quantity = 1"
        )
        context.initiate("on").send("Done", item)


def serve(url: str, database: str, prefix: str, level: Transaction, drill_orders: str) -> None:
    """Work until killed; runs in a process of its own."""
    os.environ[VARIABLE] = drill_orders
    database_support.OUTBOX_GRACE_S = GRACE_S
    flows = Flows(url, database=database, prefix=prefix, policy=Policy(concurrency=1, deliveries_max=3))
    declare(flows, level)
    flows.start()
    signal.pause()


def begin(url: str, database: str, prefix: str, level: Transaction, drill_orders: str) -> None:
    """Begin one flow to `Done` with a job written beside it; runs in a process of its own."""
    os.environ[VARIABLE] = drill_orders
    database_support.OUTBOX_GRACE_S = GRACE_S
    flows = Flows(url, database=database, prefix=prefix)
    with flows.initiate("tea", transaction=level) as initiation:
        insert(initiation.database, "keyed", "tea")
        initiation.send("Done", "tea")
    signal.pause()


class FlowProcess:
    """One life after another of a service, in processes that are forked from one that has all modules loaded."""

    def __init__(self, url: str, database: str, prefix: str, directory: Path) -> None:
        self.drill_orders = DrillOrders(directory)
        self._arguments = (url, database, prefix)
        self._directory = str(directory)
        self._process: BaseProcess | None = None

    def start(self, level: Transaction, target: object = serve) -> None:
        """Begin to work."""
        arguments = (*self._arguments, level, self._directory)
        self._process = context().Process(target=target, args=arguments)  # type: ignore[arg-type]
        self._process.start()

    def kill_at(self, point: FlowPoint) -> None:
        """Wait until it is held at the point that was armed, and kill it."""
        assert self._process is not None
        deadline = time.monotonic() + WAIT_S
        while self.drill_orders.holder is None:
            assert time.monotonic() < deadline, f"nobody came to {point}"
            time.sleep(LOOK_EVERY_S)
        assert self.drill_orders.holder == self._process.pid
        self.kill()
        self.drill_orders.disarm()

    def kill(self) -> None:
        """SIGKILL, if it lives."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
            self._process = None


@functools.cache
def context() -> ForkServerContext:
    """Processes that begin as forks of one with all modules loaded, and without this one's threads."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload([__name__, "sqlalchemy.dialects.sqlite", "sqlalchemy.dialects.postgresql", "psycopg"])
    return made
