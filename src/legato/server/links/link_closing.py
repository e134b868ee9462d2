"""Close links from the broker's side: their node was deleted, or the same client attached them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from legato.amqp.engine.link import Link, Sender
from legato.core.broker import Broker
from legato.server.links.link_roles import Node, peer_of
from legato.server.links.refused import RESOURCE_DELETED
from legato.server.links.registry import Registry
from legato.server.shell import Peer

STOLEN = "amqp:link:stolen"


class LinkCloser:
    """Closes links, and first detaches what depends on them.

    Args:
        gone: what takes a link's port from the broker; given the link's peer and the link.
        touch: what has a peer flushed.
        when_durable: calls what it is given when all that a peer has asked for is durable and answered.
    """

    def __init__(
        self,
        broker: Broker,
        registry: Registry,
        gone: Callable[[Peer, Link], None],
        touch: Callable[[Peer], None],
        when_durable: Callable[[Peer, Callable[[], None]], None],
    ) -> None:
        self._broker = broker
        self._registry = registry
        self._gone = gone
        self._touch = touch
        self._when_durable = when_durable
        self.deleted: Callable[[str], None] = lambda name: None
        """Is told the name of each node that was deleted."""

    def steal(self, link: Link) -> None:
        """The same client attached `link` again, before we noticed that it was gone."""
        self.cut(link, STOLEN, "the same client attached this link again")

    def delete(self, node: Node) -> None:
        """Delete a node: who receives from it or sends to it is told (AMQP 2.8.15)."""
        links = list(self._registry.links(node.name))
        links += [consumer.port.link for consumer in self._broker.deletion.delete(node)]
        # Before its links go: the last link of a temporary node would have it deleted once more.
        self.deleted(node.name)
        for link in dict.fromkeys(links):
            self.end(link, RESOURCE_DELETED, f"{node.address} was deleted")

    def end(self, link: Link, condition: str, description: str) -> None:
        """Nothing goes over a link any more; its peer hears why.

        A receiver hears so when it has heard what became of all that it has acknowledged: its client would take for
        given back what is consumed (promise 5).
        """
        if not isinstance(link, Sender) or link.context is None:
            self.cut(link, condition, description)
            return
        peer = peer_of(link)
        self._gone(peer, link)
        self._when_durable(peer, lambda: link.close(condition, description))

    def cut(self, link: Link, condition: str, description: str, info: dict[str, Any] | None = None) -> None:
        """End a link, and say why."""
        if link.context is not None:
            peer = peer_of(link)
            self._gone(peer, link)
            self._touch(peer)
        link.close(condition, description, info)
