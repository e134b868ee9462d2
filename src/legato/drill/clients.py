"""A process of clients: each has a connection, a thread and a file of records of its own."""

import faulthandler
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path

import msgspec

from legato.client import Connection, ConnectionFactory
from legato.demo.reports import Failed, FailedOver, Finished
from legato.demo.roles import report, stop_requested
from legato.drill.consumers import TOLD, Getter, subscription_name
from legato.drill.flows import Counts, Flows
from legato.drill.load import Client, Work
from legato.drill.producers import Sender
from legato.drill.records import Consuming, Producing, RecordWriter
from legato.drill.reports import Ready
from legato.errors import LegatoError
from legato.points import Rig

REPORT_INTERVAL_S = 0.2


class Orders(msgspec.Struct):
    """What the drill tells a process on its command line; `rate_per_s` is that of each producer."""

    url: str
    records: str
    clients: list[Client]
    rate_per_s: float


def perform(orders: Orders) -> None:
    """Run all clients until the drill asks to stop; the first that fails ends the process.

    Raises:
        LegatoError: a client cannot go on.
    """
    stop = stop_requested()
    records, counts = Path(orders.records), Counts()
    flows = Flows(orders.clients, records)
    with ExitStack() as stack, ThreadPoolExecutor(len(orders.clients)) as threads:
        connections = [stack.enter_context(_connect(orders.url, client)) for client in orders.clients]
        runs = [
            _prepare(client, connection, records, flows, counts, orders.rate_per_s, stack)
            for client, connection in zip(orders.clients, connections, strict=True)
        ]
        report(Ready())
        ended = threading.Event()
        telling = threading.Thread(target=_tell, args=(connections, counts, ended), daemon=True)
        telling.start()
        running = [threads.submit(run, stop) for run in runs]
        try:
            for client in as_completed(running):
                client.result()
        finally:
            stop.set()
            ended.set()
            telling.join()


def _connect(url: str, client: Client) -> Connection:
    if client.subscription and not client.shared:
        url += f"{'&' if '?' in url else '?'}client_id=drill-{client.flow}-{client.name}"
    return ConnectionFactory(url).create_connection()


def _prepare(
    client: Client,
    connection: Connection,
    records: Path,
    flows: Flows,
    counts: Counts,
    rate_per_s: float,
    stack: ExitStack,
) -> Callable[[threading.Event], None]:
    """Make what the client needs before it runs: consumers exist, and subscriptions, when others begin to send."""
    if client.sends:
        record = stack.enter_context(RecordWriter(records, client.name, Producing(client.name, client.flow)))
        return Sender(client, connection, record, counts, rate_per_s).run
    head = Consuming(subscription_name(client), client.flow, told=client.work in TOLD)
    record = stack.enter_context(RecordWriter(records, client.name, head))
    forwarded = None
    if client.to:
        forwarded = stack.enter_context(RecordWriter(records, f"{client.name}-sent", Producing(client.name, client.to)))
    getter = Getter(client, connection, record, flows, counts, forwarded=forwarded, rig=Rig.of_environment())

    def run(stop: threading.Event) -> None:
        getter.run(stop)
        getter.close()
        if client.work is Work.FORWARD:
            flows.fed(client.to)

    return run


def _tell(connections: list[Connection], counts: Counts, ended: threading.Event) -> None:
    told = [0] * len(connections)
    while True:
        over = ended.wait(REPORT_INTERVAL_S)
        report(counts.report())
        for index, connection in enumerate(connections):
            failovers = connection.failovers[told[index] :]
            told[index] += len(failovers)
            for failover in failovers:
                report(FailedOver(gap_ms=failover.gap_ms, epoch=failover.new_epoch))
        if over:
            return


def main() -> None:
    """Entry point of `python -m legato.drill.clients ORDERS`; SIGUSR1 makes it log where its threads are."""
    faulthandler.register(signal.SIGUSR1)
    try:
        perform(msgspec.json.decode(sys.argv[1], type=Orders))
    except LegatoError as error:
        report(Failed(reason=str(error)))
        sys.exit(1)
    report(Finished())


if __name__ == "__main__":
    main()
