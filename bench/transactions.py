"""The processor time of a broker for a transaction, in memory: one process, no sockets, no disk.

Sessions on one connection each receive one message, send one and commit, again and again, all of them in step. What
the client takes is not counted, nor is the writer's thread. On a busy machine this tells two trees apart (`PYTHONPATH`
names the other one's `src`) where rates do not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from statistics import median
from time import thread_time
from typing import Any, cast

from cproton_ffi import lib

from bench.engine import Engine
from bench.rawclient import RawConnection, message_parts
from bench.rawtx import Worker
from legato.clock import SystemClock
from legato.ha.lease import Lease
from legato.server.config.configuration import Config
from legato.server.connections.client_connection import Peer
from legato.server.process.service import EpochOwner, Service
from legato.store.memory import MemoryStore

SOURCE, TARGET = "bench-in", "bench-out"
FIRST = 300
"""Transactions that are not counted."""


class Transport:
    """What the broker takes for a socket: keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Keep it."""
        self.written.append(data)

    def take(self) -> bytes:
        """What was written since the last call."""
        data = b"".join(self.written)
        self.written.clear()
        return data

    def get_extra_info(self, _name: str, default: object = None) -> object:
        """There is nothing to say."""
        return default

    def get_write_buffer_size(self) -> int:
        """Everything is on its way at once."""
        return 0

    def writelines(self, parts: list[bytes | memoryview]) -> None:
        """Take parts, one behind the other."""
        self.write(b"".join(parts))

    def set_write_buffer_limits(self, **_limits: int) -> None:
        """It takes everything."""

    def is_closing(self) -> bool:
        """Never."""
        return False

    def pause_reading(self) -> None:
        """What is sent waits in the peer."""

    def resume_reading(self) -> None:
        """See `pause_reading`."""

    def close(self) -> None:
        """There is nothing to close."""

    abort = close


class Client(RawConnection):
    """The client's end, without a socket."""

    def __init__(self) -> None:
        self.engine = Engine(server=False, container="in-memory")
        lib.pn_connection_open(self.engine.connection)


class Owner:
    """A process without a backup."""

    def note_connections(self, connections: int) -> None:
        """There is nobody to tell."""


def serve() -> Service:
    """A broker on a store in memory."""
    clock, store, config = SystemClock(), MemoryStore(), Config()
    meta = store.begin_epoch("in-memory", clock.now_us())
    lease = Lease(lambda: True, None, clock.monotonic_ms())
    service = Service(config, store, meta, clock, lease, cast(EpochOwner, Owner()), lambda: config)
    service.stop_timers()
    return service


async def processor_us(count: int, size: int, sessions: int) -> float:
    """Microseconds of the broker's main thread for each of `count` transactions."""
    service = serve()
    transport = Transport()
    peer = Peer(service)
    peer.connection_made(cast(Any, transport))
    before, after = message_parts(size)
    queue = service.broker.directory.queue(SOURCE)
    for number in range(FIRST + count + 50 * sessions):
        service.broker.publisher.publish(queue, b"%b%012d%b" % (before, number, after), "", None)
    service.advance()
    stored = service._commits.idle
    client = Client()
    workers = [Worker(client, number, SOURCE, TARGET, size) for number in range(sessions)]
    worker_of = {link: w for w in workers for link in (w.receiver, w.sender, w.coordinator)}

    def handle(kind: int, event: Any) -> None:
        if kind == lib.PN_DELIVERY:
            delivery = lib.pn_event_delivery(event)
            link = lib.pn_delivery_link(delivery)
            worker_of[link].on_delivery(link, delivery)
        else:
            client.check(kind, event)

    began_s = clients_s = 0.0
    began_at = 0
    while (done := sum(worker.committed for worker in workers)) < FIRST + count:
        at_s = thread_time()
        if not began_at and done >= FIRST:
            began_s, clients_s, began_at = at_s, 0.0, done
        if answer := transport.take():
            client.engine.push(answer, handle)
        for worker in workers:
            worker.advance()
        asked = client.engine.output()
        clients_s += thread_time() - at_s
        if asked:
            peer.data_received(asked)
        await asyncio.sleep(0)
        if not service.broker.idle:
            # All sessions wait for the same commit: how many go on at once is not left to the threads.
            stored.clear()
            await stored.wait()
    took_s = thread_time() - began_s - clients_s
    service.abort()
    return took_s / (done - began_at) * 1e6


def main() -> None:
    """Print each run and the median; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=4_000)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--sessions", type=int, default=16)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    runs = [asyncio.run(processor_us(options.count, options.size, options.sessions)) for _ in range(options.runs)]
    for run in runs:
        print(f"{run:.1f} us a transaction")
    print(
        json.dumps({"transaction_us": round(median(runs), 1), "min": round(min(runs), 1), "max": round(max(runs), 1)})
    )


if __name__ == "__main__":
    main()
