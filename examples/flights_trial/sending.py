"""Sends the flights in the order of their departure, as far as it may, and reads the alerts."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Sequence

from legato.client import ConnectionFactory, TextMessage
from legato.demo.records import Flight, encode_flight, load_flights
from legato.errors import LegatoError

FLIGHTS_QUEUE, ALERTS_QUEUE = "flights", "alerts"
PER_S = 2_000
FIRST_ALERT_WAIT_S, NEXT_ALERT_WAIT_S = 10.0, 1.0


def flights_in_order(count: int) -> list[Flight]:
    """The first flights of the data, in the order in which they should have left."""
    return sorted(load_flights(count), key=lambda each: (each.month, each.day, each.sched_dep_time, each.row))


def closing(last: Flight) -> str:
    """A message of a day later: Spark closes windows when it sees that time has gone on. Its own stays open."""
    day = dt.date(last.year, last.month, last.day) + dt.timedelta(days=2)
    return f'{{"year": {day.year}, "month": {day.month}, "day": {day.day}, "sched_dep_time": 0}}'


class Confirmations:
    """What the broker said of what was sent without waiting for it (Jakarta Messaging 7.3)."""

    def __init__(self) -> None:
        self.count = 0
        self.error: Exception | None = None

    def on_completion(self, message: object) -> None:
        """The broker has the message."""
        self.count += 1

    def on_exception(self, message: object, error: Exception) -> None:
        """The broker refused it."""
        self.error = error


class Sender:
    """A producer in a thread of its own, that sends no further than it is allowed to.

    Args:
        flights: what it sends.
        per_s: how many in a second at most.
    """

    def __init__(self, url: str, flights: Sequence[Flight], per_s: float = PER_S) -> None:
        self._url = url
        self._flights = flights
        self._per_s = per_s
        self._may_go_on = threading.Condition()
        self._allowed = 0
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
        self._confirmations = Confirmations()

    @property
    def sent(self) -> int:
        """How many the broker has confirmed."""
        return self._confirmations.count

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def join(self) -> None:
        """Wait until all is sent and confirmed."""
        self._thread.join()
        self.check()

    def allow(self, count: int) -> None:
        """Let it send so many in all."""
        with self._may_go_on:
            self._allowed = count
            self._may_go_on.notify_all()

    def check(self) -> None:
        """See that it is well.

        Raises:
            LegatoError: it is not.
        """
        if self._confirmations.error is not None:
            raise self._confirmations.error

    def _run(self) -> None:
        try:
            self._send_all()
        except LegatoError as error:
            self._confirmations.error = error

    def _send_all(self) -> None:
        with ConnectionFactory(self._url).create_connection() as connection, connection.create_session() as session:
            producer = session.create_producer(session.create_queue(FLIGHTS_QUEUE))
            due_s = time.monotonic()
            for number, flight in enumerate(self._flights):
                with self._may_go_on:
                    while number >= self._allowed:
                        self._may_go_on.wait()
                due_s = max(due_s + 1 / self._per_s, time.monotonic() - 0.1)
                if (ahead_s := due_s - time.monotonic()) > 0.01:
                    time.sleep(ahead_s)
                producer.send(TextMessage(encode_flight(flight).decode()), completion_listener=self._confirmations)
            producer.send(TextMessage(closing(self._flights[-1])))
            producer.flush()


def read_alerts(url: str) -> list[str]:
    """The alerts that wait, consumed."""
    found: list[str] = []
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        consumer = session.create_consumer(session.create_queue(ALERTS_QUEUE))
        connection.start()
        while (message := consumer.receive(timeout_s=NEXT_ALERT_WAIT_S if found else FIRST_ALERT_WAIT_S)) is not None:
            assert isinstance(message, TextMessage)
            assert message.body is not None
            found.append(message.body)
    return found
