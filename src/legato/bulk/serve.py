"""The bulk process beside a broker: serves ranges of queues and copies of the store over Arrow Flight, off the
broker's loop.

Run by the broker as `python -m legato.bulk.serve --store DIR --host HOST`. Its first line of input is the secret that
tickets are sealed with, its first line of output the port; it ends when its input ends, so it outlives no broker.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from legato.bulk.admission import GATE, Admission, Gate, answering
from legato.bulk.arrays import leave_pandas_out
from legato.bulk.digest import RowDigest
from legato.bulk.frames import BARE_SCHEMA, OMITTED, SCHEMA, frames
from legato.bulk.planning import RangePart, plan
from legato.bulk.requests import PLAN, PlannedPart, PlanRequest, PutRequest, StageOptions
from legato.bulk.stage_encoder import records_of
from legato.bulk.stage_files import DigestRecord, Record, StageTicket, path_of, write_stage
from legato.bulk.store_copy import SCHEMA as COPY_SCHEMA
from legato.bulk.store_copy import StoreCopies
from legato.bulk.tickets import CopyTicket, Ticket, seal
from legato.store.lmdb import LmdbStore

STAGE_BYTES_MAX = 4 << 30
"""Of the rows that one ticket stages, by default."""
PARTS_MAX = 100_000
_NICE = 5
_READING: Any = Ticket | CopyTicket
_BIND_S = 5.0
"""For so long a fixed port may still be the former primary's, whose process is ending."""


class BulkServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves what each ticket is for.

    Args:
        store: opened read-only.
        secret: what tickets are sealed with.
        location: where to listen, such as `grpc://host:0`.
        tls: certificate and key, in PEM, for `grpc+tls`.
        client_ca: authorities, in PEM, one of which must vouch for each client.
        bound: whether all tickets have holders: then a call is looked at before its body is read.
        stage_bytes_max: of the rows that one ticket stages.
    """

    def __init__(
        self,
        store: LmdbStore,
        secret: bytes,
        location: str,
        tls: tuple[bytes, bytes] | None,
        *,
        client_ca: bytes | None = None,
        bound: bool = False,
        stage_bytes_max: int = STAGE_BYTES_MAX,
    ) -> None:
        self._admission = Admission(secret, bound=bound)
        super().__init__(
            location,
            tls_certificates=[tls] if tls else None,
            verify_client=client_ca is not None,
            root_certificates=client_ca,
            middleware={GATE: Gate(self._admission)},
        )
        self._store = store
        self._copies = StoreCopies(store)
        self._secret = secret
        self._stage_bytes_max = stage_bytes_max

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        """The frames of a ticket's range, or a copy of the store."""
        with answering():
            asked: Any = self._admission.ticket(context, ticket.ticket, _READING)
            if isinstance(asked, CopyTicket):
                return flight.GeneratorStream(COPY_SCHEMA, self._copy())
            return flight.GeneratorStream(BARE_SCHEMA if asked.bare else SCHEMA, self._frames(asked))

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        """Stage rows: they are durable when this returns."""
        with answering():
            request = msgspec.msgpack.decode(descriptor.command, type=PutRequest)
            asked = self._admission.ticket(context, request.ticket, StageTicket)
            self._admission.use(asked)
            path = path_of(self._store.path, asked.transactional_id, asked.batch, asked.stage)
            write_stage(path, _records(reader, request.options, asked, self._stage_bytes_max))

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> Iterator[flight.Result]:
        """`PLAN`."""
        with answering():
            if action.type != PLAN:
                raise ValueError(f"There is no action {action.type[:100]!r}.")
            request = msgspec.msgpack.decode(action.body.to_pybytes(), type=PlanRequest)
            asked = self._admission.ticket(context, request.ticket, Ticket)
            parts = plan(self._store, asked.queue, asked.after, asked.through, min(max(request.parts, 1), PARTS_MAX))
            return iter([flight.Result(msgspec.msgpack.encode([self._planned(asked, part) for part in parts]))])

    def _planned(self, asked: Ticket, part: RangePart) -> PlannedPart:
        ticket = msgspec.structs.replace(asked, after=part.after, through=part.through)
        return PlannedPart(part.after, part.through, part.rows, seal(self._secret, ticket))

    def _copy(self) -> Iterator[pa.RecordBatch]:
        with answering():
            yield from self._copies.stream()

    def _frames(self, asked: Ticket) -> Iterator[pa.RecordBatch | tuple[pa.RecordBatch, pa.Buffer]]:
        """Frames, and beside each of which some bodies are left out which those are."""
        with answering():
            found = frames(
                self._store,
                *(asked.queue, asked.after, asked.through),
                bare=asked.bare,
                body_bytes_max=asked.body_bytes_max,
            )
            for frame in found:
                omitted = (frame.schema.metadata or {}).get(OMITTED)
                yield frame if omitted is None else (frame.replace_schema_metadata(None), pa.py_buffer(omitted))


def _records(
    reader: flight.MetadataRecordBatchReader, options: StageOptions, ticket: StageTicket, bytes_max: int
) -> Iterator[Record]:
    row, size, digest = 0, 0, RowDigest()
    for chunk in reader:
        if chunk.data is not None:
            size += chunk.data.nbytes
            if size > bytes_max:
                raise ValueError(
                    f"A task stages more than {bytes_max} bytes at once: use more partitions, or raise "
                    "bulk.stage_bytes_max."
                )
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
    parser.add_argument("--client-ca", type=Path, help="authorities that clients must have a certificate of, PEM")
    parser.add_argument("--bound", action="store_true", help="take only tickets that belong to their holder")
    parser.add_argument("--stage-bytes-max", type=int, default=STAGE_BYTES_MAX, help="rows staged with one ticket")
    parser.add_argument("--memory-bytes-max", type=int, default=0, help="memory of this process; 0 for any")
    options = parser.parse_args(arguments)
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)r")
    os.nice(_NICE)
    _bound_memory(options.memory_bytes_max)
    secret = bytes.fromhex(sys.stdin.readline())
    tls: Any = (options.certificate.read_bytes(), options.key.read_bytes()) if options.certificate else None
    host = f"[{options.host}]" if ":" in options.host else options.host
    store = LmdbStore(options.store, read_only=True)
    make = partial(
        BulkServer,
        store,
        secret,
        f"grpc{'+tls' if tls else ''}://{host}:{options.port}",
        tls,
        client_ca=options.client_ca.read_bytes() if options.client_ca else None,
        bound=options.bound,
        stage_bytes_max=options.stage_bytes_max,
    )
    server = _listening(make, options.port)
    print(server.port, flush=True)
    sys.stdin.read()
    # The broker is gone: whoever reads asks its successor.
    os._exit(0)


def _listening(make: Any, port: int) -> BulkServer:
    until_s = time.monotonic() + (_BIND_S if port else 0)
    while True:
        try:
            server: BulkServer = make()
        except (OSError, pa.ArrowException) as error:
            if time.monotonic() >= until_s:
                print(f"! {str(error).splitlines()[0]}", flush=True)
                sys.exit(1)
            time.sleep(0.1)
        else:
            return server


def _bound_memory(bytes_max: int) -> None:
    """Let this process die of too much memory, not the broker: another one is started with the next request."""
    if bytes_max:
        resource.setrlimit(resource.RLIMIT_DATA, (bytes_max, bytes_max))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


if __name__ == "__main__":
    leave_pandas_out()
    main()
