"""Links as they come and go: what each is for, what the broker must know of it, and who takes over whose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from legato import limits
from legato.amqp import names
from legato.amqp.link import Link, Receiver, Sender
from legato.amqp.terminus import Terminus
from legato.core.broker import Broker
from legato.core.consumers import Browser, Consumer
from legato.errors import LegatoError
from legato.server.ports import Coordinator, Outlet, Publisher, StatusPort

if TYPE_CHECKING:
    from legato.server.peer import Peer
    from legato.server.service import Service

NOT_IMPLEMENTED = "amqp:not-implemented"
NOT_FOUND = "amqp:not-found"
TRANSACTION_CAPABILITIES = ["amqp:local-transactions", "amqp:multi-txns-per-ssn", "amqp:multi-ssns-per-txn"]
TOPIC_CAPABILITIES = {"topic", "temporary-topic", "temporary-queue"}


class Links:
    """Attaches and detaches the links of all peers for one broker."""

    def __init__(self, service: Service, broker: Broker) -> None:
        self._service = service
        self._broker = broker
        self._attached: dict[tuple[str, str], Sender] = {}
        """Receiving links by container and name, so that a client that came back takes over its own (AMQP 2.6.1)."""

    def gone(self, peer: Peer, link: Link, *, clean: bool, forget: bool = False) -> None:
        """A link ended; what hung on it is taken from the broker."""
        peer.links.discard(link)
        port = link.context
        link.context = None
        if isinstance(port, Publisher):
            if port.producer is not None:
                self._broker.detach_producer(port.producer, forget=forget)
        elif isinstance(port, Consumer):
            peer.receivers.discard(port)
            key = (peer.container, link.name)
            if self._attached.get(key) is link:
                del self._attached[key]
            self._broker.detach(port, clean=clean)
        elif isinstance(port, Browser):
            peer.receivers.discard(port)
        elif isinstance(port, Coordinator):
            for txn_id in port.declared:
                transaction = self._broker.transaction(txn_id, peer)
                if transaction is not None:
                    self._broker.roll_back(transaction, "disconnect")

    def attach(self, peer: Peer, link: Link) -> None:
        """A peer attached a link: accept it and hang on it what it is for, or refuse it with the reason."""
        try:
            if isinstance(link, Receiver):
                self._attach_publisher(peer, link)
            elif isinstance(link, Sender):
                self._attach_receiver(peer, link)
        except _Refused as refused:
            link.refuse(refused.condition, str(refused))

    def _attach_publisher(self, peer: Peer, link: Receiver) -> None:
        target = link.remote_target
        if target.kind == "coordinator":
            link.context = Coordinator(peer)
            link.accept(target=Terminus(address=None, kind="coordinator", capabilities=TRANSACTION_CAPABILITIES))
            link.add_credit(limits.COORDINATOR_CREDIT)
            peer.links.add(link)
            return
        _refuse_what_comes_later(target)
        queue = self._broker.queue(target.address) if target.address else None
        properties: dict[str, Any] = {}
        producer = None
        name = link.remote_properties.get(names.PRODUCER_ID)
        if isinstance(name, str) and name:
            producer = self._broker.producer(name)
            properties[names.LAST_NUMBER] = producer.last
        link.context = Publisher(peer, queue, producer)
        link.reads_tags = producer is not None
        link.accept(properties=properties or None, max_message_bytes=self._service.config.server.max_message_bytes)
        link.add_credit(limits.PRODUCER_CREDIT)
        peer.links.add(link)

    def _attach_receiver(self, peer: Peer, link: Sender) -> None:
        source = link.remote_source
        if source.address == names.STATUS_ADDRESS:
            link.context = StatusPort(peer)
            link.accept()
            peer.links.add(link)
            return
        _refuse_what_comes_later(source)
        if not source.address:
            raise _Refused(NOT_FOUND, "The receiving link names no source.")
        if source.filters:
            raise _Refused(NOT_IMPLEMENTED, "Filters and selectors are not supported by this version.")
        queue = self._broker.queue(source.address)
        if source.distribution_mode == "copy":
            browser = self._broker.browse(queue, Outlet(peer, link))
            link.context = browser
            link.accept()
            peer.links.add(link)
            peer.receivers.add(browser)
            return
        held = _sequence_numbers(link.remote_properties.get(names.HELD))
        self._steal(peer, link, held)
        consumer, elsewhere = self._broker.attach(
            queue,
            Outlet(peer, link),
            peer.container,
            reports_presented=link.remote_properties.get(names.REPORTS_PRESENTED) is True,
            held=held,
        )
        link.context = consumer
        properties = {names.HELD_COUNT: len(consumer.first), names.ELSEWHERE: elsewhere} if held else None
        link.accept(properties=properties)
        peer.links.add(link)
        peer.receivers.add(consumer)
        self._attached[peer.container, link.name] = link

    def _steal(self, peer: Peer, link: Sender, held: list[int]) -> None:
        """A client that came back before we noticed that it was gone takes its link over."""
        old = self._attached.pop((peer.container, link.name), None)
        if old is None:
            return
        consumer = old.context
        assert isinstance(consumer, Consumer)
        old_peer: Peer = consumer.port.peer
        self._broker.detach(consumer, clean=False, keep=held)
        old.context = None
        old_peer.links.discard(old)
        old_peer.receivers.discard(consumer)
        old.close("amqp:link:stolen", "the same client attached this link again")
        self._service.touch(old_peer)


class _Refused(LegatoError):
    """A link that cannot be attached."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.condition = condition


def _sequence_numbers(value: object) -> list[int]:
    """What a peer says that it holds, as plain numbers: the wire's own types stay outside."""
    return [int(seq) for seq in value if isinstance(seq, int)] if isinstance(value, list) else []


def _refuse_what_comes_later(terminus: Terminus) -> None:
    if terminus.dynamic:
        raise _Refused(NOT_IMPLEMENTED, "Temporary destinations are not supported by this version.")
    if TOPIC_CAPABILITIES.intersection(terminus.capabilities):
        raise _Refused(NOT_IMPLEMENTED, "Topics and temporary destinations are not supported by this version.")
