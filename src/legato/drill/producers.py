"""The clients of a drill that send: each numbers its messages, and puts on record what it is told of them."""

import threading
from collections.abc import Callable
from functools import partial

from legato.client import Connection, JMSError, Message, MessageProducer, Session, TextMessage
from legato.drill.flows import Counts
from legato.drill.load import Client, Work
from legato.drill.records import REFUSED, STORED, UNSURE, Identity, RecordWriter
from legato.errors import ResourceAllocationError, TransactionRolledBackError

MESSAGES_PER_COMMIT = 10
PADDING_BYTES = 200


def text_of(identity: Identity, padding_bytes: int = PADDING_BYTES) -> str:
    """The body of a message: who sent it, as which of its messages, and some weight."""
    return f"{identity.producer} {identity.number} {'.' * padding_bytes}"


def identity_of(message: Message) -> Identity:
    """Which message this is."""
    producer, number, _ = str(message.body).split(" ", 2)
    return Identity(producer, int(number))


class Sender:
    """One producing client, until it is asked to stop.

    Args:
        rate_per_s: messages a second, or less if the broker does not take so many.
    """

    def __init__(
        self, client: Client, connection: Connection, record: RecordWriter, counts: Counts, rate_per_s: float
    ) -> None:
        self._client = client
        self._connection = connection
        self._record = record
        self._counts = counts
        self._interval_s = 1.0 / rate_per_s
        self._number = 0

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

    def _next(self) -> tuple[int, TextMessage]:
        self._number += 1
        return self._number, TextMessage(text_of(Identity(self._client.name, self._number)))

    def _told(self, numbers: list[int], error: JMSError | None) -> None:
        """The outcome of a send: refused for certain only if the broker says that it has no room."""
        if error is None:
            self._counts.add("stored", len(numbers))
        outcome = STORED if error is None else REFUSED if isinstance(error, ResourceAllocationError) else UNSURE
        self._record.sent(outcome, numbers)

    def _send_and_wait(self, session: Session, producer: MessageProducer, stop: threading.Event) -> None:
        while not stop.wait(self._interval_s):
            number, message = self._next()
            try:
                producer.send(message)
            except JMSError as error:
                self._told([number], error)
            else:
                self._told([number], None)

    def _send_async(self, session: Session, producer: MessageProducer, stop: threading.Event) -> None:
        def completed(number: int, message: Message, error: JMSError | None) -> None:
            self._told([number], error)

        while not stop.wait(self._interval_s):
            number, message = self._next()
            producer.send(message, completion_listener=partial(completed, number))
        producer.flush()

    def _send_transacted(self, session: Session, producer: MessageProducer, stop: threading.Event) -> None:
        """What a failover rolled back is replayed, or, every other time, given up (CONTRACT A16)."""
        replaying = False
        while not stop.wait(self._interval_s * MESSAGES_PER_COMMIT):
            numbers: list[int] = []
            for _ in range(MESSAGES_PER_COMMIT):
                number, message = self._next()
                producer.send(message)
                numbers.append(number)
            while True:
                try:
                    session.commit()
                    self._told(numbers, None)
                    break
                except TransactionRolledBackError:
                    self._counts.add("rolled_back")
                    replaying = not replaying
                    if not replaying:
                        self._record.sent(REFUSED, numbers)
                        break
                    session.replay()
