"""A good client: a process that sends a message to its own queue and receives it back, many times a second."""

from __future__ import annotations

import argparse
import json
import select
import socket
import sys
import time

from legato.amqp.engine.outcomes import ACCEPTED
from tests.support.amqp_peer import AmqpPeer, data_of, text

TRIPS_PER_S = 50


def main() -> None:
    """Make round trips until a line comes; then print how many milliseconds each took, and begin again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--user")
    parser.add_argument("--password")
    options = parser.parse_args()
    peer = AmqpPeer(options.port, user=options.user, password=options.password, container="good")
    peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sender, receiver = peer.sender("good"), peer.receiver("good", 1)
    trips_ms: list[float] = []
    print("ready", flush=True)
    while True:
        began = time.monotonic()
        assert peer.send(sender, text(b"well")) == ACCEPTED
        transfer = peer.transfer()
        assert data_of(transfer) == b"well"
        receiver.settle(transfer.delivery, ACCEPTED)
        receiver.add_credit(1)
        peer.flush()
        trips_ms.append(1000 * (time.monotonic() - began))
        if select.select([sys.stdin], [], [], max(0.0, began + 1 / TRIPS_PER_S - time.monotonic()))[0]:
            if not sys.stdin.readline():
                return
            print(json.dumps(trips_ms), flush=True)
            trips_ms.clear()


if __name__ == "__main__":
    main()
