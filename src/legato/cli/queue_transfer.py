"""Export of a queue's messages into a file, and their import, exactly once however often it is repeated.

An import's progress is a message of the queue `legato.imports`. It is taken and sent anew in each transaction that
stores messages, so a killed import goes on where it was, and a finished one does nothing. No window of duplicate ids
bounds that.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from legato.administration.other_groups import refuse_left_behind
from legato.cli.confirmation import messages
from legato.cli.management import request
from legato.cli.output import say
from legato.cli.progress import Progress
from legato.cli.queue_files import ReadMessage, format_of, reading, writing
from legato.client import ConnectionFactory, Message, Queue, Session, TextMessage
from legato.errors import ConfigError, JMSError, JMSSecurityError, TransactionRolledBackError
from legato.quoting import quoted

PROGRESS_QUEUE = "legato.imports"

_CHUNK_MESSAGES, _CHUNK_BYTES = 500, 8 << 20
_MARKER_WAIT_S = 10.0
_DEAD_MARKER_WAIT_S = 1.0
_ATTEMPTS_MAX = 3
"""Of a transaction that is rolled back: a takeover may have come between, or the broker refuses its messages."""
_ID, _DONE = "import_id", "imported"


class Imported(NamedTuple):
    """What came of an import: messages of the file that are stored now, before, or not at all."""

    stored: int
    before: int
    expired: int
    duplicates: int


def export_queue(url: str, queue: str, path: Path, form: str, selector: str, *, dry_run: bool) -> int:
    """Write copies of the waiting messages of a queue into a file; returns how many.

    Raises:
        JMSError: there is no such queue, another group of brokers serves it, or the connection was lost: there is no
            file then.
    """
    found = request(url, "read", "queue", queue)
    refuse_left_behind(partial(request, url), queue)
    progress, count = Progress("exported", found["depth"]), 0
    with ExitStack() as stack:
        connection = stack.enter_context(ConnectionFactory(url).create_connection())
        session = stack.enter_context(connection.create_session())
        connection.start()
        writer = None if dry_run else stack.enter_context(writing(path, form))
        with session.create_browser(session.create_queue(queue), selector or None) as browser:
            for message in browser:
                if writer is not None:
                    writer.write(message)
                count += 1
                progress.at(count)
        progress.end()
    if found["in_flight"]:
        say(
            f"{messages(found['in_flight'])} of {quoted(queue)} were with consumers, and may be missing in the export.",
            err=True,
        )
    return count


def check_file(path: Path, wanted: str | None) -> int:
    """Read all of a file; returns how many messages it has.

    Args:
        path: the file.
        wanted: its format; None for what its name says.

    Raises:
        ConfigError: it cannot be imported.
    """
    if not path.is_file():
        raise ConfigError(f"There is no file {path}.")
    count = 0
    for read in reading(path, format_of(path, wanted)):
        read.close()
        count += 1
    return count


def import_id_of(path: Path, queue: str, again: str = "") -> str:
    """The name of the import of a file's content into a queue.

    Args:
        again: makes it another one.
    """
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return hashlib.sha256(f"{digest.hexdigest()} {queue} {again}".encode()).hexdigest()[:32]


def check_group(url: str, queue: str) -> None:
    """See that the group of brokers that serves a queue keeps the progress of imports, too.

    Raises:
        ConfigError: another one does.
    """
    told = request(url, "read", "group", addresses=json.dumps([queue, PROGRESS_QUEUE]))
    target, progress = (told["elsewhere"].get(address, told["name"]) for address in (queue, PROGRESS_QUEUE))
    if target != progress:
        raise ConfigError(
            f"{quoted(queue)} is an address of the group {quoted(target)}, and {PROGRESS_QUEUE}, where imports keep "
            f"how far they are, one of {quoted(progress)}: a transaction works with one group. Nothing was imported. "
            f"Pin {PROGRESS_QUEUE} to {quoted(target)} in the map of groups, or import into a queue of "
            f"{quoted(progress)}."
        )


def imported_before(url: str, import_id: str) -> int:
    """How many messages of a file were stored by earlier imports of it."""
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        connection.start()
        return _progress_of(session, import_id) or 0


def import_queue(url: str, queue: str, path: Path, form: str, total: int, import_id: str) -> Imported:
    """Send the messages of a file to a queue, each once, however often this is called.

    Raises:
        ConfigError: another import of the file is under way.
        JMSError: the broker refused a message.
    """
    with ConnectionFactory(url).create_connection() as connection:
        session = connection.create_session(transacted=True)
        connection.start()
        return _Import(session, session.create_queue(queue), import_id).run(path, form, total)


class _Import:
    """One import, in a transacted session."""

    def __init__(self, session: Session, queue: Queue, import_id: str) -> None:
        self._session, self._queue, self._id = session, queue, import_id
        self._duplicates = 0
        self._expired = 0
        self._producer = session.create_producer(queue)
        self._producer.duplicate_listener = self._count_duplicate
        self._progress_queue = session.create_queue(PROGRESS_QUEUE)
        self._markers = session.create_producer(self._progress_queue)

    def _count_duplicate(self, _message: Message) -> None:
        self._duplicates += 1

    def run(self, path: Path, form: str, total: int) -> Imported:
        """Go on where the last import of the file ended."""
        before = _progress_of(self._session, self._id)
        if before is None:
            self._begin()
            before = 0
        if before >= total:
            return Imported(0, before, 0, 0)
        done, progress, attempts = before, Progress("imported", total), 0
        read: Iterator[ReadMessage] | None = None
        with self._session.create_consumer(self._progress_queue, f"{_ID} = '{self._id}'", prefetch=1) as consumer:
            while done < total:
                marker = consumer.receive(timeout_s=_MARKER_WAIT_S)
                if marker is None and self._bring_back_marker():
                    marker = consumer.receive(timeout_s=_MARKER_WAIT_S)
                if marker is None:
                    raise ConfigError(
                        "Another import of this file is under way, or somebody removed its progress from the queue "
                        f"{PROGRESS_QUEUE}. Wait for the other one (a minute, if it was killed: so long the broker "
                        "keeps its place), or import the file anew with --again."
                    )
                if read is None or marker.properties[_DONE] != done:
                    # What is durable says where to go on.
                    durable = int(marker.properties[_DONE] or 0)
                    before, done = durable if done == before else before, durable
                    read = islice(reading(path, form), done, None)
                try:
                    done += self._send(list(_chunk(read)), done)
                    attempts = 0
                except TransactionRolledBackError as error:
                    attempts += 1
                    if attempts == _ATTEMPTS_MAX:
                        # The rest of it is for programs.
                        why = str(error).partition(" What it received")[0]
                        raise JMSError(
                            f"{done:,} messages of the file are imported, the next ones not. {why}"
                        ) from error
                    read = None
                progress.at(done)
        progress.end()
        return Imported(done - before - self._expired - self._duplicates, before, self._expired, self._duplicates)

    def _begin(self) -> None:
        """Make the marker of an import of which nothing is done."""
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            self._mark(0, duplicate_id=self._id)
            try:
                self._session.commit()
            except TransactionRolledBackError:
                if attempt == _ATTEMPTS_MAX:
                    raise
            else:
                return

    def _bring_back_marker(self) -> bool:
        """Put the marker back if it is a dead letter, as it becomes with so many refused transactions."""
        dead_letters = self._session.create_queue(f"DLQ.{PROGRESS_QUEUE}")
        try:
            consumer = self._session.create_consumer(dead_letters, f"{_ID} = '{self._id}'", prefetch=1)
        except JMSSecurityError:
            return False
        with consumer:
            dead = consumer.receive(timeout_s=_DEAD_MARKER_WAIT_S)
            if dead is None:
                return False
            self._mark(int(dead.properties[_DONE] or 0))
            self._session.commit()
            return True

    def _send(self, chunk: list[ReadMessage], done: int) -> int:
        """Store messages and the progress in one transaction; returns how many these are."""
        expired, duplicates = 0, self._duplicates
        now_ms = time.time_ns() // 1_000_000
        try:
            for read in chunk:
                message = read.message
                time_to_live_ms = message.expiration - now_ms if message.expiration else 0
                if message.expiration and time_to_live_ms <= 0:
                    expired += 1
                    continue
                self._producer.send(
                    message,
                    delivery_mode=message.delivery_mode,
                    priority=message.priority,
                    time_to_live_ms=time_to_live_ms,
                )
            self._mark(done + len(chunk))
            self._session.commit()
        except TransactionRolledBackError:
            self._duplicates = duplicates
            raise
        finally:
            for read in chunk:
                read.close()
        self._expired += expired
        return len(chunk)

    def _mark(self, done: int, duplicate_id: str | None = None) -> None:
        marker = TextMessage(f"{done} messages of an import into {self._queue.name}")
        marker.properties[_ID] = self._id
        marker.properties[_DONE] = done
        self._markers.send(marker, duplicate_id=duplicate_id)


def _chunk(read: Iterator[ReadMessage]) -> Iterator[ReadMessage]:
    size = 0
    for message in islice(read, _CHUNK_MESSAGES):
        yield message
        size += message.size
        if size >= _CHUNK_BYTES:
            return


def _progress_of(session: Session, import_id: str) -> int | None:
    """How far an import is by its marker; None if there is none."""
    queue = session.create_queue(PROGRESS_QUEUE)
    with session.create_browser(queue, f"{_ID} = '{import_id}'") as browser:
        done = [int(marker.properties[_DONE] or 0) for marker in browser]
    return max(done, default=None)
