"""A client process: each of its clients has a connection, a thread and record files of its own."""

import asyncio
import faulthandler
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path

import msgspec

from legato.client import Connection, ConnectionFactory, FailoverEvent, aio
from legato.drill.administrators import Administrator
from legato.drill.asyncio_clients import TaskGetter, send
from legato.drill.cancelled_client import CancellingForwarder
from legato.drill.client_history import ClientHistory, head_of
from legato.drill.client_totals import Counts, FlowProgress
from legato.drill.consumers import Getter
from legato.drill.interrupted_client import InterruptedAcknowledger, InterruptedClient, InterruptedForwarder
from legato.drill.load import ADMINISTERS, END_TO_END, FORWARDS, Client, Work
from legato.drill.producers import Letters, Sender
from legato.drill.records import Consuming, Producing, RecordWriter
from legato.drill.reports import ClientFailedOver, Ready
from legato.errors import LegatoError
from legato.failpoints import DrillOrders
from legato.processes.reports import Failed, Finished, report, stop_requested

REPORT_INTERVAL_S = 0.2


class Orders(msgspec.Struct):
    """Orders of the drill to a process, on its command line.

    Args:
        rate_per_s: messages a second of each producer.
        lenient: whether the failover contract lets calls raise that `legato`'s lets go on.
    """

    url: str
    records: str
    clients: list[Client]
    rate_per_s: float
    lenient: bool = False


class Process:
    """The clients of this process, and what they share."""

    def __init__(self, orders: Orders, stop: threading.Event, stack: ExitStack) -> None:
        self._orders = orders
        self._stop = stop
        self._stack = stack
        self._records = Path(orders.records)
        self._flows = FlowProgress(orders.clients, self._records)
        self._drill_orders = DrillOrders.of_environment()
        self._prepared = threading.Barrier(sum(client.asyncio for client in orders.clients) + 1)
        self._connections: list[tuple[str, Connection | aio.Connection]] = []
        self.counts = Counts()

    def perform(self) -> None:
        """Run all clients until the drill asks to stop; the first that fails ends the process.

        Raises:
            LegatoError: a client cannot go on.
        """
        clients = self._orders.clients
        with ThreadPoolExecutor(len(clients)) as threads:
            works = [self._prepare(client) for client in clients if not client.asyncio and not _is_main(client)]
            main_works = [self._prepare(client) for client in clients if _is_main(client)]
            running = [threads.submit(self._run_task, client) for client in clients if client.asyncio]
            self._prepared.wait()
            report(Ready())
            ended = threading.Event()
            telling = threading.Thread(target=self._tell, args=(ended,), daemon=True)
            telling.start()
            running += [threads.submit(work) for work in works]
            try:
                for work in main_works:
                    work()
                for client in as_completed(running):
                    client.result()
            finally:
                self._stop.set()
                ended.set()
                telling.join()

    def _prepare(self, client: Client) -> Callable[[], None]:
        """Make what the client needs before it runs: consumers exist, and subscriptions, when others begin to send."""
        if client.work in ADMINISTERS:
            administrator = Administrator(client, self._orders.url)
            return lambda: administrator.run(self._stop)
        if client.work is Work.STAGES:
            from legato.drill.flow_service import Service

            service = Service(client, self._orders.url, self._records.parent, self._flows)
            self._connections.append((client.name, service.connection))
            return lambda: service.run(self._stop)
        connection = ConnectionFactory(self._url_of(client)).create_connection()
        self._stack.enter_context(connection)
        self._connections.append((client.name, connection))
        if client.sends:
            sender = Sender(client, connection, self._letters_of(client))
            return lambda: sender.run(self._stop)
        account, forwarded, lenient = self._account_of(client), self._forwarded_by(client), self._orders.lenient
        getter: Getter | InterruptedClient
        if client.work is Work.INTERRUPT:
            assert forwarded is not None
            getter = InterruptedForwarder(client, connection, account, forwarded=forwarded, lenient=lenient)
        elif client.work is Work.INTERRUPT_CLIENT:
            getter = InterruptedAcknowledger(client, connection, account, lenient=lenient)
        else:
            getter = Getter(client, connection, account, forwarded=forwarded, lenient=lenient)

        def run() -> None:
            getter.run(self._stop)
            getter.close()
            self._ended(client)

        return run

    def _run_task(self, client: Client) -> None:
        """A client for asyncio, in an event loop and a thread of its own."""
        try:
            asyncio.run(self._task(client))
        except BaseException:
            self._prepared.abort()
            raise

    async def _task(self, client: Client) -> None:
        loop = asyncio.get_running_loop()
        async with aio.ConnectionFactory(self._url_of(client)).create_connection() as connection:
            self._connections.append((client.name, connection))
            if client.sends:
                letters = self._letters_of(client)
                await loop.run_in_executor(None, self._prepared.wait)
                await send(client, connection, letters, self._stop)
                return
            getter = await self._task_getter(client, connection)
            await loop.run_in_executor(None, self._prepared.wait)
            await getter.run(self._stop)
        self._ended(client)

    async def _task_getter(self, client: Client, connection: aio.Connection) -> TaskGetter | CancellingForwarder:
        account, forwarded = self._account_of(client), self._forwarded_by(client)
        lenient = self._orders.lenient
        if client.work is Work.CANCEL:
            assert forwarded is not None
            return await CancellingForwarder.create(client, connection, account, forwarded=forwarded, lenient=lenient)
        return await TaskGetter.create(client, connection, account, forwarded=forwarded, lenient=lenient)

    def _ended(self, client: Client) -> None:
        if client.work in FORWARDS:
            self._flows.fed(client.to)

    def _url_of(self, client: Client) -> str:
        url = self._orders.url
        if client.subscription and not client.shared:
            url += f"{'&' if '?' in url else '?'}client_id=drill-{client.flow}-{client.name}"
        return url

    def _record(self, name: str, head: Producing | Consuming) -> RecordWriter:
        return self._stack.enter_context(RecordWriter(self._records, name, head))

    def _letters_of(self, client: Client) -> Letters:
        record = self._record(client.name, Producing(client.name, client.flow))
        rate, lenient = self._orders.rate_per_s, self._orders.lenient
        return Letters(client, record, self.counts, rate, drill_orders=self._drill_orders, lenient=lenient)

    def _account_of(self, client: Client) -> ClientHistory:
        record = self._record(client.name, head_of(client))
        end_to_end = None
        if client.of:
            head = Consuming(f"{client.of}/{END_TO_END}", client.of, exactly_once=True)
            end_to_end = self._record(f"{client.name}-{END_TO_END}", head)
        return ClientHistory(
            client, record, self._flows, self.counts, end_to_end=end_to_end, drill_orders=self._drill_orders
        )

    def _forwarded_by(self, client: Client) -> RecordWriter | None:
        return self._record(f"{client.name}-sent", Producing(client.name, client.to)) if client.to else None

    def _tell(self, ended: threading.Event) -> None:
        told: dict[str, FailoverEvent] = {}
        while True:
            over = ended.wait(REPORT_INTERVAL_S)
            report(self.counts.report())
            for name, connection in list(self._connections):
                for failover in _newer(list(connection.failovers), told.get(name)):
                    told[name] = failover
                    report(ClientFailedOver(client=name, gap_ms=failover.gap_ms, epoch=failover.new_epoch))
            if over:
                return


def _is_main(client: Client) -> bool:
    """Whether it is to run in the main thread, where handlers of signals run; of those a process has one."""
    return client.work in (Work.INTERRUPT, Work.INTERRUPT_CLIENT)


def _newer(failovers: list[FailoverEvent], told: FailoverEvent | None) -> list[FailoverEvent]:
    """Failovers after the one that was reported last; a connection keeps only the last ones."""
    behind = next((index + 1 for index, each in enumerate(failovers) if each is told), 0)
    return failovers[behind:]


def main() -> None:
    """Entry point of `python -m legato.drill.clients ORDERS`; SIGUSR1 makes it log where its threads are."""
    faulthandler.register(signal.SIGUSR1)
    try:
        with ExitStack() as stack:
            Process(msgspec.json.decode(sys.argv[1], type=Orders), stop_requested(), stack).perform()
    except LegatoError as error:
        report(Failed(reason=str(error)))
        sys.exit(1)
    report(Finished())


if __name__ == "__main__":
    main()
