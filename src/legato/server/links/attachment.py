"""Attach and detach links; dispatches to the module for each kind of link."""

from __future__ import annotations

from collections.abc import Iterator

from legato import limits
from legato.amqp import names
from legato.amqp.engine.link import Link, Receiver, Sender
from legato.core.broker import Broker
from legato.core.consumers import Browser, Consumer
from legato.core.facts import Kind
from legato.core.refusals import Refusal
from legato.core.topics import Topic
from legato.ha.heartbeat_connection import BACKUP_USER
from legato.server.access.permissions import BROWSE, RECEIVE, SEND, Denied
from legato.server.limits.names import Names
from legato.server.links.consumer_links import ConsumerLinks
from legato.server.links.consumers import Consumers
from legato.server.links.damaged_queues import DamagedQueues
from legato.server.links.expiry_timers import ExpiryTimers
from legato.server.links.heartbeats import Heartbeats
from legato.server.links.link_closing import LinkCloser
from legato.server.links.link_endings import LINK_DETACH, LinkEnding
from legato.server.links.link_roles import (
    Coordinator,
    HeartbeatLink,
    ManagementReplies,
    PublisherLink,
    StatusLink,
    SubscriptionLookup,
)
from legato.server.links.membership import Elsewhere, Membership
from legato.server.links.nodes import Nodes
from legato.server.links.producer_credit import ProducerCredit
from legato.server.links.producer_links import ProducerLinks
from legato.server.links.refused import INTERNAL_ERROR, INVALID_FIELD, NOT_ALLOWED, NOT_FOUND, Refused
from legato.server.links.registry import Registry
from legato.server.links.subscriptions import SubscriptionLinks
from legato.server.links.temporary_nodes import Temporaries
from legato.server.shell import Peer, Rights, Shell

_VIEWS = (names.STATUS_ADDRESS, names.HEARTBEAT_ADDRESS)


def _waiting_name(peer: Peer, link: Link) -> str:
    return f"link {id(peer)} {link.name} {type(link).__name__}"


class Links:
    """Attaches and detaches the links of all peers for one broker."""

    def __init__(
        self,
        shell: Shell,
        broker: Broker,
        credit: ProducerCredit,
        expiry_timers: ExpiryTimers,
        heartbeats: Heartbeats,
        max_message_bytes: int,
        names: Names,
        membership: Membership,
        damaged: DamagedQueues,
    ) -> None:
        self._shell = shell
        self._broker = broker
        self._credit = credit
        self._expiry_timers = expiry_timers
        self._heartbeats = heartbeats
        self._damaged = damaged
        self._registry = registry = Registry()
        self.nodes = Nodes(broker, names, membership)
        self.closer = LinkCloser(broker, registry, self._cut_off, shell.touch, shell.when_durable)
        self.temporaries = Temporaries(broker, registry, self.closer, expiry_timers, names, membership)
        self.closer.deleted = self.temporaries.forget
        self._consumers = consumers = Consumers(shell, broker, registry, expiry_timers, damaged, self._taken_over)
        self._producer_links = ProducerLinks(
            broker, registry, self.nodes, self.temporaries, self.closer, credit, max_message_bytes, names
        )
        self._subscription_links = SubscriptionLinks(broker, registry, consumers, expiry_timers, names)
        self._consumer_links = ConsumerLinks(
            broker, registry, self.nodes, self.temporaries, consumers, self._subscription_links, expiry_timers, damaged
        )

    def attach(self, peer: Peer, link: Link) -> None:
        """A peer attached a link: accept it and hang on it what it is for, or refuse it with the reason."""
        try:
            listens = isinstance(link, Sender) and link.remote_source.address == names.HEARTBEAT_ADDRESS
            if peer.user == BACKUP_USER and not listens:
                raise Refused(NOT_ALLOWED, "A backup may listen to heartbeats and do nothing else.")
            peer.only_listens = listens and peer.only_listens is not False
            peer.holdings.demand_link()
            size = len(link.name.encode("utf-8", "surrogatepass"))
            if size > limits.LINK_NAME_BYTES_MAX:
                raise Refused(
                    INVALID_FIELD, f"The link's name has {size:,} bytes, {limits.LINK_NAME_BYTES_MAX:,} may be."
                )
            if isinstance(link, Receiver):
                self._producer_links.attach(peer, link)
            elif isinstance(link, Sender):
                self._attach_sender(peer, link)
        except (Refused, Refusal) as refused:
            if isinstance(refused, Denied):
                terminus = link.remote_target if isinstance(link, Receiver) else link.remote_source
                operation = "attach a sender" if isinstance(link, Receiver) else "attach a receiver"
                self._shell.audit.say(
                    "denial", peer, "denied", operation=operation, object=terminus.address, reason=str(refused)
                )
            if isinstance(link, Receiver):
                self._registry.release_sending(link)
            self._refuse(peer, link, refused)
        peer.holdings.count_links(len(peer.links))

    def _refuse(self, peer: Peer, link: Link, refused: Refused | Refusal) -> None:
        """Say why; that something is not there, when its deletion is durable: a takeover would bring it back."""

        def refuse() -> None:
            link.refuse(refused.condition, str(refused), refused.info if isinstance(refused, Elsewhere) else None)

        if refused.condition == NOT_FOUND:
            self._shell.when_durable(peer, refuse)
        else:
            refuse()

    def _attach_sender(self, peer: Peer, link: Sender) -> None:
        source = link.remote_source
        if source.kind == "none" and not source.dynamic:
            self._subscription_links.look_up(peer, link)
        elif source.address in _VIEWS and peer.rights is not None and peer.user != BACKUP_USER:
            peer.rights.demand_view()
            self._attach_view(peer, link)
        else:
            self._attach_view(peer, link)

    def _attach_view(self, peer: Peer, link: Sender) -> None:
        source = link.remote_source
        if source.address == names.STATUS_ADDRESS:
            self._answering(peer, link, StatusLink(peer))
        elif source.address == names.HEARTBEAT_ADDRESS:
            self._answering(peer, link, self._heartbeats.attach(peer, link))
        elif source.address == names.MANAGEMENT_ADDRESS:
            self._answering(peer, link, ManagementReplies(peer, link, link.remote_target.address or ""))
        else:
            self._consumer_links.attach(peer, link)

    def _answering(self, peer: Peer, link: Sender, port: StatusLink | HeartbeatLink | ManagementReplies) -> None:
        link.context = port
        link.accept()
        peer.links.add(link)

    def suspend(self, peer: Peer, link: Link) -> bool:
        """A link was detached and not closed: does its terminus live on, and what its client has not settled with it?

        It does until the terminus expires, as was agreed when it attached (AMQP 2.6.4, 3.5.3, 3.5.6), or the link is
        attached again. A durable subscription stays by itself; of it everybody may have what is not settled.
        """
        port = link.context
        if isinstance(port, Consumer):
            assert isinstance(link, Sender)
            terminus = link.remote_source
            subscribes = port.port.durable is not None
            if port.port.durable or link.reserved or not (port.unsettled or subscribes or self._is_maker(link)):
                return False
        elif isinstance(port, PublisherLink) and self._is_maker(link):
            terminus = link.remote_target
        else:
            return False
        if terminus.expiry_policy == LINK_DETACH:
            seconds = self._expiry_timers.kept_s(terminus.timeout_s)
            if seconds <= 0:
                return False
            self._expiry_timers.start(_waiting_name(peer, link), seconds, "", lambda: self._expire(peer, link))
        if isinstance(port, Consumer):
            self._broker.receivers.flow(port, 0, False, self._broker.now_us)
        else:
            assert isinstance(link, Receiver)
            self._credit.gone(link, port)
        self._registry.suspended[link] = peer
        return True

    def _is_maker(self, link: Link) -> bool:
        node = self._registry.node_of(link)
        return node is not None and self.temporaries.is_maker(node, link)

    def _expire(self, peer: Peer, link: Link) -> None:
        """A link that was detached does not come back."""
        self.gone(peer, link, LinkEnding.DETACHED)
        self._broker.dispatcher.dispatch_returned(self._broker.now_us)
        # Not before its detach was answered.
        self._shell.when_durable(peer, link.close)

    def sweep(self) -> None:
        """Time passed: temporary nodes may go, and detached links of which nothing is unsettled any more."""
        self.temporaries.sweep()
        for link, peer in list(self._registry.suspended.items()):
            port = link.context
            is_bare = isinstance(port, Consumer) and port.port.durable is None and not port.unsettled
            if is_bare and not self._is_maker(link):
                self._expire(peer, link)

    def gone(self, peer: Peer, link: Link, ending: LinkEnding) -> None:
        """A link ended; what hung on it is taken from the broker.

        Raises:
            Refused: it was to end a subscription, which somebody has begun to use since.
        """
        if self._registry.suspended.pop(link, None) is not None:
            self._expiry_timers.cancel(_waiting_name(peer, link))
        peer.links.discard(link)
        peer.holdings.count_links(len(peer.links))
        port, link.context = link.context, None
        node = self._registry.remove(link)
        match port:
            case PublisherLink():
                assert isinstance(link, Receiver)
                self._credit.gone(link, port)
                self._registry.release_sending(link)
                if port.producer is not None:
                    self._broker.producers.detach(port.producer, forget=ending is LinkEnding.CLOSED)
            case Consumer():
                self._consumer_gone(peer, link, port, ending)
            case Browser():
                peer.receivers.discard(port)
                self._broker.browsers.leave(port)
            case Coordinator():
                for txn_id in port.declared:
                    transaction = self._broker.transactions.find(txn_id, peer)
                    if transaction is not None:
                        self._broker.transactions.roll_back(transaction, "disconnect")
            case HeartbeatLink():
                self._heartbeats.gone(port)
            case ManagementReplies():
                port.forget_all()
            case SubscriptionLookup() if ending is LinkEnding.CLOSED:
                self._subscription_links.end_found(port.subscription)
        if node is not None:
            self.temporaries.link_gone(node, link, ending)

    def _consumer_gone(self, peer: Peer, link: Link, consumer: Consumer, ending: LinkEnding) -> None:
        assert isinstance(link, Sender)
        peer.receivers.discard(consumer)
        self._registry.release(peer.container, link)
        if consumer.port.durable is not None:
            self._subscription_links.leave(consumer, link, ending)
        else:
            self._consumers.detach(consumer, ending)

    def review_rights(self) -> None:
        """Roles changed: links whose peers may not have them any more are closed."""
        for peer in list(self._shell.peers):
            if peer.rights is None or peer.user == BACKUP_USER:
                continue
            for link in list(peer.links):
                try:
                    self._demand_again(peer.rights, link)
                except Refusal as denied:
                    self.closer.end(link, denied.condition, str(denied))
        self._broker.dispatcher.dispatch_returned(self._broker.now_us)

    def _demand_again(self, rights: Rights, link: Link) -> None:
        port = link.context
        match port:
            case PublisherLink() | Consumer() if (name := self._registry.node_of(link)) and self._is_maker(link):
                # It was let in by what it made.
                self.temporaries.demand(rights, name)
            case PublisherLink() if (node := port.target) is not None:
                rights.demand(SEND, node.address, isinstance(node, Topic))
            case Consumer():
                rights.demand(RECEIVE, port.queue.address, port.port.durable is not None)
            case Browser():
                rights.demand(BROWSE, port.queue.address, port.queue.kind is Kind.SUBSCRIPTION)
            case StatusLink() | HeartbeatLink():
                rights.demand_view()

    def review_damaged(self) -> None:
        """A queue could not be read: who receives from it is told, and receives nothing any more."""
        self._damaged.fresh = False
        for peer in list(self._shell.peers):
            for link in list(peer.links):
                port = link.context
                if isinstance(port, Consumer | Browser) and (why := self._damaged.why(port.queue.id)):
                    self.closer.end(link, INTERNAL_ERROR, why)
        self._broker.dispatcher.dispatch_returned(self._broker.now_us)

    def review_credit(self) -> Iterator[None]:
        """Settings of addresses changed: producers may send more, or have to wait; a step is for so many links."""
        place = 0
        for peer in list(self._shell.peers):
            for link in list(peer.links):
                if isinstance(link.context, PublisherLink) and isinstance(link, Receiver) and not link.suspended:
                    self._credit.give(link, link.context)
                place += 1
                if place % limits.SETTINGS_IN_ONE_GO == 0:
                    yield

    def _taken_over(self, node: str, link: Link) -> None:
        self.temporaries.link_gone(node, link, LinkEnding.CUT)

    def _cut_off(self, peer: Peer, link: Link) -> None:
        self.gone(peer, link, LinkEnding.CUT)
