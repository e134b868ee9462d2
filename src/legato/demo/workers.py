"""A worker process: a flow of three stages for each flight: make its record, add to its carrier's totals, send on."""

import threading

from legato.demo.carriers import add_to_totals
from legato.demo.options import DEPARTURES_QUEUE, FLIGHTS_QUEUE
from legato.demo.records import Departure, Flight, departure_of
from legato.demo.reports import Processed
from legato.demo.roles import Orders, perform, reporting
from legato.flows import Context, Flows, Policy, Transaction
from legato.processes.reports import stop_requested


class Tally:
    """The flights whose records this process has sent on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.flights = 0

    def count(self) -> None:
        """One more."""
        with self._lock:
            self.flights += 1


def make_flows(orders: Orders, tally: Tally) -> Flows:
    """The service: what a developer writes, and all of it.

    Nothing here knows of failovers. The stage that writes has inbox and outbox, as any of a service with a database;
    the others touch none, so that receiving and sending in one transaction of the broker is exactly once already. A
    stage's transaction is many flights', as one commit is one fsync, and what a transaction sends to the next stage is
    one message. The flights themselves come from producers that know nothing of flows, and so the records leave.
    """
    flows = Flows(
        orders.url,
        database=orders.database,
        name="flights",
        prefix="",
        policy=Policy(
            concurrency=orders.sessions,
            batch_max=orders.flights_per_commit,
            bundle_max=orders.flights_per_commit,
        ),
    )
    flight_flow = flows.endpoint(FLIGHTS_QUEUE, plain=True)

    @flight_flow.stage(transaction=Transaction.MESSAGING)
    def compute(context: Context[None], flight: Flight) -> None:
        context.next(departure_of(flight))

    @flight_flow.stage
    def add(context: Context[None], departure: Departure) -> None:
        add_to_totals(context.dbapi_connection, departure)
        context.next(departure)

    @flight_flow.last_stage(transaction=Transaction.MESSAGING)
    def send_on(context: Context[None], departure: Departure) -> None:
        context.send_message(DEPARTURES_QUEUE, departure)
        context.after_commit(tally.count)

    return flows


def work(orders: Orders) -> None:
    """Run the service until the parent asks to stop."""
    stop = stop_requested()
    tally = Tally()
    with (
        make_flows(orders, tally) as flows,
        reporting(flows.connection(), lambda: Processed(flights=tally.flights)),
    ):
        stop.wait()


if __name__ == "__main__":
    perform(work)
