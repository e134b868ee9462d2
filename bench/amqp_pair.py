"""The cost of `legato.amqp` for each message and side, in memory: no sockets, no store."""

import argparse
import json
from collections.abc import Callable
from statistics import median
from time import perf_counter

from legato.amqp.engine.connection import Connection
from legato.amqp.engine.events import Attached, Disposition, Event, Opened, SessionBegan, Transfer
from legato.amqp.engine.link import Receiver, Sender
from legato.amqp.engine.settings import Settings
from legato.amqp.engine.terminus import Terminus

CHUNK_BYTES = 1 << 16
"""A socket delivers about as much at a time."""
ROUND = 100


class Pair:
    """A client that sends and a server that accepts, joined by hand, each with its own stop-watch."""

    def __init__(self) -> None:
        self.client_s = self.server_s = 0.0
        self.accepted = 0
        self.server = Connection(server=True, settings=Settings(container_id="server"))
        self.client = Connection(server=False, settings=Settings(container_id="client"))
        self.client.open()
        self.sender: Sender = self.client.begin_session().sender("bench", target=Terminus(address="bench"))
        while self.sender.credit == 0:
            self._exchange()

    def _on_server(self, event: Event) -> None:
        if isinstance(event, Opened):
            self.server.open()
        elif isinstance(event, SessionBegan):
            event.session.open()
        elif isinstance(event, Attached):
            event.link.accept()
            assert isinstance(event.link, Receiver)
            event.link.add_credit(10 * ROUND)

    def _exchange(self) -> None:
        for event in self.server.receive_data(self.client.data_to_send()):
            self._on_server(event)
        self.client.receive_data(self.server.data_to_send())

    def run(self, count: int, size: int) -> dict[str, float]:
        """Send `count` messages of `size` bytes, each accepted and settled; us per message and side."""
        data = b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + bytes(size)
        self.client_s = self.server_s = 0.0
        self.accepted = sent = 0
        while self.accepted < count:
            started = perf_counter()
            for _ in range(min(ROUND, count - sent, self.sender.credit)):
                sent += 1
                self.sender.send(data, sent.to_bytes(8, "big"), sent)
            output = self.client.data_to_send()
            self.client_s += perf_counter() - started
            answer = self._timed("server_s", self._serve, output)
            self._timed("client_s", self._collect, answer)
        return {
            "client_us": round(self.client_s / count * 1e6, 2),
            "server_us": round(self.server_s / count * 1e6, 2),
        }

    def _timed(self, side: str, work: Callable[[bytes], bytes], data: bytes) -> bytes:
        started = perf_counter()
        result = work(data)
        setattr(self, side, getattr(self, side) + perf_counter() - started)
        return result

    def _serve(self, output: bytes) -> bytes:
        for at in range(0, len(output), CHUNK_BYTES):
            link, came = None, 0
            for event in self.server.receive_data(output[at : at + CHUNK_BYTES]):
                if type(event) is Transfer:
                    link, came = event.link, came + 1
                    link.settle(event.delivery)
            if link is not None:
                link.add_credit(came)
        return self.server.data_to_send()

    def _collect(self, answer: bytes) -> bytes:
        for event in self.client.receive_data(answer):
            if type(event) is Disposition:
                self.accepted += 1
        return b""


def main() -> None:
    """Print the median of several runs; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=30_000)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    pair = Pair()
    runs = [pair.run(options.count, options.size) for _ in range(options.runs)]
    for side in ("client_us", "server_us"):
        print(f"{side:10} min {min(run[side] for run in runs)} max {max(run[side] for run in runs)}")
    print(json.dumps({side: median(run[side] for run in runs) for side in ("client_us", "server_us")}))


if __name__ == "__main__":
    main()
