"""P14: a stage of a flow against a loop written by hand with the same client and database; flows of three stages.

The loop receives, updates a row, sends and commits, database first: what a stage with best effort does.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
from tests.support.postgres import Server, postgres_server

from bench.figures import Goal, interleave, spread
from bench.harness import finish_pairs, note, options, table, temporary_store
from bench.processes import LEGATO, broker
from legato.client import ConnectionFactory, Queue, TextMessage
from legato.flows import Context, Flows, Policy, Transaction
from legato.flows.database.database import DataSource

KINDS = ("sqlite", "postgresql")
LEVELS = (Transaction.BEST_EFFORT, Transaction.INBOX_OUTBOX)
ROWS = 100
FILLED_AT_ONCE = 500
WAIT_S = 300.0
BATCH = 100
BUNDLED = 10
"""So many times as many flows are measured in bundles."""
UPDATE = "UPDATE totals SET quantity = quantity + 1 WHERE item = {}"

_names = itertools.count(1)


class Order(msgspec.Struct):
    """What travels."""

    item: int
    note: str


@dataclass
class Bench:
    """What all runs share."""

    url: str
    database: str
    workers: int
    order: Order

    def source(self) -> DataSource:
        """The database, with a table of a few rows."""
        source = DataSource(self.database)
        with source.engine.begin() as connection:
            connection.exec_driver_sql(
                "CREATE TABLE IF NOT EXISTS totals (item INTEGER PRIMARY KEY, quantity INTEGER NOT NULL)"
            )
            for item in range(ROWS):
                connection.exec_driver_sql(f"INSERT INTO totals VALUES ({item}, 0) ON CONFLICT DO NOTHING")
        return source


class Progress:
    """Tells the rate at which runs end once all workers are at work: the first part of them does not count."""

    def __init__(self, count: int) -> None:
        self._first, self._count = count // 5, count
        self._done = itertools.count(1)
        self._began = 0.0
        self._over = threading.Event()
        self.rate = 0.0

    def add(self) -> None:
        """One more is done."""
        done = next(self._done)
        if done == self._first:
            self._began = time.perf_counter()
        elif done == self._count:
            self.rate = (self._count - self._first) / (time.perf_counter() - self._began)
            self._over.set()

    @property
    def is_over(self) -> bool:
        """Whether all are."""
        return self._over.is_set()

    def wait(self) -> float:
        """Wait for the last; returns how many were done in a second."""
        if not self._over.wait(WAIT_S):
            raise TimeoutError(f"{self._count} messages take longer than {WAIT_S:.0f} s")
        return self.rate


def by_hand(bench: Bench, count: int) -> float:
    """Messages a second through threads that somebody wrote for this one purpose."""
    name = f"hand{next(_names)}"
    source = bench.source()
    progress = Progress(count)
    with ConnectionFactory(bench.url).create_connection() as connection:
        with connection.create_session(transacted=True) as session:
            producer = session.create_producer(Queue(name))
            for number in range(count):
                order = msgspec.structs.replace(bench.order, item=number % ROWS)
                producer.send(TextMessage(msgspec.json.encode(order).decode()))
                if number % FILLED_AT_ONCE == FILLED_AT_ONCE - 1:
                    session.commit()
            session.commit()

        def work() -> None:
            decoder = msgspec.json.Decoder(Order)
            with connection.create_session(transacted=True) as session:
                consumer = session.create_consumer(Queue(name), prefetch=2)
                producer = session.create_producer(Queue(f"{name}.out"))
                while not progress.is_over:
                    message = consumer.receive(timeout_s=1)
                    if message is None:
                        continue
                    assert isinstance(message, TextMessage)
                    order = decoder.decode(message.body or "")
                    with source.transaction() as transaction:
                        transaction.connection().exec_driver_sql(UPDATE.format(order.item))
                        producer.send(TextMessage(msgspec.json.encode(order).decode()))
                        transaction.commit()
                    session.commit()
                    progress.add()

        threads = [threading.Thread(target=work) for _ in range(bench.workers)]
        connection.start()
        for thread in threads:
            thread.start()
        rate = progress.wait()
        for thread in threads:
            thread.join()
    source.close()
    return rate


def begin_all(flows: Flows, bench: Bench, endpoint: str, count: int) -> None:
    """The messages of a run."""
    for first in range(0, count, FILLED_AT_ONCE):
        with flows.initiate("bench") as initiation:
            for number in range(first, min(count, first + FILLED_AT_ONCE)):
                order = msgspec.structs.replace(bench.order, item=number % ROWS)
                initiation.request(endpoint, order, reply_to="Bench.end")


def by_stage(bench: Bench, level: Transaction, count: int) -> float:
    """Messages a second through one stage that does the same as the loop by hand."""
    flows = Flows(
        bench.url,
        database=bench.database,
        prefix=f"stage{next(_names)}.",
        policy=Policy(transaction=level, concurrency=bench.workers),
    )
    bench.source().close()
    progress = Progress(count)

    @flows.single("Bench.one")
    def one(context: Context[None], order: Order) -> Order:
        context.database.exec_driver_sql(UPDATE.format(order.item))
        context.after_commit(progress.add)
        return order

    begin_all(flows, bench, "Bench.one", count)
    return timed(flows, progress)


def by_flow(bench: Bench, level: Transaction, count: int, batch: int = 1) -> float:
    """Flows a second through three stages, which take and send so many together."""
    flows = Flows(
        bench.url,
        database=None if level is Transaction.MESSAGING else bench.database,
        prefix=f"flow{next(_names)}.",
        policy=Policy(transaction=level, concurrency=bench.workers, batch_max=batch, bundle_max=batch),
    )
    bench.source().close()
    progress = Progress(count)
    endpoint = flows.endpoint("Bench.three")

    def work(context: Context[None], order: Order) -> None:
        if level is not Transaction.MESSAGING:
            context.database.exec_driver_sql(UPDATE.format(order.item))

    @endpoint.stage
    def first(context: Context[None], order: Order) -> None:
        work(context, order)
        context.next(order)

    @endpoint.stage
    def second(context: Context[None], order: Order) -> None:
        work(context, order)
        context.next(order)

    @endpoint.last_stage
    def third(context: Context[None], order: Order) -> Order:
        work(context, order)
        context.after_commit(progress.add)
        return order

    begin_all(flows, bench, "Bench.three", count)
    return timed(flows, progress)


def flows_of(benches: dict[str, Bench]) -> Iterator[tuple[str, Bench, Transaction]]:
    """What flows of three stages are measured in."""
    yield Transaction.MESSAGING, benches["sqlite"], Transaction.MESSAGING
    for kind, level in itertools.product(KINDS, LEVELS):
        yield f"{level}, {kind}", benches[kind], level


def timed(flows: Flows, progress: Progress) -> float:
    """Messages, or flows, a second."""
    with flows:
        return progress.wait()


@contextmanager
def databases(path: Path) -> Iterator[Callable[[str], str]]:
    """Gives a new database of a kind."""
    with postgres_server() as server:

        def make(kind: str, server: Server = server) -> str:
            name = f"bench{next(_names)}"
            return f"sqlite:///{path}/{name}.db" if kind == "sqlite" else server.create(name)

        yield make


def main() -> None:
    """Command line."""
    parser = options(__doc__, count=1000)
    parser.add_argument("--workers", type=int, default=4, help="threads of each stage, and of the loop by hand")
    parser.add_argument("--flows", type=int, default=300, help="flows of three stages in a run, 0 for none")
    given = parser.parse_args()
    order = Order(0, "x" * given.size)
    with temporary_store() as path, broker(LEGATO, path / "store") as running, databases(path) as make:
        url = f"amqp://127.0.0.1:{running.port}"
        rows: list[list[object]] = []
        benches = {kind: Bench(url, make(kind), given.workers, order) for kind in KINDS}
        for name, bench, level in flows_of(benches) if given.flows else ():
            rows.append([f"flows/s, {name}", by_flow(bench, level, given.flows)])
            note(f"{rows[-1][0]}: {rows[-1][1]:,.0f}")
            if bench is benches["postgresql"]:
                continue  # Batches of several stages would update the same rows in different orders, and deadlock.
            rows.append([f"flows/s, {name}, in bundles", by_flow(bench, level, BUNDLED * given.flows, BATCH)])
            note(f"{rows[-1][0]}: {rows[-1][1]:,.0f}")
        worst = None
        for kind, level in itertools.product(KINDS, LEVELS):
            pairs = interleave(
                partial(by_hand, benches[kind], given.count),
                partial(by_stage, benches[kind], level, given.count),
                given.pairs,
            )
            middle = spread([pair.ratio for pair in pairs]).median
            rows.append([f"by hand over stage, {level}, {kind}", middle])
            note(f"{rows[-1][0]}: {middle:.2f}")
            if worst is None or middle > worst[0]:
                worst = (middle, f"{level} on {kind}", pairs)
    assert worst is not None
    finish_pairs(
        "P14",
        f"messages a second by a loop written by hand over those by a stage with {worst[1]}, which does worst, "
        f"{given.workers} threads",
        ("by hand", "stage"),
        worst[2],
        Goal(1.5, at_least=False),
        unit="1/s",
        remark=table(["", "median"], rows),
        rows={str(name): value for name, value in rows},
    )


if __name__ == "__main__":
    main()
