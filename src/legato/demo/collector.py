"""The collector process: drains the queue of departure records into Parquet files, each record exactly once.

1. A file is written under another name, synced and renamed: it is there whole or not at all.
2. Its messages are acknowledged only after that. A failover in between brings them again.
3. So every record carries its message's id, and a message whose id is in a file already is acknowledged, not written.
   The ids are read back from the files when the process starts: its own death between 1 and 2 does no harm either.

A flight that was processed twice would have two messages with different ids: this hides no mistake of the broker.
"""

import os
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet

from legato.client import AcknowledgeMode, Connection, MessageConsumer, Session, TextMessage
from legato.demo.options import DEPARTURES_QUEUE
from legato.demo.records import decode_departure, departures_table
from legato.demo.reports import Collected
from legato.demo.roles import Orders, connected, perform, reporting
from legato.errors import IllegalStateError
from legato.processes.reports import stop_requested

RECORDS_PER_FILE = 2_000
WAIT_S = 0.25
FILE_AGE_MAX_S = 1.0
"""A slow stream still gets to disk, and is acknowledged, after so many seconds."""
DRAINED_AFTER_S = 1.0


class RecordFiles:
    """The Parquet files of a directory and the ids of the messages in them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        for unfinished in directory.glob("*.partial"):
            unfinished.unlink()
        self._ids: set[str] = set()
        files = sorted(directory.glob("*.parquet"))
        for file in files:
            self._ids.update(parquet.read_table(file, columns=["message_id"]).column(0).to_pylist())
        self._next_file = len(files)
        self.seen_again = 0

    def __len__(self) -> int:
        return len(self._ids)

    def write(self, messages: list[TextMessage]) -> None:
        """Write the messages that are in no file yet to a new one; on return they survive a power cut."""
        fresh: dict[str, TextMessage] = {}
        for message in messages:
            assert message.message_id is not None
            if message.message_id not in self._ids:
                fresh[message.message_id] = message
        self.seen_again += len(messages) - len(fresh)
        if not fresh:
            return
        table = departures_table([decode_departure(message.body) for message in fresh.values()])
        table = table.append_column("message_id", pa.array(list(fresh), pa.string()))
        final = self._directory / f"part-{self._next_file:06}.parquet"
        partial = final.with_suffix(".partial")
        with partial.open("wb") as file:
            parquet.write_table(table, file)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(final)
        _sync_directory(self._directory)
        self._next_file += 1
        self._ids.update(fresh)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def collect(orders: Orders, connection: Connection) -> None:
    """Collect until the parent asks to stop and the queue is empty."""
    stop = stop_requested()
    files = RecordFiles(Path(orders.directory))
    with (
        connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT) as session,
        reporting(connection, lambda: Collected(records=len(files), seen_again=files.seen_again)),
    ):
        queue = session.create_queue(DEPARTURES_QUEUE)
        # The next file's messages come while this one's are being written.
        consumer = session.create_consumer(queue, prefetch=2 * RECORDS_PER_FILE)
        while messages := gather(consumer, stop):
            files.write(messages)
            acknowledge(session, messages[-1])


def gather(consumer: MessageConsumer, stop: threading.Event) -> list[TextMessage]:
    """Messages for one file; none only if the parent asked to stop and no more come."""
    messages: list[TextMessage] = []
    first_at = 0.0
    while len(messages) < RECORDS_PER_FILE:
        message = consumer.receive(timeout_s=DRAINED_AFTER_S if stop.is_set() else WAIT_S)
        if message is not None:
            assert isinstance(message, TextMessage)
            first_at = first_at or time.monotonic()
            messages.append(message)
        elif messages or stop.is_set():
            break
        if messages and time.monotonic() - first_at > FILE_AGE_MAX_S:
            break
    return messages


def acknowledge(session: Session, last: TextMessage) -> None:
    """Acknowledge all that the session received (CONTRACT C7).

    After a failover some may have gone elsewhere; then recovering the session is the right answer (CONTRACT B15), and
    what comes again is recognised by its id.
    """
    try:
        last.acknowledge()
    except IllegalStateError:
        session.recover()


if __name__ == "__main__":
    perform(connected(collect))
