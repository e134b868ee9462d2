"""Links to subscriptions: create, join, look up, end (Jakarta Messaging 4.2; amqp.md A3, A4)."""

from __future__ import annotations

from legato.amqp.codec.types import Described, ULong
from legato.amqp.engine.link import Sender
from legato.amqp.engine.terminus import Terminus
from legato.core.broker import Broker
from legato.core.consumers import Consumer
from legato.core.queues import Queue
from legato.core.topics import Topic
from legato.server.access.permissions import RECEIVE
from legato.server.limits.names import Names
from legato.server.links.consumers import Consumers
from legato.server.links.expiry_timers import ExpiryTimers
from legato.server.links.filters import NO_LOCAL, SELECTOR, Filters
from legato.server.links.link_endings import LinkEnding
from legato.server.links.link_roles import DeliveryLink, SubscriptionLookup
from legato.server.links.refused import NOT_FOUND, RESOURCE_LOCKED, Refused
from legato.server.links.registry import Registry
from legato.server.links.stream_subscriptions import demand_endable, demand_unread, reads
from legato.server.links.subscription_names import (
    durable_name,
    durable_of_all,
    is_of_all,
    plain_name,
    subscription_name,
)
from legato.server.shell import Peer

_UNSETTLED_STATE = 2


class SubscriptionLinks:
    """Attaches links to subscriptions, and ends subscriptions with their links."""

    def __init__(
        self, broker: Broker, registry: Registry, consumers: Consumers, expiry_timers: ExpiryTimers, names: Names
    ) -> None:
        self._broker = broker
        self._names = names
        self._registry = registry
        self._consumers = consumers
        self._expiry_timers = expiry_timers

    def attach(self, peer: Peer, link: Sender, topic: Topic, filters: Filters, answer: Terminus) -> None:
        """Accept a receiver on a topic.

        A durable subscription is durable before its client is told so.

        Raises:
            Refused, Refusal: the subscription is in use, or there is none and none can have that name, or too many were
                made.
        """
        wanted = subscription_name(link.name, link.remote_source, peer.container)
        holder = self._registry.holder(peer.container, link.name)
        if holder is not None and holder.connection is link.connection and wanted.durable:
            raise Refused(RESOURCE_LOCKED, f"This connection has an active subscription {link.name!r} already.")
        if wanted.durable or wanted.shared:
            given = plain_name(link.name, shared=wanted.shared)
            self._names.check(given, "a subscription", lambda: self._is_known(wanted.stored))
        former = self._broker.subscriptions.find(wanted.stored)
        if former is None:
            peer.holdings.create()
        else:
            if former.topic is not topic:
                self._demand_of_all(peer, former)
            name = plain_name(link.name, shared=wanted.shared)
            if wanted.stored == durable_of_all(name):
                demand_unread(self._broker, name, topic, filters.selector)
        self._consumers.steal(peer, link, wanted.stored)
        subscription = self._broker.subscriptions.subscribe(
            topic,
            wanted.stored,
            container=peer.container,
            selector=filters.selector,
            no_local=bool(filters.no_local_key),
            durable=wanted.durable,
            shared=wanted.shared,
        )
        self._expiry_timers.cancel(subscription.name)
        self._broker.temporaries.reclaim(subscription)
        port = DeliveryLink(peer, link, durable=wanted.durable)
        properties = self._consumers.attach(peer, link, subscription, port)
        answer.filters = filters.applied
        if wanted.durable:
            answer.expiry_policy = link.remote_source.expiry_policy
            answer.timeout_s = link.remote_source.timeout_s
        self._consumers.accept(peer, link, answer, properties, durable=wanted.durable)

    def _is_known(self, name: str) -> bool:
        return self._broker.subscriptions.find(name) is not None

    def look_up(self, peer: Peer, link: Sender) -> None:
        """Answer a link that has no source: the client asks for a durable subscription in order to end it.

        Raises:
            Refused: there is none, or somebody receives from it, or a stream reads it.
            Denied: it is no user's own, and this one may not receive from it.
        """
        name = durable_name(link.name, peer.container)
        subscription = self._broker.subscriptions.find(name)
        if subscription is None:
            raise Refused(NOT_FOUND, f"There is no durable subscription {link.name!r}.")
        self._demand_of_all(peer, subscription)
        if subscription.consumers:
            raise Refused(RESOURCE_LOCKED, f"The durable subscription {link.name!r} is in use.")
        demand_endable(self._broker, subscription)
        link.context = SubscriptionLookup(peer, subscription)
        link.accept(source=_source_of(subscription))
        peer.links.add(link)

    def _demand_of_all(self, peer: Peer, subscription: Queue) -> None:
        """Who is about to end or replace a subscription that is shared by all must be allowed to receive from it."""
        if peer.rights is not None and is_of_all(subscription.name):
            peer.rights.demand(RECEIVE, subscription.address, True)

    def leave(self, consumer: Consumer, link: Sender, ending: LinkEnding) -> None:
        """The consumer behind `link` goes: its subscription may end too.

        A durable one ends when its client says so, one that is not when nobody receives from it any more; one whose
        client was cut off waits for it as long as that asked for (AMQP 3.5.3, timeout) and we allow.
        """
        subscription, source = consumer.queue, link.remote_source
        expiry_timers = self._expiry_timers
        seconds = expiry_timers.seconds(ending, source.timeout_s)
        self._consumers.detach(consumer, ending, moving=seconds > 0)
        if consumer.port.durable:
            if ending.expires(source.expiry_policy):
                self.end(subscription)
            return
        if seconds > 0 and not subscription.consumers:
            expiry_timers.start(subscription.name, seconds, consumer.container, lambda: self.end(subscription))

    def end_found(self, subscription: Queue) -> bool:
        """End a subscription whose name was looked up for that; whether it did.

        Raises:
            Refused: somebody receives from it by now, or a stream reads it.
        """
        if subscription.consumers:
            name = subscription.name.rpartition("/")[2]
            raise Refused(RESOURCE_LOCKED, f"The durable subscription {name!r} is in use.")
        demand_endable(self._broker, subscription)
        return self.end(subscription)

    def end(self, subscription: Queue) -> bool:
        """End a subscription that nobody receives from, neither consumers nor a stream; whether it did."""
        if subscription.consumers or subscription.deleted or reads(self._broker, subscription):
            return False
        self._broker.subscriptions.unsubscribe(subscription)
        return True


def _source_of(subscription: Queue) -> Terminus:
    filters = {}
    if subscription.selector:
        filters["jms-selector"] = Described(ULong(SELECTOR), subscription.selector)
    if subscription.no_local:
        filters["no-local"] = Described(ULong(NO_LOCAL), "NoLocalFilter{}")
    return Terminus(
        address=subscription.address,
        durable=_UNSETTLED_STATE,
        expiry_policy="never",
        distribution_mode="copy",
        capabilities=["topic", "shared"] if subscription.shared else ["topic"],
        filters=filters,
    )
