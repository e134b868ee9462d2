"""Temporary destinations: dynamic nodes, deleted by the lifetime policy of their link (AMQP 3.5.10-13)."""

from __future__ import annotations

from enum import Enum
from typing import Any

from legato.amqp import names
from legato.amqp.codec.types import Described, ULong
from legato.amqp.engine.link import Link
from legato.amqp.engine.terminus import Terminus
from legato.core.address_prefixes import TEMPORARY_QUEUE_PREFIX, TEMPORARY_TOPIC_PREFIX, TOPIC_PREFIX
from legato.core.broker import Broker
from legato.core.topics import Topic
from legato.ids import new_unique_name
from legato.server.access.permissions import CREATE
from legato.server.limits.names import Names
from legato.server.links.expiry_timers import ExpiryTimers
from legato.server.links.link_closing import LinkCloser
from legato.server.links.link_endings import LinkEnding, kept_policy
from legato.server.links.link_roles import Node
from legato.server.links.membership import Membership
from legato.server.links.nodes import wants_topic
from legato.server.links.refused import NOT_ALLOWED, RESOURCE_LOCKED, Refused
from legato.server.links.registry import Registry
from legato.server.shell import Peer, Rights

LIFETIME_POLICY = "lifetime-policy"


class Lifetime(Enum):
    """The lifetime policy of a dynamic node; the value is its descriptor."""

    CLOSE = 0x2B
    """With the link that made it."""
    NO_LINKS = 0x2C
    """With its last link."""
    NO_MESSAGES = 0x2D
    """When the link that made it has gone and it is empty."""
    NO_LINKS_OR_MESSAGES = 0x2E
    """When its last link has gone and it is empty."""


_BY_NAME = {
    "amqp:delete-on-close:list": Lifetime.CLOSE,
    "amqp:delete-on-no-links:list": Lifetime.NO_LINKS,
    "amqp:delete-on-no-messages:list": Lifetime.NO_MESSAGES,
    "amqp:delete-on-no-links-or-messages:list": Lifetime.NO_LINKS_OR_MESSAGES,
}


class TemporaryNode:
    """One dynamic node. `maker` is the link that made it, None once that has gone; `owner` is whose link it was.

    It `is_new` while it is with the link whose attach created it.
    """

    __slots__ = ("is_new", "lifetime", "linger_s", "maker", "node", "owner")

    def __init__(self, node: Node, lifetime: Lifetime, maker: Link, linger_s: int, owner: Peer, is_new: bool) -> None:
        self.node = node
        self.is_new = is_new
        self.owner = owner
        self.lifetime = lifetime
        self.maker: Link | None = maker
        self.linger_s = linger_s


class Temporaries:
    """The dynamic nodes of this epoch, created or claimed again; the core deletes those that nobody claims."""

    def __init__(
        self,
        broker: Broker,
        registry: Registry,
        closer: LinkCloser,
        expiry_timers: ExpiryTimers,
        names: Names,
        membership: Membership,
    ) -> None:
        self._broker = broker
        self._membership = membership
        self._names = names
        self._registry = registry
        self._closer = closer
        self._expiry_timers = expiry_timers
        self._nodes: dict[str, TemporaryNode] = {}
        self._until_empty: dict[str, TemporaryNode] = {}
        """Nodes that wait only for their last message to go."""

    def make(self, peer: Peer, link: Link, terminus: Terminus) -> Node:
        """The node that a dynamic terminus asks for: a new one, or the one that its client had before.

        Raises:
            Refused: the name asked for is no temporary one, or another client's.
            Denied: its user may create none.
            LimitExceeded: it has made too many.
            UnfitName: there is none of that name yet, and none can have it.
        """
        topic = wants_topic(terminus.capabilities) is True
        prefix = TEMPORARY_TOPIC_PREFIX if topic else TEMPORARY_QUEUE_PREFIX
        wanted = link.remote_properties.get(names.TEMPORARY_NAME)
        if wanted is None:
            name = new_unique_name(self._membership.temporary_prefix(prefix))
        elif isinstance(wanted, str) and wanted.startswith(prefix) and len(wanted) > len(prefix):
            name = str(wanted)
        else:
            raise Refused(NOT_ALLOWED, f"{wanted!r} is not the name of a temporary node of this broker.")
        if peer.rights is not None:
            peer.rights.demand(CREATE, name if wanted is not None else prefix + "new", topic)
        node = self._broker.directory.lookup(name)
        if node is not None and not (node.temporary and node.container == peer.container):
            raise Refused(RESOURCE_LOCKED, f"{name} belongs to another client.")
        key = TOPIC_PREFIX + name if topic else name
        known = self._nodes.get(key)
        if known is not None and known.maker is not None:
            if known.maker.connection is link.connection:
                raise Refused(RESOURCE_LOCKED, f"{name} belongs to another link.")
            del self._nodes[key]
            self._closer.steal(known.maker)
        node = self._broker.directory.lookup(name)
        is_new = node is None
        if node is None:
            self._names.check(name, "a temporary destination")
            peer.holdings.create()
            node = self._broker.directory.create_temporary(name, topic=topic, container=peer.container)
        else:
            self._broker.temporaries.reclaim(node)
        self._expiry_timers.cancel(key)
        self._until_empty.pop(key, None)
        self._nodes[key] = TemporaryNode(node, lifetime_of(terminus), link, terminus.timeout_s, peer, is_new)
        return node

    def check_consumer(self, peer: Peer, node: Node) -> None:
        """Only its own connection may receive from a temporary node (Jakarta Messaging 4.1.5, 6.2.2).

        That is the one that made it, or came back to it. Until its client is back it is whoever has its container id.

        Raises:
            Refused: the node is another connection's.
        """
        if not node.temporary:
            return
        temporary = self._nodes.get(node.name)
        owner = None if temporary is None or temporary.owner.ended else temporary.owner
        if peer is not owner and (owner is not None or peer.container != node.container):
            raise Refused(RESOURCE_LOCKED, f"{node.address} is another connection's: only that may receive from it.")

    def demand(self, rights: Rights, name: str) -> None:
        """Raise `Denied` if who made the node `name` may make none any more."""
        node = self._nodes[name].node
        rights.demand(CREATE, node.address, isinstance(node, Topic))

    def is_maker(self, name: str, link: Link) -> bool:
        """Whether `link` made the node `name`."""
        temporary = self._nodes.get(name)
        return temporary is not None and temporary.maker is link

    def pass_on(self, name: str, old: Link, link: Link) -> None:
        """The link `old` is attached again, as `link`: if it made the node `name`, this goes with the new one."""
        if self.is_maker(name, old):
            self._nodes[name].maker = link
            self._nodes[name].is_new = False

    def give_back(self, name: str, link: Link, old: Link | None) -> None:
        """The attach of `link` was refused, after it had made the node `name` or `old` had passed it on.

        Args:
            old: the link that is attached still, if there is one.
        """
        if not self.is_maker(name, link):
            return
        temporary = self._nodes[name]
        if old is not None:
            temporary.maker = old
        elif temporary.is_new:
            self._delete(name, temporary)
        else:
            self.link_gone(name, link, LinkEnding.LOST)

    def link_gone(self, name: str, link: Link, ending: LinkEnding) -> None:
        """`link` is no longer attached to the node `name`."""
        temporary = self._nodes.get(name)
        if temporary is None:
            return
        if link is temporary.maker:
            temporary.maker = None
        if self._over(name, temporary) and not self._expiry_timers.waits(name):
            seconds = self._expiry_timers.seconds(ending, temporary.linger_s)
            self._expiry_timers.start(name, seconds, temporary.node.container, lambda: self._end(name, temporary))

    def _over(self, name: str, temporary: TemporaryNode) -> bool:
        """Whether its links do not keep it any more."""
        match temporary.lifetime:
            case Lifetime.CLOSE | Lifetime.NO_MESSAGES:
                return temporary.maker is None
            case Lifetime.NO_LINKS | Lifetime.NO_LINKS_OR_MESSAGES:
                return not self._registry.links(name)

    def _end(self, name: str, temporary: TemporaryNode) -> None:
        if self._nodes.get(name) is not temporary or not self._over(name, temporary):
            return
        if temporary.lifetime in (Lifetime.CLOSE, Lifetime.NO_LINKS) or not waiting_in(temporary.node):
            self._delete(name, temporary)
        else:
            self._until_empty[name] = temporary

    def sweep(self) -> None:
        """Time passed: nodes that waited to be empty may be so."""
        for name, temporary in list(self._until_empty.items()):
            if not self._over(name, temporary):
                del self._until_empty[name]
            elif not waiting_in(temporary.node):
                self._delete(name, temporary)

    def _delete(self, name: str, temporary: TemporaryNode) -> None:
        self._until_empty.pop(name, None)
        self._closer.delete(temporary.node)

    def forget(self, name: str) -> None:
        """The node was deleted."""
        self._nodes.pop(name, None)
        self._until_empty.pop(name, None)
        self._expiry_timers.cancel(name)


def waiting_in(node: Node) -> int:
    """Messages that a queue, or any subscription of a topic, has."""
    if isinstance(node, Topic):
        return sum(subscription.depth for subscription in node.subscriptions.values())
    return node.depth


def lifetime_of(terminus: Terminus) -> Lifetime:
    """The lifetime policy among the dynamic node's properties; AMQP 3.5.10 is the default."""
    policy = terminus.properties.get(LIFETIME_POLICY)
    descriptor = policy.descriptor if isinstance(policy, Described) else None
    if isinstance(descriptor, str):
        return _BY_NAME.get(descriptor, Lifetime.CLOSE)
    return next((lifetime for lifetime in Lifetime if lifetime.value == descriptor), Lifetime.CLOSE)


def answer(terminus: Terminus, address: str) -> Terminus:
    """Answer to the attach of a dynamic node: its address and its policy."""
    properties: dict[str, Any] = dict(terminus.properties)
    properties[LIFETIME_POLICY] = Described(ULong(lifetime_of(terminus).value), [])
    return Terminus(
        address=address,
        dynamic=True,
        durable=terminus.durable,
        expiry_policy=kept_policy(terminus.expiry_policy),
        timeout_s=terminus.timeout_s,
        distribution_mode=terminus.distribution_mode,
        capabilities=terminus.capabilities,
        filters=terminus.filters,
        properties=properties,
        outcomes=terminus.outcomes,
    )
