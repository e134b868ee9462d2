"""Range reader of a task: reads from the broker's process for bulk, wherever the broker is."""

from __future__ import annotations

import atexit
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from legato.bulk.arrays import number_array
from legato.bulk.flight_client import GONE, connect, location_of, words_of
from legato.bulk.requests import omitted_of
from legato.bulk.tickets import BODY_BYTES_MAX
from legato.client.failover.uri import Uri
from legato.errors import JMSError
from legato.quoting import quoted, sentence
from legato.spark.connector.freed_memory import keep_freed_memory
from legato.spark.connector.offsets import Range
from legato.spark.connector.quick_acknowledgements import acknowledge_at_once
from legato.spark.connector.requests import Away, Patience, Requests
from legato.spark.connector.spared_collections import spare_collections

OMITTED_BODY_BYTES = "omitted_body_bytes"
"""A column of frames and of rows: how large a body is that was left out."""

log = logging.getLogger("legato.spark")

_T = TypeVar("_T")
_PASSING = (*GONE, Away)
"""The broker may also have gone between its answer and the look at where it is."""


def read_frames(
    requests: Requests, each: Range, *, bare: bool = False, body_bytes_max: int = BODY_BYTES_MAX
) -> Iterator[pa.RecordBatch]:
    """The frames of a range; goes on where it was if the broker fails meanwhile.

    Args:
        bare: without the messages (`legato.bulk.frames.BARE_SCHEMA`).
        body_bytes_max: of large messages, larger bodies than that are left out; a frame with such a one has the column
            `OMITTED_BODY_BYTES`.

    Raises:
        JMSError: no broker gives them out.
    """
    after, failures = each.after, 0
    while after < each.through:
        try:
            for frame in _stream(requests, each.name, after, each.through, bare, body_bytes_max):
                after = frame.column("seq")[-1].as_py()
                failures = 0
                yield frame
            return
        except _PASSING as error:
            failures += 1
            if failures > requests.patience.retries:
                raise JMSError(
                    f"The range {after} to {each.through} of {each.address} cannot be read: {words_of(error)}"
                ) from error
            log.warning(
                "! reading %s is interrupted, and goes on behind %s: %s",
                quoted(each.address),
                after,
                sentence(words_of(error)),
            )
            time.sleep(requests.patience.pause_s)
        except flight.FlightError as error:
            raise JMSError(
                f"The range {after} to {each.through} of {each.address} cannot be read: {words_of(error)}"
            ) from error


def retried(attempt: Callable[[], _T], what: str, patience: Patience) -> _T:
    """Do something until a broker does it; returns what it returns.

    Raises:
        JMSError: none does, or one refuses.
    """
    for left in reversed(range(patience.retries + 1)):
        try:
            return attempt()
        except _PASSING as error:
            if not left:
                raise JMSError(f"{what}: {words_of(error)}") from error
            log.warning("! %s; it is tried again: %s", sentence(what), sentence(words_of(error)))
            time.sleep(patience.pause_s)
        except flight.FlightError as error:
            raise JMSError(f"{what}: {words_of(error)}") from error
    raise AssertionError("it is tried at least once")


def _stream(
    requests: Requests, name: str, after: int, through: int, bare: bool, body_bytes_max: int
) -> Iterator[pa.RecordBatch]:
    told = requests.ask_ticket(
        "assignment", name, after=after, through=through, bare=bare, body_bytes_max=body_bytes_max
    )
    with bulk_client(requests.uri, requests.host, told) as client:
        ticket = bytes.fromhex(told["ticket"])
        for chunk in client.do_get(flight.Ticket(ticket), requests.show(ticket)):
            if chunk.data.num_rows:
                yield chunk.data if chunk.app_metadata is None else _with_omitted(chunk.data, chunk.app_metadata)


def _with_omitted(frame: pa.RecordBatch, metadata: pa.Buffer) -> pa.RecordBatch:
    omitted = omitted_of(metadata.to_pybytes())
    sizes = np.array([omitted.get(row, 0) for row in range(frame.num_rows)], np.int64)
    valid = np.array([row in omitted for row in range(frame.num_rows)], bool)
    return frame.append_column(OMITTED_BODY_BYTES, number_array(sizes, valid))


_clients: dict[tuple[str, str], flight.FlightClient] = {}


@contextmanager
def bulk_client(uri: Uri, host: str, told: dict[str, Any]) -> Iterator[flight.FlightClient]:
    """A connection to the process that a ticket is for, kept for this process's next tasks unless it fails.

    Raises:
        flight.FlightUnavailableError: the broker has no such process.
    """
    if not told["port"]:
        raise flight.FlightUnavailableError("the broker could not start its process for reading in bulk; see its log")
    spare_collections()
    acknowledge_at_once()
    key = str(uri), location_of(host, told["port"], tls=told["tls"])
    client = _clients.get(key)
    if client is None:
        keep_freed_memory()
        client = _clients[key] = connect(uri, host, told["port"], tls=told["tls"])
    try:
        yield client
    except GONE:
        # Others of that process's threads may still read by it: it is closed when they, too, are done.
        _clients.pop(key, None)
        raise


def close_clients() -> None:
    """Close what this process keeps; the next range connects again."""
    while _clients:
        _, client = _clients.popitem()
        client.close()


atexit.register(close_clients)
