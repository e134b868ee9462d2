"""Registry of links: by node, and receiving links by container and name."""

from __future__ import annotations

from collections.abc import Collection

from legato.amqp.engine.link import Link, Receiver, Sender
from legato.amqp.engine.link_base import LinkConnection
from legato.server.shell import Peer


class Registry:
    """The links of all peers that are attached to nodes."""

    def __init__(self) -> None:
        self._nodes: dict[Link, str] = {}
        self._links: dict[str, dict[Link, None]] = {}
        self._receiving: dict[tuple[str, str], Sender] = {}
        """Receiving links by container and name: a client that came back takes over its own (AMQP 2.6.1)."""
        self._sending: dict[tuple[LinkConnection, str], Receiver] = {}
        """Producers' links by connection and name."""
        self.suspended: dict[Link, Peer] = {}
        """Links that were detached, not closed, and live on."""

    def add(self, link: Link, node: str) -> None:
        """`link` is attached to the node of that name."""
        self._nodes[link] = node
        self._links.setdefault(node, {})[link] = None

    def remove(self, link: Link) -> str | None:
        """`link` is gone; the name of the node that it was attached to."""
        node = self._nodes.pop(link, None)
        if node is not None:
            links = self._links[node]
            del links[link]
            if not links:
                del self._links[node]
        return node

    def node_of(self, link: Link) -> str | None:
        """The name of the node that `link` is attached to."""
        return self._nodes.get(link)

    def links(self, node: str) -> Collection[Link]:
        """The links attached to a node, oldest first."""
        return self._links.get(node, {}).keys()

    def hold(self, container: str, link: Sender) -> None:
        """`link` is the receiving link of that container and its name."""
        self._receiving[container, link.name] = link

    def holder(self, container: str, name: str) -> Sender | None:
        """The receiving link of that container and name."""
        return self._receiving.get((container, name))

    def release(self, container: str, link: Sender) -> None:
        """`link` is no longer a receiving link of that container."""
        if self._receiving.get((container, link.name)) is link:
            del self._receiving[container, link.name]

    def hold_sending(self, link: Receiver) -> Receiver | None:
        """`link` is the producer's link of its name on its connection; returns the one that was."""
        before = self._sending.get((link.connection, link.name))
        self._sending[link.connection, link.name] = link
        return before

    def release_sending(self, link: Receiver) -> None:
        """`link` is no longer a producer's link."""
        if self._sending.get((link.connection, link.name)) is link:
            del self._sending[link.connection, link.name]
