"""A receiver that loses its broker: it tries the brokers in turn until one of them gives it a message again.

Says `ready` when it has its first message, begins on a line of input, and prints one JSON line with the instant
(CLOCK_MONOTONIC) of the first message after its connection was lost.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from typing import Any

from cproton_ffi import lib

from bench.rawclient import RawConnection

PAUSE_S = 0.005
"""Between two attempts, each at another broker."""


class One:
    """A connection that asks for one message."""

    def __init__(self, port: int, address: str) -> None:
        self._came = False
        self._connection = RawConnection(port, f"first-{time.monotonic_ns()}")
        self._connection.receiver(address, 1, "first-link")

    def _handle(self, kind: int, event: Any) -> None:
        if kind == lib.PN_DELIVERY and not lib.pn_delivery_partial(lib.pn_event_delivery(event)):
            self._came = True
        self._connection.check(kind, event)

    def await_message(self) -> None:
        """Block until it is there."""
        self._connection.wait(self._handle, lambda: self._came)

    def await_loss(self) -> None:
        """Block until the broker is gone."""
        try:
            while True:
                self._connection.read(self._handle)
        except OSError:
            return


def first_of(ports: list[int], address: str) -> float:
    """When the first message came from any of them."""
    for port in itertools.cycle(ports):
        try:
            One(port, address).await_message()
        except OSError:
            # Nobody listens there yet, or it is not the primary.
            time.sleep(PAUSE_S)
        else:
            return time.monotonic()
    raise AssertionError("there is no broker to try")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["first"])
    parser.add_argument("--ports", required=True, help="the primary's and its backup's, with a comma between")
    parser.add_argument("--address", default="bench")
    given = parser.parse_args()
    ports = [int(port) for port in given.ports.split(",")]
    primary = One(ports[0], given.address)
    primary.await_message()
    print("ready", flush=True)
    input()
    primary.await_loss()
    print(json.dumps({"first": first_of([*ports[1:], ports[0]], given.address)}), flush=True)


if __name__ == "__main__":
    main()
