"""Fetching a copy of a broker's store over the network: a backup here of what is on another machine."""

from __future__ import annotations

import hashlib
import logging
import os
import queue
import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.flight as flight

from legato.bulk.flight_client import GONE, connect, words_of
from legato.bulk.requests import HOLDER_HEADER, TICKET_HEADER
from legato.bulk.store_copy import BEGINNING, BESIDE, END, STALLED_S, CopyBeginning, CopyEnd
from legato.bulk.tickets import digest_of_holder
from legato.client.connection import ConnectionFactory
from legato.client.failover.uri import parse_uri, short_wait
from legato.client.management import Requester
from legato.errors import JMSError, StoreCorruptError, StoreError
from legato.quoting import sentence
from legato.store.backup import complete
from legato.store.backup_files import USERS_NAME, Manifest, new_directory
from legato.store.environment import DATA_NAME

TRIES = 3
"""A failover ends a copy, which then is begun anew."""
_PAUSE_S = 1.0
_NAMES = (DATA_NAME, *BESIDE)

log = logging.getLogger("legato.bulk")

Told = Callable[[int, int], None]
"""Is called with how many bytes have come, and of how many about."""


def fetch_store(url: str, to: Path, told: Told = lambda done, total: None, *, stalled_s: float = STALLED_S) -> Manifest:
    """Copy the store of the broker that serves at `url` into the new directory `to`, durably; it serves on meanwhile.

    The copy is as `legato.store.backup.take` makes it, without segments of the ledger.

    Args:
        url: of all brokers of the group, as clients name them; the user's role needs `management = "administer"`.
        stalled_s: a copy of which nothing comes for so long has broken off.

    Raises:
        JMSError: no broker serves, or it refuses, or the copy broke off each time.
        StoreError: there is something at `to` already, there is no room, or the copy cannot be used.
    """
    for left in reversed(range(TRIES)):
        try:
            return _fetch(url, to, told, stalled_s)
        except GONE as error:
            if not left:
                raise JMSError(f"The copy of the store at {parse_uri(url)} broke off: {words_of(error)}") from error
            log.warning("! the copy broke off, and is begun anew: %s", sentence(words_of(error)))
            time.sleep(_PAUSE_S)
        except flight.FlightError as error:
            raise JMSError(f"The store at {parse_uri(url)} is not copied: {words_of(error)}") from error
    raise AssertionError


def _fetch(url: str, to: Path, told: Told, stalled_s: float) -> Manifest:
    uri, secret = parse_uri(url), secrets.token_bytes(32)
    taken_us = time.time_ns() // 1000
    with ConnectionFactory(url, **short_wait(url)).create_connection() as connection:
        connection.start()
        arguments = {"holder": digest_of_holder(secret).hex()}
        given = Requester(connection, f"the broker at {uri}").request("copy", "store", "", arguments)
        host = connection.host
    if host is None or not given["port"]:
        raise flight.FlightUnavailableError("the broker does not serve, or could not start its process for copies")
    ticket = bytes.fromhex(given["ticket"])
    shown = flight.FlightCallOptions(headers=[(TICKET_HEADER, ticket), (HOLDER_HEADER, secret)])
    with new_directory(to) as partial, connect(uri, host, given["port"], tls=given["tls"]) as client:
        with closing(_chunks(lambda: client.do_get(flight.Ticket(ticket), shown), stalled_s)) as chunks:
            digests = write_files(_rows(chunks), partial, told)
        return complete(partial, taken_us, {}, digests.get(USERS_NAME, ""))


def _chunks(begin: Callable[[], Any], stalled_s: float) -> Generator[Any, None, None]:
    """What a stream gives. It is read in a thread: of a machine that is lost, or a process that is stopped, nothing
    comes, not even an end.

    Raises:
        flight.FlightUnavailableError: nothing came for `stalled_s`.
    """
    asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
    given: queue.SimpleQueue[Any] = queue.SimpleQueue()
    streams: list[Any] = []

    def read() -> None:
        try:
            streams.append(begin())
            while asked.get():
                given.put(streams[0].read_chunk())
        except Exception as error:
            given.put(error)

    threading.Thread(target=read, name="legato-store-fetch", daemon=True).start()
    try:
        while True:
            asked.put(True)
            try:
                found = given.get(timeout=stalled_s)
            except queue.Empty:
                raise flight.FlightUnavailableError(f"nothing came of it for {stalled_s:g} s") from None
            if isinstance(found, StopIteration):
                return
            if isinstance(found, Exception):
                raise found
            yield found
    finally:
        asked.put(False)
        for stream in streams:
            stream.cancel()


def _rows(chunks: Iterator[Any]) -> Iterator[tuple[str, memoryview]]:
    for chunk in chunks:
        for row in range(chunk.data.num_rows):
            yield chunk.data.column(0)[row].as_py(), memoryview(chunk.data.column(1)[row].as_buffer())


def write_files(rows: Iterator[tuple[str, memoryview]], directory: Path, told: Told) -> dict[str, str]:
    """Write the files of a copy, durably.

    Args:
        rows: of the stream: file and piece.

    Returns:
        The files' digests.

    Raises:
        StoreCorruptError: it is no copy, or not what was sent.
        StoreError: it is not whole.
    """
    expected: dict[str, str] | None = None
    digests: dict[str, str] = {}
    total = 0
    try:
        for name, pieces in groupby(rows, lambda row: row[0]):
            if name == BEGINNING:
                total = msgspec.msgpack.decode(next(pieces)[1], type=CopyBeginning).bytes
            elif name == END:
                expected = msgspec.msgpack.decode(next(pieces)[1], type=CopyEnd).sha256
            elif name in _NAMES and name not in digests:
                digests[name] = _write_file(directory / name, (data for _, data in pieces), total, told)
            else:
                # Another name could lead anywhere.
                raise StoreCorruptError("What came is no copy of a store: it has files that none has.")
    except msgspec.DecodeError as error:
        raise StoreCorruptError(f"What came is no copy of a store: {error}.") from error
    if expected is None:
        raise StoreError("The copy broke off before its end: make it again.")
    if digests != expected or DATA_NAME not in digests:
        raise StoreCorruptError("What came is not what was sent: make the copy again.")
    return digests


def _write_file(path: Path, pieces: Iterator[memoryview], total: int, told: Told) -> str:
    digest, done = hashlib.sha256(), 0
    with path.open("xb") as file:
        for piece in pieces:
            file.write(piece)
            digest.update(piece)
            done += len(piece)
            told(done, max(done, total))
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()
