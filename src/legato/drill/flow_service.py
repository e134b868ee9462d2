"""A service of flows in a drill's load, with its own database."""

import sqlite3
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from legato.drill.client_totals import PATIENCE_S, FlowProgress
from legato.drill.database import DATABASE_NAME, INSERT, STAGES, TABLE, read_rows
from legato.drill.load import Client
from legato.drill.messages import identity_in
from legato.drill.records import Identity
from legato.flows import Context, Policy
from legato.flows import Flows as FlowService

LOOK_EVERY_S = 0.5
BATCH_MAX = 20


class Service:
    """Works on flows that a producer's plain messages begin: each of three stages writes which message it worked on.

    Args:
        client: the queue whose messages begin flows, and the one that these send to at their ends.
        directory: of the drill; the database is in it.
        flows: says what the producers were told.
    """

    def __init__(self, client: Client, url: str, directory: Path, flows: FlowProgress) -> None:
        self._client = client
        self._file = directory / DATABASE_NAME
        self._flows = flows
        with closing(sqlite3.connect(self._file)) as database:
            database.execute(TABLE)
        prefix, dot, name = client.flow.rpartition(".")
        policy = Policy(concurrency=1, batch_max=BATCH_MAX)
        self._service = FlowService(
            url, database=f"sqlite:///{self._file}", name=client.name, prefix=prefix + dot, policy=policy
        )
        self._declare(name)
        self._service.start()
        self.connection = self._service.connection()

    def run(self, stop: threading.Event) -> None:
        """Work until all producers have ended (`stop`) and every flow has, or nothing more comes of them."""
        stop.wait()
        rows, since = -1, time.monotonic()
        while time.monotonic() - since < PATIENCE_S:
            found = read_rows(self._file)
            if self._has_ended(found):
                break
            if found.total() > rows:
                rows, since = found.total(), time.monotonic()
            time.sleep(LOOK_EVERY_S)
        self._service.stop()

    def _has_ended(self, rows: Counter[tuple[Identity, int]]) -> bool:
        """Whether the database has all of it, and has nothing left to send."""
        stored = self._flows.stored(self._client.flow)
        if any(not rows[identity, stage] for identity in stored for stage in STAGES):
            return False
        with closing(sqlite3.connect(self._file)) as database:
            (left,) = database.execute("SELECT count(*) FROM legato_outbox").fetchone()
        return not left

    def _declare(self, name: str) -> None:
        endpoint = self._service.endpoint(name, plain=True)

        @endpoint.stage
        def first(context: Context[None], text: str) -> None:
            write_row(context, text, 1)
            context.next(text)

        @endpoint.stage
        def second(context: Context[None], text: str) -> None:
            write_row(context, text, 2)
            context.next(text)

        @endpoint.last_stage
        def third(context: Context[None], text: str) -> None:
            write_row(context, text, 3)
            context.send_message(self._client.to, text)


def write_row(context: Context[None], text: str, stage: int) -> None:
    """Note, in the stage's own transaction, which message it works on."""
    identity = identity_in(text)
    context.database.exec_driver_sql(INSERT, (*identity, stage))
