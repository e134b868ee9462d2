"""Sending links of peers: producers, the anonymous relay, coordinators, and links that make a temporary node."""

from __future__ import annotations

from functools import partial
from typing import Any

from legato import limits
from legato.amqp import names
from legato.amqp.engine import batch
from legato.amqp.engine.link import Receiver
from legato.amqp.engine.terminus import Terminus
from legato.core.broker import Broker
from legato.server.access.permissions import SEND
from legato.server.limits.names import Names
from legato.server.links import temporary_nodes
from legato.server.links.link_closing import LinkCloser
from legato.server.links.link_roles import Coordinator, ManagementLink, Node, PublisherLink, may_reject
from legato.server.links.nodes import Nodes
from legato.server.links.producer_credit import ProducerCredit
from legato.server.links.refused import INVALID_FIELD, Refused
from legato.server.links.registry import Registry
from legato.server.links.temporary_nodes import Temporaries
from legato.server.shell import Peer

TRANSACTION_CAPABILITIES = ["amqp:local-transactions", "amqp:multi-txns-per-ssn", "amqp:multi-ssns-per-txn"]


class ProducerLinks:
    """Attaches the links over which peers send."""

    def __init__(
        self,
        broker: Broker,
        registry: Registry,
        nodes: Nodes,
        temporaries: Temporaries,
        closer: LinkCloser,
        credit: ProducerCredit,
        max_message_bytes: int,
        names: Names,
    ) -> None:
        self._broker = broker
        self._registry = registry
        self._nodes = nodes
        self._temporaries = temporaries
        self._closer = closer
        self._credit = credit
        self._max_message_bytes = max_message_bytes
        self._names = names

    def attach(self, peer: Peer, link: Receiver) -> None:
        """Accept a sender's attach (amqp.md A2, A7, A8).

        Raises:
            Refused, Refusal: it cannot be accepted.
        """
        target = link.remote_target
        if target.kind == "coordinator":
            link.context = Coordinator(peer, link)
            link.connection.remembers_ended_links = True
            link.reads_tags = False
            link.accept(
                target=Terminus(address=None, kind="coordinator", capabilities=TRANSACTION_CAPABILITIES),
                max_message_bytes=limits.COORDINATOR_BYTES_MAX,
            )
            link.add_credit(limits.COORDINATOR_CREDIT)
        elif target.address == names.MANAGEMENT_ADDRESS:
            # What a request needs depends on the request: that is looked at with each.
            link.context = ManagementLink(peer)
            link.accept(max_message_bytes=limits.REQUEST_BYTES_MAX)
            link.add_credit(limits.COORDINATOR_CREDIT)
        elif target.kind == "none" and not target.dynamic:
            raise Refused(INVALID_FIELD, "The sending link has no target.")
        else:
            self._attach_publisher(peer, link, target)
        peer.links.add(link)

    def _steal(self, link: Receiver, node: Node | None) -> None:
        """A link is attached in one session at a time: the older one of the same name goes (AMQP 2.6.1).

        Not a coordinator's: python-proton gives that the same name in each session.
        """
        old = self._registry.hold_sending(link)
        if old is None:
            return
        if node is not None:
            self._temporaries.pass_on(node.name, old, link)
        if old in self._registry.suspended:
            old.suspend()
        self._closer.steal(old)

    def _producer_name(self, peer: Peer, link: Receiver) -> str:
        """The name of the producer whose numbers the link's messages have; empty: they have none.

        Raises:
            UnfitName: there is none of that name yet, and none can have it.
            NumbersUsedUp: the store has no number for a new one.
        """
        given = link.remote_properties.get(names.PRODUCER_ID)
        if not (isinstance(given, str) and given):
            return ""
        # Numbers that another user sends under the same id are not this producer's.
        name = peer.realm + str(given)
        self._names.check(str(given), "a producer", partial(self._broker.producers.is_known, name))
        self._broker.producers.demand_number(name)
        return name

    def _attach_publisher(self, peer: Peer, link: Receiver, target: Terminus) -> None:
        answer = None
        node: Node | None
        # All that may be refused comes before what another link or a node would have to pay for.
        producer_name = self._producer_name(peer, link)
        if target.dynamic:
            node = self._temporaries.make(peer, link, target)
            answer = temporary_nodes.answer(target, node.address)
        else:
            rights = peer.rights
            node = (
                self._nodes.find(target.address, target.capabilities, rights, SEND, peer.holdings)
                if target.address
                else None
            )
        if node is not None:
            # Before the former one goes: a link that is attached again is not the last one of its node.
            self._registry.add(link, node.name)
        self._steal(link, node)
        properties: dict[str, Any] = {}
        producer = None
        if producer_name:
            producer = self._broker.producers.attach(producer_name)
            properties[names.LAST_NUMBER] = producer.last
        port = link.context = PublisherLink(
            peer, node, producer, notices=link.remote_properties.get(names.DUPLICATE_NOTICE) is True
        )
        port.rejects = may_reject(link)
        # Of a message that cannot be routed its sender is told the tag.
        link.reads_tags = producer is not None or node is None
        link.streams = True
        link.takes_runs = node is not None and batch.tells_runs
        link.accept(
            target=answer,
            properties=properties or None,
            max_message_bytes=self._max_message_bytes,
        )
        self._credit.begin(link, port)
