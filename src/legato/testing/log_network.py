"""The network of servers of a replicated log, which a test can cut in one direction or both."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations

from legato.drill.relay import Network as Relays
from legato.processes.log_servers import HOST, LogServers


class LogNetwork(Relays):
    """Relays between each two servers, and between clients and servers; use it with `with`, before the servers start.

    Args:
        servers: which do not run yet.
    """

    def __init__(self, servers: LogServers) -> None:
        self._log_servers = servers
        self._names = [server.name for server in servers.servers]
        self._pairs = list(permutations(self._names, 2))
        routes = [(HOST, servers[other].ports.route) for _, other in self._pairs]
        super().__init__([*routes, *((HOST, server.ports.client) for server in servers.servers)])

    def __enter__(self) -> LogNetwork:
        super().__enter__()
        found: dict[str, list[int]] = {name: [] for name in self._names}
        for (name, _), port in zip(self._pairs, self.ports, strict=False):
            found[name].append(port)
        self._log_servers.connect(found, by_these_alone=True)
        return self

    @property
    def url(self) -> str:
        """All servers, as clients see them through this network."""
        return ",".join(f"nats://{HOST}:{port}" for port in self.ports[len(self._pairs) :])

    def silence(self, server: str, towards: Iterable[str]) -> None:
        """Let nothing through that a server says to others; what they say goes through.

        Args:
            server: the name of one.
            towards: the names of others.
        """
        # Connections between two of them were made by either.
        ours = [self._pairs.index((server, other)) for other in towards]
        theirs = [self._pairs.index((self._pairs[place][1], server)) for place in ours]
        self.freeze_one_way(ours, towards_brokers=True)
        self.freeze_one_way(theirs, towards_brokers=False)

    def separate(self, server: str, others: Iterable[str]) -> None:
        """Let nothing through between a server and others."""
        for other in others:
            self.silence(server, [other])
            self.silence(other, [server])

    def silence_to_clients(self) -> None:
        """Let nothing through that servers say to clients; what clients say goes through."""
        self.freeze_one_way(range(len(self._pairs), len(self.ports)), towards_brokers=False)
