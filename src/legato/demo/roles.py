"""Base of producers, workers and the collector: orders, reports, shutdown."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from legato.client import Connection, ConnectionFactory
from legato.demo.reports import FailedOver
from legato.errors import LegatoError
from legato.processes.reports import Failed, Finished, Report, report

REPORT_INTERVAL_S = 0.1


class Orders(msgspec.Struct):
    """Orders of the parent to a process, on its command line.

    `number` of `members` processes of the same kind: a producer sends every `members`-th flight. `directory` is the
    collector's, `database` the URL of the workers'.
    """

    url: str
    number: int
    members: int
    flights: int
    sessions: int
    flights_per_commit: int
    directory: str
    database: str


def read_orders() -> Orders:
    """The orders from the command line."""
    return msgspec.json.decode(sys.argv[1], type=Orders)


@contextmanager
def reporting(connection: Connection, progress: Callable[[], Report]) -> Iterator[None]:
    """Report `progress()` and the connection's failovers while the block runs, and once at its end."""
    ended = threading.Event()
    failovers_told = 0

    def tell() -> None:
        nonlocal failovers_told
        report(progress())
        for failover in connection.failovers[failovers_told:]:
            report(FailedOver(gap_ms=failover.gap_ms, epoch=failover.new_epoch))
            failovers_told += 1

    def repeat() -> None:
        while not ended.wait(REPORT_INTERVAL_S):
            tell()

    thread = threading.Thread(target=repeat, name="report", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        tell()


def connected(role: Callable[[Orders, Connection], None]) -> Callable[[Orders], None]:
    """A role that works over a connection of its own."""

    def work(orders: Orders) -> None:
        with ConnectionFactory(orders.url).create_connection() as connection:
            connection.start()
            role(orders, connection)

    return work


def perform(role: Callable[[Orders], None]) -> None:
    """Run a role and end the process: 0 if it finished, 1 with a sentence if not."""
    orders = read_orders()
    try:
        role(orders)
    except LegatoError as error:
        report(Failed(reason=str(error)))
        sys.exit(1)
    report(Finished())
