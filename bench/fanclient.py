"""Subscribers of a fan-out: one connection with a durable link to each address, in raw Proton calls, for every broker.

Says `ready` when all links are attached, begins on a line of input, and prints one JSON line as `bench.rawclient` does.
"""

import argparse
import json
import time
from typing import Any

from cproton_ffi import ffi, lib

from bench.rawclient import RawConnection

CREDIT = 1000

_body = ffi.new("char[]", 1 << 20)
_delivery_of = lib.pn_event_delivery
_link_of = lib.pn_delivery_link
_partial = lib.pn_delivery_partial
_PN_DELIVERY = lib.PN_DELIVERY
_PN_ACCEPTED = lib.PN_ACCEPTED


class Subscribers:
    """Receives on all links, accepts and settles."""

    def __init__(self, port: int, addresses: list[str]) -> None:
        self.connection = RawConnection(port, "raw-subscribers")
        self.links = [self._attach(address, number) for number, address in enumerate(addresses)]
        self.received = 0
        attached = 0

        def watch(kind: int, event: Any) -> None:
            nonlocal attached
            attached += kind == lib.PN_LINK_REMOTE_OPEN
            self.connection.check(kind, event)

        self.connection.wait(watch, lambda: attached == len(self.links))

    def _attach(self, address: str, number: int) -> Any:
        link = lib.pn_receiver(self.connection.session, f"subscriber-{number}".encode())
        source = lib.pn_link_source(link)
        lib.pn_terminus_set_address(source, address.encode())
        if address.startswith("topic://"):
            lib.pn_terminus_set_durability(source, lib.PN_DELIVERIES)
            lib.pn_terminus_set_expiry_policy(source, lib.PN_EXPIRE_NEVER)
        lib.pn_link_set_snd_settle_mode(link, lib.PN_SND_UNSETTLED)
        lib.pn_link_open(link)
        lib.pn_link_flow(link, CREDIT)
        return link

    def handle(self, kind: int, event: Any) -> None:
        """Accept a copy."""
        if kind != _PN_DELIVERY:
            self.connection.check(kind, event)
            return
        delivery = _delivery_of(event)
        if not _partial(delivery):
            link = _link_of(delivery)
            lib.pn_link_recv(link, _body, 1 << 20)
            lib.pn_link_advance(link)
            lib.pn_delivery_update(delivery, _PN_ACCEPTED)
            lib.pn_delivery_settle(delivery)
            self.received += 1

    def run(self, count: int) -> dict[str, float]:
        """Receive `count` copies on each link."""
        started = time.monotonic()
        while self.received < count * len(self.links):
            self.connection.flush()
            self.connection.read(self.handle)
            for link in self.links:
                used = CREDIT - lib.pn_link_credit(link)
                if used >= CREDIT // 4:
                    lib.pn_link_flow(link, used)
        self.connection.flush()
        return {"started": started, "ended": time.monotonic(), "count": self.received}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["subscribe"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--addresses", required=True, help="comma-separated, one link each")
    parser.add_argument("--count", type=int, default=10_000, help="messages for each")
    options = parser.parse_args()
    worker = Subscribers(options.port, options.addresses.split(","))
    print("ready", flush=True)
    input()
    result = worker.run(options.count)
    worker.connection.close()
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
