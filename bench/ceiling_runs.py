"""The bare prototype: the fastest broker that Proton's engine, LMDB and one Python process allow. It has no features.

Its unit is a run of up to 1,024 messages, from the engine through the store to the consumer and its acknowledgement:
Python never touches one message. One queue in memory, whatever the address; every message is confirmed after the fsync
of its commit; a run is deleted when all of it was accepted. No errors, no recovery, no limits: a yardstick, not a
broker.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

import lmdb
import numpy as np
import uvloop
from cproton_ffi import ffi, lib

from bench.engine import Engine
from bench.runclient import calls

CREDIT = 5000
RUN_MAX = 1024
RUN_BYTES_MAX = 1 << 20
MAP_BYTES = 1 << 36

_DELIVERY = lib.PN_DELIVERY
_POINTER_BYTES = ffi.sizeof("void *")

_deliveries = ffi.new("pn_delivery_t *[]", RUN_MAX)
_sent = ffi.new("pn_delivery_t *[]", RUN_MAX)
_ends = ffi.new("uint32_t[]", RUN_MAX)
_flags = ffi.new("char[]", RUN_MAX)
_sizes = ffi.new("char[]", RUN_MAX)
_bytes = ffi.new("char[]", RUN_BYTES_MAX)
_bytes_taken = ffi.buffer(_bytes)
_ends_taken = ffi.buffer(_ends)


@dataclass(eq=False)
class Run:
    """Messages that came together."""

    seq: int
    count: int
    bodies: bytes
    ends: bytes
    peer: Peer
    unconfirmed: Any
    """Pointers to the sender's deliveries."""
    sent: int = 0
    accepted: int = 0


@dataclass
class Commit:
    """What the writer makes durable at once."""

    stored: list[Run]
    gone: list[int]
    """First numbers of runs of which all was accepted."""
    accepted: int


class Broker:
    """The queue, the commits, and who waits for them."""

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        self.calls = calls()
        self.next_seq = 1
        self.ready: deque[Run] = deque()
        self.sent: deque[Run] = deque()
        self.consumers: list[Peer] = []
        self._loop = loop
        self._environment = lmdb.open(str(path), map_size=MAP_BYTES, lock=False, readahead=False)
        self._next = Commit([], [], 0)
        self._committing = False
        self._commits: SimpleQueue[Commit] = SimpleQueue()
        threading.Thread(target=self._write, daemon=True).start()

    def store(self, run: Run) -> None:
        """Take a run that came."""
        self.next_seq += run.count
        self._next.stored.append(run)

    def accepted(self, count: int) -> None:
        """Take that so many were accepted, in the order in which they were sent."""
        self._next.accepted += count
        while count:
            run = self.sent[0]
            of_run = min(count, run.sent - run.accepted)
            run.accepted += of_run
            count -= of_run
            if run.accepted == run.count:
                self._next.gone.append(run.seq)
                self.sent.popleft()

    def kick(self) -> None:
        """Start a commit of everything that came since the last one began."""
        if not self._committing and (self._next.stored or self._next.accepted):
            self._committing = True
            self._commits.put(self._next)
            self._next = Commit([], [], 0)

    def _write(self) -> None:
        """The writer thread: one commit and one fsync for all that is there, and a line in a log for it."""
        position = 0
        while True:
            commit = self._commits.get()
            position += 1
            with self._environment.begin(write=True) as txn:
                for run in commit.stored:
                    txn.put(run.seq.to_bytes(8, "big"), run.ends + run.bodies)
                for seq in commit.gone:
                    txn.delete(seq.to_bytes(8, "big"))
                txn.put(b"L" + position.to_bytes(8, "big"), b"%d %d" % (len(commit.stored), commit.accepted))
            self._loop.call_soon_threadsafe(self._committed, commit.stored)

    def _committed(self, stored: list[Run]) -> None:
        self._committing = False
        self.kick()
        touched = set()
        for run in stored:
            self.calls.settle_all(run.unconfirmed, run.count, lib.PN_ACCEPTED)
            run.unconfirmed = None
            run.peer.unconfirmed -= run.count
            touched.add(run.peer)
            self.ready.append(run)
        for peer in touched:
            peer.give_credit()
        touched.update(consumer for consumer in self.consumers if self.ready and consumer.serve())
        for peer in touched:
            peer.flush()


class Peer(asyncio.Protocol):
    """One connection; it has one link, so the link is known before a delivery is looked at."""

    def __init__(self, broker: Broker) -> None:
        self.unconfirmed = 0
        self._broker = broker
        self._engine = Engine(server=True, container="ceiling")
        self._link: Any = None
        self._sends = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=1 << 24)

    def data_received(self, data: bytes) -> None:
        start, at = ffi.from_buffer(data), 0
        while at < len(data):
            taken = lib.pn_transport_push(self._engine.transport, start + at, len(data) - at)
            if taken <= 0:
                self._transport.close()
                return
            at += taken
            self._drain()
        self._broker.kick()
        self.flush()

    def connection_lost(self, _error: Exception | None) -> None:
        if self in self._broker.consumers:
            self._broker.consumers.remove(self)

    def flush(self) -> None:
        """Write what the engine has."""
        if data := self._engine.output():
            self._transport.write(data)

    def give_credit(self) -> None:
        """Top the sender's credit up, in lumps."""
        missing = CREDIT - lib.pn_link_credit(self._link) - self.unconfirmed
        if missing >= CREDIT // 4:
            lib.pn_link_flow(self._link, missing)

    def serve(self) -> int:
        """Send as many ready messages as there is credit for; returns how many."""
        ready, total = self._broker.ready, 0
        while ready and (credit := lib.pn_link_credit(self._link)) > 0:
            run = ready[0]
            count = min(credit, run.count - run.sent)
            if not run.sent:
                self._broker.sent.append(run)
            ends = np.frombuffer(run.ends, dtype=np.uint32)
            begin = int(ends[run.sent - 1]) if run.sent else 0
            part = ends[run.sent : run.sent + count] - np.uint32(begin)
            first = run.seq + run.sent
            tags = np.arange(first, first + count, dtype=">u8").tobytes()
            self._broker.calls.send_all(
                self._link,
                count,
                ffi.from_buffer(run.bodies) + begin,
                ffi.cast("uint32_t *", ffi.from_buffer(part)),
                ffi.from_buffer(tags),
                _sent,
            )
            run.sent += count
            total += count
            if run.sent == run.count:
                ready.popleft()
                run.bodies = b""
        return total

    def _drain(self) -> None:
        collector = self._engine.collector
        while (event := lib.pn_collector_peek(collector)) != ffi.NULL:
            kind = lib.pn_event_type(event)
            if kind == _DELIVERY:
                if self._take_accepted(collector) if self._sends else self._take_messages(collector):
                    continue
            else:
                self._handle(kind, event)
            lib.pn_collector_pop(collector)

    def _take_accepted(self, collector: Any) -> int:
        count: int = self._broker.calls.take_outcomes(collector, _DELIVERY, RUN_MAX, _sent, _flags)
        self._broker.calls.settle_all(_sent, count, 0)
        self._broker.accepted(count)
        return count

    def _take_messages(self, collector: Any) -> int:
        count: int = self._broker.calls.take_transfers(
            collector,
            _DELIVERY,
            self._link,
            RUN_MAX,
            RUN_BYTES_MAX,
            _bytes,
            RUN_BYTES_MAX,
            _deliveries,
            _ends,
            _flags,
            ffi.NULL,
            _sizes,
        )
        if count:
            unconfirmed = ffi.new("pn_delivery_t *[]", count)
            ffi.memmove(unconfirmed, _deliveries, count * _POINTER_BYTES)
            bodies, ends = _bytes_taken[: _ends[count - 1]], _ends_taken[: 4 * count]
            self._broker.store(Run(self._broker.next_seq, count, bodies, ends, self, unconfirmed))
            self.unconfirmed += count
        return count

    def _handle(self, kind: int, event: Any) -> None:
        """One event of the engine that is no delivery."""
        if kind == lib.PN_LINK_FLOW:
            if self._sends and self._broker.ready and self.serve():
                self.flush()
        elif kind == lib.PN_CONNECTION_REMOTE_OPEN:
            lib.pn_connection_open(self._engine.connection)
        elif kind == lib.PN_SESSION_REMOTE_OPEN:
            lib.pn_session_open(lib.pn_event_session(event))
        elif kind == lib.PN_LINK_REMOTE_OPEN:
            self._attach(lib.pn_event_link(event))
        elif kind == lib.PN_CONNECTION_REMOTE_CLOSE:
            lib.pn_connection_close(self._engine.connection)

    def _attach(self, link: Any) -> None:
        """Answer an attach as asked."""
        self._link = link
        lib.pn_terminus_copy(lib.pn_link_source(link), lib.pn_link_remote_source(link))
        lib.pn_terminus_copy(lib.pn_link_target(link), lib.pn_link_remote_target(link))
        lib.pn_link_set_snd_settle_mode(link, lib.pn_link_remote_snd_settle_mode(link))
        lib.pn_link_open(link)
        self._sends = bool(lib.pn_link_is_sender(link))
        if self._sends:
            self._broker.consumers.append(self)
        else:
            lib.pn_link_flow(link, CREDIT)


async def serve(store: Path, host: str, port: int) -> None:
    """Serve until killed."""
    loop = asyncio.get_running_loop()
    broker = Broker(store, loop)
    server = await loop.create_server(lambda: Peer(broker), host, port)
    print("active epoch=1", flush=True)
    await server.serve_forever()


def main() -> None:
    """Command line: the same options and the same line of readiness as `legato serve`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--listen", required=True, metavar="HOST:PORT")
    options = parser.parse_args()
    host, _, port = options.listen.rpartition(":")
    options.store.mkdir(parents=True, exist_ok=True)
    uvloop.run(serve(options.store, host, int(port)))


if __name__ == "__main__":
    main()
