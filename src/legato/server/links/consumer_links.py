"""Receiving links of peers: consumers of queues, browsers, and links that make a temporary node."""

from __future__ import annotations

from legato.amqp.engine.link import Sender
from legato.amqp.engine.terminus import Terminus
from legato.core.address_prefixes import DURABLE_PREFIX
from legato.core.broker import Broker
from legato.core.queues import Queue
from legato.core.refusals import Refusal
from legato.core.topics import Topic
from legato.server.access.permissions import BROWSE, RECEIVE
from legato.server.links import temporary_nodes
from legato.server.links.consumers import Consumers
from legato.server.links.damaged_queues import DamagedQueues
from legato.server.links.expiry_timers import ExpiryTimers
from legato.server.links.filters import Filters, read_filters
from legato.server.links.link_endings import LinkEnding, kept_policy
from legato.server.links.link_roles import DeliveryLink, Node
from legato.server.links.nodes import Nodes, wants_topic
from legato.server.links.refused import Refused
from legato.server.links.registry import Registry
from legato.server.links.subscriptions import SubscriptionLinks
from legato.server.links.temporary_nodes import Temporaries
from legato.server.shell import Peer


class ConsumerLinks:
    """Attaches the links over which peers receive."""

    def __init__(
        self,
        broker: Broker,
        registry: Registry,
        nodes: Nodes,
        temporaries: Temporaries,
        consumers: Consumers,
        subscription_links: SubscriptionLinks,
        expiry_timers: ExpiryTimers,
        damaged: DamagedQueues,
    ) -> None:
        self._broker = broker
        self._registry = registry
        self._nodes = nodes
        self._temporaries = temporaries
        self._consumers = consumers
        self._subscription_links = subscription_links
        self._expiry_timers = expiry_timers
        self._damaged = damaged

    def attach(self, peer: Peer, link: Sender) -> None:
        """Accept a receiver's attach (amqp.md A3, A8).

        Raises:
            Refused, Refusal: it cannot be accepted.
        """
        source = link.remote_source
        filters = read_filters(source)
        old = None
        if source.dynamic:
            node = self._temporaries.make(peer, link, source)
            answer = temporary_nodes.answer(source, node.address)
        else:
            address = source.address or ""
            if source.distribution_mode == "copy" and self._browse_subscription(peer, link, address, filters):
                return
            browses = source.distribution_mode == "copy" and wants_topic(source.capabilities) is not True
            operation = BROWSE if browses else RECEIVE
            node = self._nodes.find(address, source.capabilities, peer.rights, operation, peer.holdings)
            if peer.rights is not None:
                if browses and isinstance(node, Topic):
                    peer.rights.demand(RECEIVE, node.address, True)
                elif source.distribution_mode == "copy" and not isinstance(node, Topic) and not browses:
                    # A temporary queue is found whatever its capability says.
                    peer.rights.demand(BROWSE, node.name)
            answer = self._echo(source)
            if isinstance(node, Topic) or source.distribution_mode != "copy":
                self._temporaries.check_consumer(peer, node)
                # A browser takes nobody's place.
                if (old := self._registry.holder(peer.container, link.name)) is not None:
                    self._temporaries.pass_on(node.name, old, link)
        # Before the former one goes: a link that is attached again is not the last one of its node.
        self._registry.add(link, node.name)
        try:
            self._attach_to(peer, link, node, filters, answer)
        except (Refused, Refusal):
            self._registry.remove(link)
            is_held = old is not None and self._registry.holder(peer.container, link.name) is old
            self._temporaries.give_back(node.name, link, old if is_held else None)
            if old is not None and not is_held:
                self._temporaries.link_gone(node.name, link, LinkEnding.CUT)
            raise

    def _attach_to(self, peer: Peer, link: Sender, node: Node, filters: Filters, answer: Terminus) -> None:
        if isinstance(node, Topic):
            # A durable subscription asks for distribution mode copy too (amqp.md A3): of a topic that says nothing.
            self._subscription_links.attach(peer, link, node, filters, answer)
        else:
            filters.ignore_no_local()
            answer.filters = filters.applied
            if link.remote_source.distribution_mode == "copy":
                self._browse(peer, link, node, filters, answer)
            else:
                properties = self._consumers.attach(peer, link, node, DeliveryLink(peer, link), filters.matches)
                self._consumers.accept(peer, link, answer, properties)

    def _browse_subscription(self, peer: Peer, link: Sender, address: str, filters: Filters) -> bool:
        """Attach a browser to a durable subscription, by its name in the broker."""
        subscription = self._broker.subscriptions.find(address) if address.startswith(DURABLE_PREFIX) else None
        if subscription is None:
            return False
        if peer.rights is not None:
            peer.rights.demand(BROWSE, subscription.address, True)
        filters.ignore_no_local()
        answer = self._echo(link.remote_source)
        answer.filters = filters.applied
        self._browse(peer, link, subscription, filters, answer)
        return True

    def _browse(self, peer: Peer, link: Sender, queue: Queue, filters: Filters, answer: Terminus) -> None:
        self._damaged.refuse(queue)
        browser = link.context = self._broker.browsers.browse(queue, DeliveryLink(peer, link), filters.matches)
        link.accept(source=answer)
        peer.links.add(link)
        peer.receivers.add(browser)

    def _echo(self, source: Terminus) -> Terminus:
        """A source as it was asked for, as far as that is kept, before it is known which filters are applied."""
        return Terminus(
            address=source.address,
            durable=source.durable,
            expiry_policy=kept_policy(source.expiry_policy),
            timeout_s=int(self._expiry_timers.kept_s(source.timeout_s)),
            distribution_mode=source.distribution_mode,
            capabilities=source.capabilities,
            properties=source.properties,
            outcomes=source.outcomes,
        )
