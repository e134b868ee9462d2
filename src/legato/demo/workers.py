"""A worker process: several transacted sessions turn flights into departure records."""

import threading
from concurrent.futures import ThreadPoolExecutor

from legato.client import Connection, MessageConsumer, TextMessage
from legato.demo.options import DEPARTURES_QUEUE, FLIGHTS_QUEUE
from legato.demo.records import decode_flight, departure_of, encode_departure
from legato.demo.reports import Processed
from legato.demo.roles import Orders, perform, reporting, stop_requested
from legato.errors import TransactionRolledBackError

FIRST_WAIT_S = 0.25
NEXT_WAIT_S = 0.02


class Tally:
    """What the sessions of this process did, together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.flights = 0
        self.rolled_back = 0

    def committed(self, flights: int) -> None:
        """Count the flights of a committed transaction."""
        with self._lock:
            self.flights += flights

    def lost_one(self) -> None:
        """Count a transaction that a failover rolled back."""
        with self._lock:
            self.rolled_back += 1

    def report(self) -> Processed:
        """The totals so far."""
        return Processed(flights=self.flights, rolled_back=self.rolled_back)


def work(orders: Orders, connection: Connection) -> None:
    """Run the sessions until the parent asks to stop."""
    stop = stop_requested()
    tally = Tally()
    with reporting(connection, tally.report), ThreadPoolExecutor(orders.sessions) as threads:
        running = [
            threads.submit(run_session, connection, orders.flights_per_commit, tally, stop)
            for _ in range(orders.sessions)
        ]
        for session in running:
            try:
                session.result()
            finally:
                stop.set()


def run_session(connection: Connection, flights_per_commit: int, tally: Tally, stop: threading.Event) -> None:
    """Receive flights, send a departure record for each, commit; many to a transaction, as one commit is one fsync.

    This is all that a failover asks of an application: a rolled back transaction's flights come again, so its records
    are computed and sent again, and neither side ever sees half of one.
    """
    with connection.create_session(transacted=True) as session:
        flights = session.create_consumer(session.create_queue(FLIGHTS_QUEUE))
        departures = session.create_producer(session.create_queue(DEPARTURES_QUEUE))
        while not stop.is_set():
            try:
                messages = receive_some(flights, flights_per_commit)
                for message in messages:
                    departures.send(TextMessage(encode_departure(departure_of(decode_flight(message.body))).decode()))
                if messages:
                    session.commit()
                    tally.committed(len(messages))
            except TransactionRolledBackError:
                tally.lost_one()


def receive_some(consumer: MessageConsumer, limit: int) -> list[TextMessage]:
    """What is there, at most `limit` messages; waits a little for the first one only."""
    messages: list[TextMessage] = []
    while len(messages) < limit:
        message = consumer.receive(timeout_s=NEXT_WAIT_S if messages else FIRST_WAIT_S)
        if message is None:
            break
        assert isinstance(message, TextMessage)
        messages.append(message)
    return messages


if __name__ == "__main__":
    perform(work)
