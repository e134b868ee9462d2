"""A load client as light as Python allows: raw Proton calls on one blocking socket, the same for every AMQP broker.

`send` keeps as many messages in flight as the broker gives credit and counts confirmations; `receive` accepts and
settles every message; `latency` sends at a fixed rate and times each confirmation from the instant its send was
due, so that a stall counts against every message it delayed. Each says `ready` when connected, begins on a line of
input, and prints one JSON line; its times are CLOCK_MONOTONIC, comparable between processes.
"""

import argparse
import json
import select
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from cproton_ffi import ffi, lib

from bench.engine import Engine

RECEIVE_BYTES = 1 << 18
CREDIT = 2000

_body = ffi.new("char[]", 1 << 20)
_tag_bytes = ffi.new("char[8]")
_tag = ffi.new("pn_bytes_t *", {"size": 8, "start": _tag_bytes})[0]
_delivery = lib.pn_delivery
_delivery_of = lib.pn_event_delivery
_settle = lib.pn_delivery_settle
_update = lib.pn_delivery_update
_send = lib.pn_link_send
_recv = lib.pn_link_recv
_advance = lib.pn_link_advance
_partial = lib.pn_delivery_partial
_remote_state = lib.pn_delivery_remote_state
_PN_DELIVERY = lib.PN_DELIVERY
_PN_ACCEPTED = lib.PN_ACCEPTED
_CLOSING = {
    lib.PN_CONNECTION_REMOTE_CLOSE: (
        "connection",
        lib.pn_event_connection,
        lib.pn_connection_remote_condition,
    ),
    lib.PN_SESSION_REMOTE_CLOSE: ("session", lib.pn_event_session, lib.pn_session_remote_condition),
    lib.PN_LINK_REMOTE_CLOSE: ("link", lib.pn_event_link, lib.pn_link_remote_condition),
    lib.PN_TRANSPORT_ERROR: ("transport", lib.pn_event_transport, lib.pn_transport_condition),
}


def message_parts(size: int) -> tuple[bytes, bytes]:
    """What stands before and after the 12 digits of the message id: a durable message with `size` bytes of data."""
    header = b"\x00\x53\x70\xc0\x02\x01\x41"
    properties = b"\x00\x53\x73\xc0\x12\x01\xa1\x0fID:"
    data = b"\x00\x53\x75" + (struct.pack(">BB", 0xA0, size) if size < 256 else struct.pack(">BI", 0xB0, size))
    return header + properties, data + b"x" * size


class RawConnection:
    """A connection with one session, opened when the constructor returns.

    Raises:
        OSError: the broker cannot be reached.
    """

    def __init__(self, port: int, name: str, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.engine = Engine(server=False, container=name, host=host)
        lib.pn_connection_open(self.engine.connection)
        self.session = lib.pn_session(self.engine.connection)
        lib.pn_session_open(self.session)
        self._opened = False
        self.wait(self._watch, lambda: self._opened)

    def _watch(self, kind: int, event: Any) -> None:
        if kind == lib.PN_SESSION_REMOTE_OPEN:
            self._opened = True
        self.check(kind, event)

    def check(self, kind: int, event: Any) -> None:
        """Raise if the event says that the broker refused or ended something.

        Raises:
            ConnectionError: with the condition and description that the broker gave.
        """
        if kind in _CLOSING:
            what, subject, condition_of = _CLOSING[kind]
            condition = condition_of(subject(event))
            name, text = lib.pn_condition_get_name(condition), lib.pn_condition_get_description(condition)
            said = [ffi.string(part).decode() for part in (name, text) if part != ffi.NULL]
            raise ConnectionError(f"the broker ended the {what}: {': '.join(said) or 'no reason given'}")

    def flush(self) -> None:
        """Write what the engine has."""
        if data := self.engine.output():
            self.socket.sendall(data)

    def read(self, handle: Callable[[int, Any], None]) -> None:
        """Block for one buffer of input and handle all its events."""
        data = self.socket.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionError("the broker closed the socket")
        self.engine.push(data, handle)

    def wait(self, handle: Callable[[int, Any], None], done: Callable[[], bool]) -> None:
        """Flush and read until `done()`."""
        self.flush()
        while not done():
            self.read(handle)
            self.flush()

    def sender(self, address: str, name: str = "raw-sender", session: Any = None) -> Any:
        """A sending link: unsettled, at least once."""
        link = lib.pn_sender(session or self.session, name.encode())
        lib.pn_terminus_set_address(lib.pn_link_target(link), address.encode())
        lib.pn_terminus_set_address(lib.pn_link_source(link), address.encode())
        lib.pn_link_set_snd_settle_mode(link, lib.PN_SND_UNSETTLED)
        lib.pn_link_open(link)
        return link

    def receiver(self, address: str, credit: int, name: str = "raw-receiver", session: Any = None) -> Any:
        """A receiving link with credit: unsettled, at least once."""
        link = lib.pn_receiver(session or self.session, name.encode())
        lib.pn_terminus_set_address(lib.pn_link_source(link), address.encode())
        lib.pn_terminus_set_address(lib.pn_link_target(link), address.encode())
        lib.pn_link_set_snd_settle_mode(link, lib.PN_SND_UNSETTLED)
        lib.pn_link_open(link)
        lib.pn_link_flow(link, credit)
        return link

    def close(self) -> None:
        """Close politely: the broker has read all that was settled before it answers."""
        answered = False

        def watch(kind: int, _event: Any) -> None:
            nonlocal answered
            answered = answered or kind == lib.PN_CONNECTION_REMOTE_CLOSE

        lib.pn_connection_close(self.engine.connection)
        self.wait(watch, lambda: answered)
        self.socket.close()


class Sender:
    """Sends numbered messages and counts what the broker confirms."""

    def __init__(self, port: int, address: str, size: int) -> None:
        self.connection = RawConnection(port, "raw-send")
        self.link = self.connection.sender(address)
        self.before, self.after = message_parts(size)
        self.sent = 0
        self.confirmed = 0
        self.refused = 0

    def send(self, count: int) -> None:
        """Hand `count` messages to the engine; there must be credit for them."""
        link, before, after = self.link, self.before, self.after
        for number in range(self.sent, self.sent + count):
            ffi.memmove(_tag_bytes, number.to_bytes(8, "big"), 8)
            _delivery(link, _tag)
            body = b"%b%012d%b" % (before, number, after)
            _send(link, body, len(body))
            _advance(link)
        self.sent += count

    def handle(self, kind: int, event: Any) -> None:
        """Count confirmations."""
        if kind == _PN_DELIVERY:
            delivery = _delivery_of(event)
            if _remote_state(delivery) == _PN_ACCEPTED:
                self.confirmed += 1
            else:
                self.refused += 1
            _settle(delivery)
        else:
            self.connection.check(kind, event)

    def run(self, count: int) -> dict[str, float]:
        """Send `count` messages, as fast as credit allows; returns when all are confirmed."""
        started = time.monotonic()
        credit_of, link = lib.pn_link_credit, self.link
        while self.confirmed + self.refused < count:
            if possible := min(credit_of(link), count - self.sent):
                self.send(possible)
            self.connection.flush()
            self.connection.read(self.handle)
        return {
            "started": started,
            "ended": time.monotonic(),
            "count": self.confirmed,
            "refused": self.refused,
        }


class LatencySender(Sender):
    """Sends at a fixed rate and keeps each confirmation's time."""

    def __init__(self, port: int, address: str, size: int) -> None:
        super().__init__(port, address, size)
        self.due_of: dict[int, float] = {}
        self.latencies_s: list[float] = []

    def handle(self, kind: int, event: Any) -> None:
        """Time confirmations: they carry the number of their message in the tag."""
        if kind == _PN_DELIVERY:
            tag = lib.pn_delivery_tag(_delivery_of(event))
            number = int.from_bytes(ffi.unpack(tag.start, tag.size), "big")
            self.latencies_s.append(time.monotonic() - self.due_of.pop(number))
        super().handle(kind, event)

    def run_at(self, rate: float, count: int) -> dict[str, Any]:
        """Send `count` messages, one each 1/rate seconds."""
        connection = self.connection
        while lib.pn_link_credit(self.link) == 0:
            connection.flush()
            connection.read(self.handle)
        started = time.monotonic()
        interval = 1 / rate
        while self.confirmed + self.refused < count:
            now = time.monotonic()
            due = min(count, int((now - started) / interval) + 1) - self.sent
            if possible := min(due, lib.pn_link_credit(self.link)):
                for number in range(self.sent, self.sent + possible):
                    self.due_of[number] = started + number * interval
                self.send(possible)
            connection.flush()
            until_next = started + self.sent * interval - time.monotonic() if self.sent < count else 60.0
            if select.select([connection.socket], [], [], max(0.0, until_next))[0]:
                connection.read(self.handle)
        return {"started": started, "ended": time.monotonic(), "latencies_s": self.latencies_s}


class Receiver:
    """Receives, accepts and settles."""

    def __init__(self, port: int, address: str, credit: int = CREDIT) -> None:
        self.connection = RawConnection(port, "raw-receive")
        self.credit = credit
        self.link = self.connection.receiver(address, credit)
        self.received = 0
        self.first_at = 0.0

    def handle(self, kind: int, event: Any) -> None:
        """Accept a message: its bytes are taken but not read."""
        if kind == _PN_DELIVERY:
            delivery = _delivery_of(event)
            if not _partial(delivery):
                _recv(self.link, _body, 1 << 20)
                _advance(self.link)
                _update(delivery, _PN_ACCEPTED)
                _settle(delivery)
                if self.received == 0:
                    self.first_at = time.monotonic()
                self.received += 1
        else:
            self.connection.check(kind, event)

    def run(self, count: int) -> dict[str, float]:
        """Receive `count` messages."""
        connection, link, credit = self.connection, self.link, self.credit
        started = time.monotonic()
        while self.received < count:
            connection.flush()
            connection.read(self.handle)
            used = credit - lib.pn_link_credit(link)
            if used >= credit // 4:
                lib.pn_link_flow(link, used)
        connection.flush()
        ended = time.monotonic()
        return {"started": started, "first": self.first_at, "ended": ended, "count": self.received}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["send", "receive", "latency"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--address", default="bench")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=256, help="bytes of data in a message")
    parser.add_argument("--rate", type=float, default=5000.0, help="messages a second, for latency")
    options = parser.parse_args()
    worker: Sender | Receiver
    if options.what == "receive":
        worker = Receiver(options.port, options.address)
    else:
        kind = LatencySender if options.what == "latency" else Sender
        worker = kind(options.port, options.address, options.size)
    print("ready", flush=True)
    input()
    if isinstance(worker, LatencySender):
        result: dict[str, Any] = worker.run_at(options.rate, options.count)
    else:
        result = worker.run(options.count)
    worker.connection.close()
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
