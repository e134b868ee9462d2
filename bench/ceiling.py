"""The bare prototype: the fastest broker that Proton's engine, LMDB and one Python process allow. It has no features.

One queue in memory, whatever the address; every message is confirmed after the fsync of its commit; every accept is a
delete in a commit. No errors, no recovery, no limits: a yardstick, not a broker.
"""

import argparse
import asyncio
import threading
from collections import deque
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

import lmdb
import uvloop
from cproton_ffi import ffi, lib

from bench.engine import Engine

CREDIT = 5000
MESSAGE_BYTES_MAX = 1 << 20

_body = ffi.new("char[]", MESSAGE_BYTES_MAX)
_tag_bytes = ffi.new("char[8]")
_tag = ffi.new("pn_bytes_t *", {"size": 8, "start": _tag_bytes})[0]

_delivery_of = lib.pn_event_delivery
_delivery = lib.pn_delivery
_update = lib.pn_delivery_update
_settle = lib.pn_delivery_settle
_send = lib.pn_link_send
_recv = lib.pn_link_recv
_advance = lib.pn_link_advance
_partial = lib.pn_delivery_partial
_unpack = ffi.unpack
_PN_ACCEPTED = lib.PN_ACCEPTED
_PN_DELIVERY = lib.PN_DELIVERY


class Broker:
    """The queue, the commits, and who waits for them."""

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.environment = lmdb.open(str(path), map_size=1 << 36, lock=False, readahead=False)
        self.next_seq = 1
        self.ready: deque[tuple[int, bytes]] = deque()
        self.consumers: list[Peer] = []
        self.stored: list[tuple[int, bytes, Peer, Any]] = []
        self.consumed: list[int] = []
        self.committing = False
        self.batches: SimpleQueue[tuple[list[tuple[int, bytes, Peer, Any]], list[int]]] = SimpleQueue()
        threading.Thread(target=self._write, daemon=True).start()

    def kick(self) -> None:
        """Start a commit of everything that came since the last one began."""
        if not self.committing and (self.stored or self.consumed):
            self.committing = True
            batch = (self.stored, self.consumed)
            self.stored, self.consumed = [], []
            self.batches.put(batch)

    def _write(self) -> None:
        """The writer thread: one commit and one fsync a batch."""
        while True:
            stored, consumed = self.batches.get()
            with self.environment.begin(write=True) as txn:
                cursor = txn.cursor()
                cursor.putmulti([(seq.to_bytes(8, "big"), body) for seq, body, _, _ in stored], append=True)
                delete = txn.delete
                for seq in consumed:
                    delete(seq.to_bytes(8, "big"))
            self.loop.call_soon_threadsafe(self._committed, stored)

    def _committed(self, stored: list[tuple[int, bytes, "Peer", Any]]) -> None:
        self.committing = False
        self.kick()
        touched = set()
        ready = self.ready
        for seq, body, peer, delivery in stored:
            _update(delivery, _PN_ACCEPTED)
            _settle(delivery)
            peer.unconfirmed -= 1
            touched.add(peer)
            ready.append((seq, body))
        for peer in touched:
            peer.give_credit()
        touched.update(self.dispatch())
        for peer in touched:
            peer.flush()

    def dispatch(self) -> "set[Peer]":
        """Give ready messages to consumers that have credit; returns those who got some."""
        served = set()
        for consumer in self.consumers:
            if self.ready and consumer.serve(self.ready):
                served.add(consumer)
        return served


class Peer(asyncio.Protocol):
    """One connection; it has one link, so the link is known before a delivery is looked at."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.engine = Engine(server=True, container="ceiling")
        self.link: Any = None
        self.sends = False
        self.unconfirmed = 0
        self.unsettled: dict[Any, int] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=1 << 24)

    def data_received(self, data: bytes) -> None:
        try:
            self.engine.push(data, self.handle)
        except ConnectionError:
            self.transport.close()
            return
        self.broker.kick()
        self.flush()

    def connection_lost(self, _error: Exception | None) -> None:
        if self in self.broker.consumers:
            self.broker.consumers.remove(self)

    def flush(self) -> None:
        """Write what the engine has."""
        if data := self.engine.output():
            self.transport.write(data)

    def give_credit(self) -> None:
        """Top the sender's credit up, in lumps."""
        missing = CREDIT - lib.pn_link_credit(self.link) - self.unconfirmed
        if missing >= CREDIT // 4:
            lib.pn_link_flow(self.link, missing)

    def serve(self, ready: deque[tuple[int, bytes]]) -> int:
        """Send as many ready messages as there is credit for; returns how many."""
        link = self.link
        count: int = min(lib.pn_link_credit(link), len(ready))
        unsettled = self.unsettled
        for _ in range(count):
            seq, body = ready.popleft()
            ffi.memmove(_tag_bytes, seq.to_bytes(8, "big"), 8)
            delivery = _delivery(link, _tag)
            unsettled[delivery] = seq
            _send(link, body, len(body))
            _advance(link)
        return count

    def handle(self, kind: int, event: Any) -> None:
        """One event of the engine."""
        if kind == _PN_DELIVERY:
            delivery = _delivery_of(event)
            if self.sends:
                seq = self.unsettled.pop(delivery)
                _settle(delivery)
                self.broker.consumed.append(seq)
            elif not _partial(delivery):
                count = _recv(self.link, _body, MESSAGE_BYTES_MAX)
                _advance(self.link)
                broker = self.broker
                broker.stored.append((broker.next_seq, _unpack(_body, count), self, delivery))
                broker.next_seq += 1
                self.unconfirmed += 1
        elif kind == lib.PN_LINK_FLOW:
            if self.sends and self.broker.ready and self.serve(self.broker.ready):
                self.flush()
        elif kind == lib.PN_CONNECTION_REMOTE_OPEN:
            lib.pn_connection_open(self.engine.connection)
        elif kind == lib.PN_SESSION_REMOTE_OPEN:
            lib.pn_session_open(lib.pn_event_session(event))
        elif kind == lib.PN_LINK_REMOTE_OPEN:
            self.attach(lib.pn_event_link(event))
        elif kind == lib.PN_CONNECTION_REMOTE_CLOSE:
            lib.pn_connection_close(self.engine.connection)

    def attach(self, link: Any) -> None:
        """Answer an attach as asked."""
        self.link = link
        lib.pn_terminus_copy(lib.pn_link_source(link), lib.pn_link_remote_source(link))
        lib.pn_terminus_copy(lib.pn_link_target(link), lib.pn_link_remote_target(link))
        lib.pn_link_set_snd_settle_mode(link, lib.pn_link_remote_snd_settle_mode(link))
        lib.pn_link_open(link)
        self.sends = bool(lib.pn_link_is_sender(link))
        if self.sends:
            self.broker.consumers.append(self)
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
