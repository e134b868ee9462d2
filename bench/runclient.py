"""A load client whose unit is a run: up to 1,024 messages pass the engine in one call, about 1 us each, for any broker.

`send` numbers its messages and counts what the broker confirms; `receive` accepts every message and checks that each
number comes exactly once; `subscribe` does so with several durable links to one topic; `drain` takes what waits until
nothing more comes. Same conversation with its parent as `bench.rawclient`; needs the compiled module
`legato.amqp._batch`.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from cproton_ffi import ffi, lib

from bench.rawclient import CREDIT, RawConnection, message_parts
from legato.amqp.engine import batch

RUN_MAX = 1024
RUN_BYTES_MAX = 1 << 20
"""Of messages that are received in one call; so large may one be."""
SENT_BYTES_MAX = 1 << 20
"""Of messages that are sent in one call."""
RECEIVE_BYTES = 1 << 18
DIGITS = 12
ACCEPTED = 0x24
IDLE_S = 1.0

_DELIVERY = lib.PN_DELIVERY
_POWERS = 10 ** np.arange(DIGITS - 1, -1, -1, dtype=np.int64)

_deliveries = ffi.new("pn_delivery_t *[]", RUN_MAX)
_ends = ffi.new("uint32_t[]", RUN_MAX)
_flags = ffi.new("char[]", RUN_MAX)
_sizes = ffi.new("char[]", RUN_MAX)
_bytes = ffi.new("char[]", RUN_BYTES_MAX)
_ends_taken = np.frombuffer(ffi.buffer(_ends), dtype=np.uint32)
_flags_taken = np.frombuffer(ffi.buffer(_flags), dtype=np.uint8)
_bytes_taken = np.frombuffer(ffi.buffer(_bytes), dtype=np.uint8)


def calls() -> Any:
    """The batched calls into the engine.

    Raises:
        SystemExit: the module was not compiled, or `LEGATO_PURE` forbids it.
    """
    if not batch.available:
        raise SystemExit("The run client needs legato.amqp._batch: compile it (`make install`), without LEGATO_PURE.")
    from legato.amqp import _batch

    return _batch.lib


class Numbers:
    """Which numbers of 0 to `count` - 1 came: each message's stands in its last bytes, in front of its data."""

    def __init__(self, count: int, behind: int) -> None:
        self._count = count
        self._came = np.zeros(count, dtype=bool)
        self._digits = np.arange(-behind - DIGITS, -behind)

    def take(self, count: int) -> None:
        """Note the messages of a run that was just taken.

        Raises:
            RuntimeError: one has no number of ours, or came twice.
        """
        digits = _bytes_taken[_ends_taken[:count, None].astype(np.int64) + self._digits]
        numbers = (digits.astype(np.int64) - ord("0")) @ _POWERS
        if numbers.min() < 0 or numbers.max() >= self._count:
            raise RuntimeError(f"a message came that nobody sent: its number is {numbers.max()} or {numbers.min()}")
        if self._came[numbers].any() or len(np.unique(numbers)) < count:
            raise RuntimeError("a message came twice")
        self._came[numbers] = True

    @property
    def missing(self) -> int:
        """How many did not come."""
        return self._count - int(self._came.sum())


class RunConnection(RawConnection):
    """A connection that hands runs of deliveries to `on_delivery`."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__(port, name)
        self.name = name
        self.calls = calls()

    def pump(self) -> None:
        """Block for one buffer of input, and take all that is in it.

        Raises:
            ConnectionError: the broker ended something.
        """
        data = self.socket.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionError("the broker closed the socket")
        start, at = ffi.from_buffer(data), 0
        while at < len(data):
            taken = lib.pn_transport_push(self.engine.transport, start + at, len(data) - at)
            if taken <= 0:
                raise ConnectionError("the peer broke the connection")
            at += taken
            self._drain()

    def _drain(self) -> None:
        collector = self.engine.collector
        while (event := lib.pn_collector_peek(collector)) != ffi.NULL:
            kind = lib.pn_event_type(event)
            if kind == _DELIVERY and self.on_delivery(collector, event):
                continue
            self.check(kind, event)
            lib.pn_collector_pop(collector)

    def on_delivery(self, collector: Any, event: Any) -> int:
        """Take the run that begins with this event; how many there were."""
        raise NotImplementedError

    def advance(self) -> None:
        """Hand to the engine what can be sent now, and write what it has."""
        self.flush()

    @property
    def done(self) -> bool:
        """Whether all is done."""
        raise NotImplementedError

    def result(self) -> dict[str, int]:
        """Counts.

        Raises:
            RuntimeError: what happened is not what was asked for.
        """
        raise NotImplementedError


class RunSender(RunConnection):
    """Sends numbered messages to one address."""

    def __init__(self, port: int, name: str, address: str, count: int, size: int) -> None:
        super().__init__(port, name)
        self._link = self.sender(address, f"{name}-link")
        before, after = message_parts(size)
        length = len(before) + DIGITS + len(after)
        self._at_once = max(1, min(RUN_MAX, SENT_BYTES_MAX // length))
        one = np.frombuffer(before + b"0" * DIGITS + after, dtype=np.uint8)
        self._bodies: npt.NDArray[np.uint8] = np.tile(one, (self._at_once, 1)).copy()
        self._numbers = slice(len(before), len(before) + DIGITS)
        self._bounds = np.arange(1, self._at_once + 1, dtype=np.uint32) * np.uint32(length)
        self._pointers = ffi.from_buffer(self._bodies), ffi.cast("uint32_t *", ffi.from_buffer(self._bounds))
        self._count = count
        self.sent = self.confirmed = self.refused = 0

    def advance(self) -> None:
        """Send as many as there is credit for."""
        while possible := min(lib.pn_link_credit(self._link), self._count - self.sent, self._at_once):
            numbers = np.arange(self.sent, self.sent + possible, dtype=np.int64)
            self._bodies[:possible, self._numbers] = (numbers[:, None] // _POWERS) % 10 + ord("0")
            tags = numbers.astype(">u8").tobytes()
            self.calls.send_all(self._link, possible, *self._pointers, ffi.from_buffer(tags), _deliveries)
            self.sent += possible
        self.flush()

    def on_delivery(self, collector: Any, _event: Any) -> int:
        count: int = self.calls.take_outcomes(collector, _DELIVERY, RUN_MAX, _deliveries, _flags)
        if count:
            accepted = int(((_flags_taken[:count] & 0x7F) == ACCEPTED).sum())
            self.confirmed += accepted
            self.refused += count - accepted
            self.calls.settle_all(_deliveries, count, 0)
        else:
            # A rejection has fields: it comes one by one.
            delivery = lib.pn_event_delivery(_event)
            if lib.pn_delivery_updated(delivery):
                self.refused += 1
                lib.pn_delivery_settle(delivery)
        return count

    @property
    def done(self) -> bool:
        return self.confirmed + self.refused >= self._count

    def result(self) -> dict[str, int]:
        if self.refused or self.confirmed != self._count:
            raise RuntimeError(f"{self.confirmed} of {self._count} sends were confirmed, {self.refused} refused")
        return {"count": self.confirmed, "refused": self.refused}


class RunReceiver(RunConnection):
    """Receives `count` messages of each address, each with a link of its own, and accepts them.

    Args:
        count: how many there are on each link; 0 takes what comes, and does not look at numbers.
        size: bytes of data in each, so that its number is found.
        durable: the links are durable subscriptions, named by this connection's name and their numbers.
    """

    def __init__(self, port: int, name: str, addresses: Sequence[str], count: int, size: int, *, durable: bool) -> None:
        super().__init__(port, name)
        self._numbers: dict[Any, Numbers] = {}
        self._count = count * len(addresses)
        behind = len(message_parts(size)[1])
        for place, address in enumerate(addresses):
            self._numbers[self._attach(address, place, durable=durable)] = Numbers(count, behind)
        self.received = 0
        self._attached = 0
        self.wait(self._watch_attached, lambda: self._attached == len(addresses))

    def _attach(self, address: str, place: int, *, durable: bool) -> Any:
        """A link without credit: what comes before all links are attached would be overlooked."""
        link = lib.pn_receiver(self.session, (f"subscriber-{place}" if durable else f"{self.name}-link").encode())
        source = lib.pn_link_source(link)
        lib.pn_terminus_set_address(source, address.encode())
        if durable:
            lib.pn_terminus_set_durability(source, lib.PN_DELIVERIES)
            lib.pn_terminus_set_expiry_policy(source, lib.PN_EXPIRE_NEVER)
        lib.pn_link_set_snd_settle_mode(link, lib.PN_SND_UNSETTLED)
        lib.pn_link_open(link)
        return link

    def _watch_attached(self, kind: int, event: Any) -> None:
        self._attached += kind == lib.PN_LINK_REMOTE_OPEN
        self.check(kind, event)

    def advance(self) -> None:
        """Give credit back, in lumps."""
        for link in self._numbers:
            used = CREDIT - lib.pn_link_credit(link)
            if used >= CREDIT // 4:
                lib.pn_link_flow(link, used)
        self.flush()

    def on_delivery(self, collector: Any, event: Any) -> int:
        delivery = lib.pn_event_delivery(event)
        link = lib.pn_delivery_link(delivery)
        count: int = self.calls.take_transfers(
            collector,
            _DELIVERY,
            link,
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
            self.calls.settle_all(_deliveries, count, lib.PN_ACCEPTED)
            self.received += count
            if self._count:
                self._numbers[link].take(count)
        elif not lib.pn_delivery_partial(delivery) and lib.pn_delivery_pending(delivery) > RUN_BYTES_MAX:
            raise RuntimeError(f"a message is larger than {RUN_BYTES_MAX} bytes")
        return count

    @property
    def done(self) -> bool:
        return self.received >= self._count > 0

    def result(self) -> dict[str, int]:
        missing = sum(numbers.missing for numbers in self._numbers.values())
        if self._count and (missing or self.received != self._count):
            raise RuntimeError(f"{self.received} messages came instead of {self._count}; {missing} never did")
        return {"count": self.received}


def connections(given: argparse.Namespace) -> list[RunConnection]:
    """The connections that the command line asks for, all opened."""
    own = f"run-{given.what}-{os.getpid()}"
    if given.what == "subscribe":
        topic = [given.address] * given.links
        return [RunReceiver(given.port, given.subscription, topic, given.count, given.size, durable=True)]
    addresses = [given.address]
    if given.connections > 1:
        addresses = [f"{given.address}-{number}" for number in range(given.connections)]
    if given.what == "send":
        return [
            RunSender(given.port, f"{own}-{number}", address, given.count, given.size)
            for number, address in enumerate(addresses)
        ]
    count = 0 if given.what == "drain" else given.count
    return [
        RunReceiver(given.port, f"{own}-{number}", [address], count, given.size, durable=False)
        for number, address in enumerate(addresses)
    ]


def run(opened: Sequence[RunConnection]) -> None:
    """Work until every connection is done."""
    poll = select.poll()
    by_socket = {each.socket.fileno(): each for each in opened}
    for number, each in by_socket.items():
        each.advance()
        poll.register(number, select.POLLIN)
    busy = len(opened)
    while busy:
        for number, _ in poll.poll():
            each = by_socket[number]
            each.pump()
            each.advance()
            if each.done:
                poll.unregister(number)
                busy -= 1


def drain(opened: Sequence[RunConnection]) -> None:
    """Receive until nothing has come for `IDLE_S`."""
    for each in opened:
        each.advance()
        while select.select([each.socket], [], [], IDLE_S)[0]:
            each.pump()
            each.advance()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["send", "receive", "subscribe", "drain"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--address", default="bench")
    parser.add_argument("--count", type=int, default=100_000, help="messages for each connection or subscription")
    parser.add_argument("--size", type=int, default=256, help="bytes of data in a message")
    parser.add_argument(
        "--connections", type=int, default=1, help="so many, each with an address of its own: ADDRESS-0, ..."
    )
    parser.add_argument("--links", type=int, default=10, help="durable subscriptions, all on one connection")
    parser.add_argument("--subscription", default="run-subscribers", help="container id of durable subscriptions")
    given = parser.parse_args()
    opened = connections(given)
    print("ready", flush=True)
    input()
    started = time.monotonic()
    if given.what == "drain":
        drain(opened)
    else:
        run(opened)
    ended = time.monotonic()
    counts = [each.result() for each in opened]
    for each in opened:
        each.close()
    total = {name: sum(count[name] for count in counts) for name in counts[0]}
    print(json.dumps({"started": started, "ended": ended} | total), flush=True)


if __name__ == "__main__":
    main()
