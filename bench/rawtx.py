"""A transactional load client in raw Proton calls: each transaction receives one message and sends one.

All its sessions share one connection; each has its own coordinator link and declares its next transaction in the same
write as the discharge of the last, as Qpid JMS does. Same conversation with its parent as `bench.rawclient`.
"""

import argparse
import json
import struct
import time
from collections import deque
from typing import Any

from cproton_ffi import ffi, lib

from bench.rawclient import RawConnection, message_parts

PREFETCH = 20
DECLARED = 0x33
TRANSACTIONAL = 0x34
ACCEPTED = 0x24
DECLARE = b"\x00\x53\x77\x00\x53\x31\x45"

_body = ffi.new("char[]", 1 << 20)


def discharge(txn_id: bytes) -> bytes:
    """The message that commits (AMQP 4.5.7)."""
    fields = struct.pack(">BB", 0xA0, len(txn_id)) + txn_id + b"\x42"
    return b"\x00\x53\x77\x00\x53\x32\xc0" + struct.pack(">BB", len(fields) + 1, 2) + fields


def put_binary(data: Any, value: bytes) -> None:
    """Append a binary to Proton's data."""
    lib.pn_data_put_binary(data, (len(value), ffi.from_buffer(value)))


class Worker:
    """One session."""

    def __init__(self, connection: RawConnection, number: int, source: str, target: str, size: int) -> None:
        self.session = lib.pn_session(connection.engine.connection)
        lib.pn_session_open(self.session)
        self.receiver = connection.receiver(source, PREFETCH, f"source-{number}", self.session)
        self.sender = connection.sender(target, f"target-{number}", self.session)
        self.coordinator = lib.pn_sender(self.session, f"coordinator-{number}".encode())
        lib.pn_terminus_set_type(lib.pn_link_target(self.coordinator), lib.PN_COORDINATOR)
        lib.pn_link_open(self.coordinator)
        self.before, self.after = message_parts(size)
        self.waiting: deque[Any] = deque()
        self.txn_id = b""
        self.tag = 0
        self.committing: set[Any] = set()
        self.committed = 0
        self.declared_first = False

    def transfer(self, link: Any, body: bytes, txn_id: bytes = b"") -> Any:
        """Send one message, in a transaction if there is an id."""
        self.tag += 1
        tag = self.tag.to_bytes(8, "big")
        delivery = lib.pn_delivery(link, (8, ffi.from_buffer(tag)))
        if txn_id:
            data = lib.pn_disposition_data(lib.pn_delivery_local(delivery))
            lib.pn_data_put_list(data)
            lib.pn_data_enter(data)
            put_binary(data, txn_id)
            lib.pn_data_exit(data)
            lib.pn_delivery_update(delivery, TRANSACTIONAL)
        lib.pn_link_send(link, body, len(body))
        lib.pn_link_advance(link)
        return delivery

    def accept(self, delivery: Any) -> None:
        """Acknowledge a delivery in the current transaction."""
        data = lib.pn_disposition_data(lib.pn_delivery_local(delivery))
        lib.pn_data_put_list(data)
        lib.pn_data_enter(data)
        put_binary(data, self.txn_id)
        lib.pn_data_put_described(data)
        lib.pn_data_enter(data)
        lib.pn_data_put_ulong(data, ACCEPTED)
        lib.pn_data_put_list(data)
        lib.pn_data_exit(data)
        lib.pn_data_exit(data)
        lib.pn_delivery_update(delivery, TRANSACTIONAL)
        lib.pn_delivery_settle(delivery)

    def advance(self) -> None:
        """Begin the first transaction when there is credit; do the current one when a message waits."""
        if not self.declared_first:
            if lib.pn_link_credit(self.coordinator) > 0:
                self.declared_first = True
                self.transfer(self.coordinator, DECLARE)
        elif self.txn_id and self.waiting and lib.pn_link_credit(self.sender) > 0:
            self.accept(self.waiting.popleft())
            lib.pn_link_flow(self.receiver, 1)
            body = b"%b%012d%b" % (self.before, self.tag, self.after)
            self.transfer(self.sender, body, self.txn_id)
            self.committing.add(self.transfer(self.coordinator, discharge(self.txn_id)))
            self.txn_id = b""
            self.transfer(self.coordinator, DECLARE)

    def on_delivery(self, link: Any, delivery: Any) -> None:
        """A message arrived, or the broker answered.

        Raises:
            RuntimeError: a transaction or a send in it was refused.
        """
        if link == self.receiver:
            if not lib.pn_delivery_partial(delivery):
                lib.pn_link_recv(link, _body, 1 << 20)
                lib.pn_link_advance(link)
                self.waiting.append(delivery)
            return
        state = lib.pn_delivery_remote_state(delivery)
        if link == self.coordinator and state == DECLARED:
            data = lib.pn_disposition_data(lib.pn_delivery_remote(delivery))
            lib.pn_data_rewind(data)
            lib.pn_data_next(data)
            lib.pn_data_enter(data)
            lib.pn_data_next(data)
            raw = lib.pn_data_get_binary(data)
            self.txn_id = ffi.unpack(raw.start, raw.size)
        elif link == self.coordinator and state == ACCEPTED and delivery in self.committing:
            self.committing.remove(delivery)
            self.committed += 1
        elif link != self.sender or state != TRANSACTIONAL:
            raise RuntimeError(f"the broker answered a transaction with the state {state:#x}")
        lib.pn_delivery_settle(delivery)


def run(port: int, source: str, target: str, sessions: int, count: int, size: int) -> dict[str, float]:
    """Do `count` transactions in `sessions` sessions; returns when the last commit is confirmed."""
    connection = RawConnection(port, "raw-transactions")
    workers = [Worker(connection, number, source, target, size) for number in range(sessions)]
    worker_of = {link: w for w in workers for link in (w.receiver, w.sender, w.coordinator)}

    def handle(kind: int, event: Any) -> None:
        if kind == lib.PN_DELIVERY:
            delivery = lib.pn_event_delivery(event)
            link = lib.pn_delivery_link(delivery)
            worker_of[link].on_delivery(link, delivery)
        else:
            connection.check(kind, event)

    connection.wait(handle, lambda: all(lib.pn_link_credit(w.coordinator) and w.waiting for w in workers))
    print("ready", flush=True)
    input()
    started = time.monotonic()
    while sum(worker.committed for worker in workers) < count:
        for worker in workers:
            worker.advance()
        connection.flush()
        connection.read(handle)
    ended = time.monotonic()
    done = sum(worker.committed for worker in workers)
    connection.close()
    return {"started": started, "ended": ended, "count": done}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["transact"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--address", default="bench")
    parser.add_argument("--target", default="bench-out")
    parser.add_argument("--sessions", type=int, default=16)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=256)
    options = parser.parse_args()
    result = run(options.port, options.address, options.target, options.sessions, options.count, options.size)
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
