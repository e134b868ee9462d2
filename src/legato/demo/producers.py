"""A producer process: sends its share of the flights as durable messages, many in flight."""

import threading

from legato.client import Connection, TextMessage
from legato.demo.options import FLIGHTS_QUEUE
from legato.demo.records import encode_flight, load_flights
from legato.demo.reports import Sent
from legato.demo.roles import Orders, connected, perform, reporting


class Confirmations:
    """Counts what the broker confirmed; the client calls it from a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0
        self.error: Exception | None = None

    def on_completion(self, message: object) -> None:
        """Jakarta Messaging 7.3: the broker has the message."""
        with self._lock:
            self.count += 1

    def on_exception(self, message: object, error: Exception) -> None:
        """Jakarta Messaging 7.3: the broker refused it."""
        self.error = error


def produce(orders: Orders, connection: Connection) -> None:
    """Send every `members`-th flight, from `number` on.

    A failover needs nothing here: the client sends the unconfirmed ones again, the broker stores each once.
    """
    confirmations = Confirmations()
    with connection.create_session() as session, reporting(connection, lambda: Sent(confirmed=confirmations.count)):
        producer = session.create_producer(session.create_queue(FLIGHTS_QUEUE))
        for index, flight in enumerate(load_flights(orders.flights)):
            if index % orders.members != orders.number:
                continue
            producer.send(TextMessage(encode_flight(flight).decode()), completion_listener=confirmations)
            if confirmations.error is not None:
                raise confirmations.error
        producer.flush()
        if confirmations.error is not None:
            raise confirmations.error


if __name__ == "__main__":
    perform(connected(produce))
