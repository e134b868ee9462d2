"""The bulk process beside a broker: serves ranges of queues over Arrow Flight, off the broker's loop.

Run by the broker as `python -m legato.bulk.serve --store DIR --host HOST`. Its first line of input is the secret that
tickets are sealed with, its first line of output the port; it ends when its input ends, so it outlives no broker.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from legato.bulk.digest import RowDigest
from legato.bulk.frames import BARE_SCHEMA, OMITTED, SCHEMA, frames
from legato.bulk.planning import RangePart, plan
from legato.bulk.requests import PLAN, PlannedPart, PlanRequest, PutRequest
from legato.bulk.stage_encoder import StageOptions, records_of
from legato.bulk.stage_files import DigestRecord, Record, StageTicket, path_of, write_stage
from legato.bulk.tickets import T, Ticket, TicketRefused, seal, unseal
from legato.errors import StoreError
from legato.store.lmdb import LmdbStore

_NICE = 5


class BulkServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves the range of each ticket.

    Args:
        store: opened read-only.
        secret: what tickets are sealed with.
        location: where to listen, such as `grpc://host:0`.
        tls: certificate and key, in PEM, for `grpc+tls`.
    """

    def __init__(self, store: LmdbStore, secret: bytes, location: str, tls: tuple[bytes, bytes] | None) -> None:
        super().__init__(location, tls_certificates=[tls] if tls else None)
        self._store = store
        self._secret = secret

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        """The frames of a ticket's range."""
        asked = self._unseal(ticket.ticket, Ticket)
        return flight.GeneratorStream(BARE_SCHEMA if asked.bare else SCHEMA, self._frames(asked))

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        """Stage rows: they are durable when this returns."""
        request = msgspec.msgpack.decode(descriptor.command, type=PutRequest)
        asked = self._unseal(request.ticket, StageTicket)
        path = path_of(self._store.path, asked.transactional_id, asked.batch, asked.stage)
        try:
            write_stage(path, _records(reader, request.options, asked))
        except ValueError as error:
            raise flight.FlightServerError(str(error)) from error

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> Iterator[flight.Result]:
        """`PLAN`."""
        if action.type != PLAN:
            raise flight.FlightServerError(f"There is no action {action.type!r}.")
        request = msgspec.msgpack.decode(action.body.to_pybytes(), type=PlanRequest)
        asked = self._unseal(request.ticket, Ticket)
        parts = plan(self._store, asked.queue, asked.after, asked.through, request.parts)
        yield flight.Result(msgspec.msgpack.encode([self._planned(asked, part) for part in parts]))

    def _planned(self, asked: Ticket, part: RangePart) -> PlannedPart:
        ticket = Ticket(asked.queue, part.after, part.through, asked.until_s, asked.bare, asked.body_bytes_max)
        return PlannedPart(part.after, part.through, part.rows, seal(self._secret, ticket))

    def _frames(self, asked: Ticket) -> Iterator[pa.RecordBatch | tuple[pa.RecordBatch, pa.Buffer]]:
        """Frames, and beside each of which some bodies are left out which those are."""
        found = frames(
            self._store,
            *(asked.queue, asked.after, asked.through),
            bare=asked.bare,
            body_bytes_max=asked.body_bytes_max,
        )
        try:
            for frame in found:
                omitted = (frame.schema.metadata or {}).get(OMITTED)
                yield frame if omitted is None else (frame.replace_schema_metadata(None), pa.py_buffer(omitted))
        except StoreError as error:
            raise flight.FlightServerError(str(error)) from error

    def _unseal(self, sealed: bytes, kind: type[T]) -> T:
        try:
            return unseal(self._secret, sealed, time.time(), kind)
        except TicketRefused as error:
            raise flight.FlightUnauthenticatedError(str(error)) from error


def _records(reader: flight.MetadataRecordBatchReader, options: StageOptions, ticket: StageTicket) -> Iterator[Record]:
    row, digest = 0, RowDigest()
    for chunk in reader:
        if chunk.data is not None:
            yield from records_of(chunk.data, options, ticket, row, time.time_ns() // 1000)
            row += chunk.data.num_rows
            digest.add(chunk.data)
    yield DigestRecord(digest.rows, digest.digest())


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `python -m legato.bulk.serve`."""
    parser = argparse.ArgumentParser(prog="legato.bulk.serve", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--store", type=Path, required=True, help="directory of the broker's store")
    parser.add_argument("--host", required=True, help="where to listen")
    parser.add_argument("--port", type=int, default=0, help="the port; 0 for any that is free")
    parser.add_argument("--certificate", type=Path, help="TLS certificate, PEM")
    parser.add_argument("--key", type=Path, help="its key, PEM")
    options = parser.parse_args(arguments)
    os.nice(_NICE)
    secret = bytes.fromhex(sys.stdin.readline())
    tls: Any = (options.certificate.read_bytes(), options.key.read_bytes()) if options.certificate else None
    host = f"[{options.host}]" if ":" in options.host else options.host
    store = LmdbStore(options.store, read_only=True)
    server = BulkServer(store, secret, f"grpc{'+tls' if tls else ''}://{host}:{options.port}", tls)
    print(server.port, flush=True)
    sys.stdin.read()
    # The broker is gone: whoever reads asks its successor.
    os._exit(0)


if __name__ == "__main__":
    main()
