"""Producing clients of a drill, with threads: they number their messages and record the outcome of each."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from legato.client import Connection, JMSError, Message, MessageProducer, Session, TextMessage
from legato.drill.client_totals import Counts
from legato.drill.load import Client, Trait, Work
from legato.drill.messages import make_message
from legato.drill.records import REFUSED, SENDING, STORED, UNSURE, Identity, RecordWriter
from legato.errors import ResourceAllocationError, TransactionRolledBackError
from legato.failpoints import DrillOrders, Point

MESSAGES_PER_COMMIT = 10
THOUSANDS_PER_COMMIT = 1_200
THOUSANDS_RATE = 12
"""Who sends so many in a transaction sends that much faster."""
LARGE_ONE_IN = 40
"""Large messages are that much rarer."""


class Letters:
    """Messages of one producer, and its record of them.

    Args:
        rate_per_s: messages a second, or less if the broker does not take so many.
        drill_orders: holds the process where the drill wants it.
        lenient: whether its failover contract lets calls raise that `legato`'s lets go on.
    """

    def __init__(
        self,
        client: Client,
        record: RecordWriter,
        counts: Counts,
        rate_per_s: float,
        *,
        drill_orders: DrillOrders | None = None,
        lenient: bool = False,
    ) -> None:
        is_bulky = client.trait is Trait.THOUSANDS
        self.interval_s = (LARGE_ONE_IN if client.trait is Trait.LARGE else 1) / rate_per_s
        if is_bulky:
            self.interval_s /= THOUSANDS_RATE
        self.messages_per_commit = THOUSANDS_PER_COMMIT if is_bulky else MESSAGES_PER_COMMIT
        self.lenient = lenient
        self._client = client
        self._record = record
        self._counts = counts
        self._drill_orders = drill_orders
        self._number = record.last_number
        self._replaying = False

    def next(self) -> tuple[int, TextMessage, dict[str, Any]]:
        """Its number, the message, and how to send it; it is on record before it is sent."""
        self._number += 1
        message, how = make_message(Identity(self._client.name, self._number), self._client.trait)
        self._record.sent(SENDING, [self._number])
        return self._number, message, how

    def told(self, numbers: list[int], error: JMSError | None = None) -> None:
        """The outcome of a send: refused for certain only if the broker says that it has no room."""
        if error is None:
            self._counts.add("stored", len(numbers))
        outcome = STORED if error is None else REFUSED if isinstance(error, ResourceAllocationError) else UNSURE
        self._record.sent(outcome, numbers)

    def completed(self, number: int, message: Message, error: JMSError | None) -> None:
        """A completion listener, but for the number."""
        self.told([number], error)

    def given_up(self, numbers: list[int], error: JMSError) -> bool:
        """A transaction was rolled back: whether to give it up, as every other time, or to replay it (CONTRACT A16)."""
        self._counts.add("rolled_back")
        if self.lenient:
            self._record.sent(UNSURE, numbers)
            return True
        if not isinstance(error, TransactionRolledBackError):
            raise error
        self._replaying = not self._replaying
        if not self._replaying:
            self._record.sent(REFUSED, numbers)
        return not self._replaying

    def hit(self, point: Point) -> None:
        """The client is at a point of the drill's."""
        if self._drill_orders is not None:
            self._drill_orders.hit(point)


class Sender:
    """One producing client, until it is asked to stop."""

    def __init__(self, client: Client, connection: Connection, letters: Letters) -> None:
        self._client = client
        self._connection = connection
        self._letters = letters

    def run(self, stop: threading.Event) -> None:
        """Send until `stop` is set, then wait for what is not confirmed yet."""
        transacted = self._client.work is Work.SEND_TRANSACTED
        works: dict[Work, Callable[[Session, MessageProducer, threading.Event], None]] = {
            Work.SEND: self._send_and_wait,
            Work.SEND_ASYNC: self._send_async,
            Work.SEND_TRANSACTED: self._send_transacted,
        }
        with self._connection.create_session(transacted=transacted) as session:
            make = session.create_topic if self._client.topic else session.create_queue
            producer = session.create_producer(make(self._client.flow))
            works[self._client.work](session, producer, stop)

    def _send_and_wait(self, session: Session, producer: MessageProducer, stop: threading.Event) -> None:
        while not stop.wait(self._letters.interval_s):
            number, message, how = self._letters.next()
            try:
                producer.send(message, **how)
            except JMSError as error:
                self._letters.told([number], error)
            else:
                self._letters.told([number])

    def _send_async(self, session: Session, producer: MessageProducer, stop: threading.Event) -> None:
        while not stop.wait(self._letters.interval_s):
            number, message, how = self._letters.next()
            producer.send(message, completion_listener=partial(self._letters.completed, number), **how)
            self._letters.hit(Point.BETWEEN_SEND_AND_CONFIRM)
        producer.flush()

    def _send_transacted(self, session: Session, producer: MessageProducer, stop: threading.Event) -> None:
        count = self._letters.messages_per_commit
        while not stop.wait(self._letters.interval_s * count):
            numbers: list[int] = []
            for _ in range(count):
                number, message, how = self._letters.next()
                numbers.append(number)
                producer.send(message, **how)
            while True:
                try:
                    session.commit()
                    self._letters.told(numbers)
                    break
                except JMSError as error:
                    if self._letters.given_up(numbers, error):
                        break
                    session.replay()
