"""Disk filler: messages that fill the store, and are drained again afterwards."""

from pathlib import Path

from legato.client import ConnectionFactory, JMSError, TextMessage
from legato.drill.messages import identity_of, text_of
from legato.drill.records import REFUSED, STORED, UNSURE, Consuming, Identity, Producing, RecordWriter
from legato.errors import ResourceAllocationError

MESSAGE_BYTES = 200_000
MESSAGES_MAX = 500
"""100 MB: what finds more room than that is not full."""
DRAIN_WAIT_S = 5.0
NAME = "ballast"


class DiskFiller:
    """A queue that is filled until the broker refuses.

    Args:
        url: where the brokers are.
        records: directory of the clients' records.
        queue: the queue's name.
    """

    def __init__(self, url: str, records: Path, queue: str) -> None:
        self._url = url
        self._records = records
        self._queue = queue
        self._number = 0
        self._received: set[Identity] = set()
        self._stored: set[Identity] = set()
        self.refused = 0
        """How often the broker had no room."""

    def load(self) -> None:
        """Send until the broker refuses."""
        with (
            ConnectionFactory(self._url).create_connection() as connection,
            connection.create_session() as session,
            RecordWriter(self._records, NAME, Producing(NAME, self._queue)) as record,
        ):
            producer = session.create_producer(session.create_queue(self._queue))
            for _ in range(MESSAGES_MAX):
                self._number += 1
                identity = Identity(NAME, self._number)
                try:
                    producer.send(TextMessage(text_of(identity, MESSAGE_BYTES)))
                except ResourceAllocationError:
                    record.sent(REFUSED, [identity.number])
                    self.refused += 1
                    return
                except JMSError:
                    record.sent(UNSURE, [identity.number])
                    return
                record.sent(STORED, [identity.number])
                self._stored.add(identity)

    def unload(self) -> None:
        """Receive what was stored, as far as it comes."""
        with (
            ConnectionFactory(self._url).create_connection() as connection,
            connection.create_session() as session,
            RecordWriter(self._records, f"{NAME}-consumer", Consuming(self._queue, self._queue, told=False)) as record,
        ):
            consumer = session.create_consumer(session.create_queue(self._queue), prefetch=10)
            connection.start()
            while not self._stored <= self._received:
                message = consumer.receive(timeout_s=DRAIN_WAIT_S)
                if message is None:
                    return
                identity = identity_of(message)
                record.seen(identity, message.redelivered)
                self._received.add(identity)
