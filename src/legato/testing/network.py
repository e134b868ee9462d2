"""A network between clients and a pair of brokers that a test or script can cut, freeze and heal."""

from __future__ import annotations

from legato.drill.relay import Network as Relays
from legato.testing.brokers import BrokerPair


class Network(Relays):
    """Clients that use its `url` reach the brokers through it; use it with `with`.

    `cut()` breaks all connections, and those that are tried from then on; `freeze()` keeps them and lets nothing
    through; `heal()` ends either.
    """

    def __init__(self, brokers: BrokerPair) -> None:
        super().__init__([("127.0.0.1", port) for port in brokers.ports])

    @property
    def url(self) -> str:
        """Both brokers, as clients see them through this network."""
        return "amqp://" + ",".join(f"127.0.0.1:{port}" for port in self.ports)
