"""From AMQP to the broker: what each event of a connection asks for. Only this module speaks both vocabularies."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from legato.amqp import names
from legato.amqp.coordinator import Declare, decode_coordinator
from legato.amqp.events import (
    Attached,
    Closed,
    Detached,
    Disposition,
    Event,
    Flow,
    Opened,
    SessionBegan,
    SessionEnded,
    Transfer,
)
from legato.amqp.link import Sender
from legato.amqp.outcomes import (
    ACCEPTED,
    Accepted,
    Declared,
    Modified,
    Outcome,
    Received,
    Rejected,
    Released,
    Transactional,
)
from legato.amqp.sections import scan
from legato.core.broker import FULL, Broker
from legato.core.consumers import Browser, Consumer
from legato.core.message import Message
from legato.core.queues import Queue
from legato.core.transactions import UNKNOWN_TXN
from legato.errors import ProtocolError
from legato.server.links import Links
from legato.server.ports import Coordinator, DischargeToken, Outlet, Publisher, StatusPort

if TYPE_CHECKING:
    from legato.server.peer import Peer
    from legato.server.service import Service

log = logging.getLogger("legato.translate")


class Translator:
    """Turns the events of connections into commands for one broker."""

    def __init__(self, service: Service, broker: Broker) -> None:
        self._service = service
        self._broker = broker
        self._links = Links(service, broker)

    def handle(self, peer: Peer, events: list[Event], now_us: int) -> None:
        """Apply the events of one read, in order; flows last, when everything before them has been counted."""
        flows: list[Sender] = []
        for event in events:
            kind = event.__class__
            if kind is Transfer:
                self._transfer(peer, event)  # type: ignore[arg-type]
            elif kind is Disposition:
                self._disposition(event)  # type: ignore[arg-type]
            elif kind is Flow:
                flows.append(event.link)  # type: ignore[attr-defined]
            else:
                self._rare(peer, event)
        for link in flows:
            self._flow(link, now_us)

    # -- messages in -----------------------------------------------------------------------------------------

    def _transfer(self, peer: Peer, event: Transfer) -> None:
        link = event.link
        port = link.context
        if port.__class__ is not Publisher:
            if port.__class__ is Coordinator:
                self._coordinate(peer, port, event)
            return
        data = event.data
        token = None if event.settled else (link, event.delivery)
        producer = port.producer
        number = 0
        if producer is not None and event.txn_id is None:
            number = int.from_bytes(event.tag, "big")
        try:
            body, message_id, _ = port.admit(data)
            queue = port.queue or self._relayed_to(data)
        except ProtocolError as error:
            self._doom(peer, event, str(error))
            self._refuse(port, token, number, error.condition, str(error))
            return
        if self._service.full:
            self._doom(peer, event, self._service.full)
            self._refuse(port, token, number, FULL, self._service.full)
        elif event.txn_id is not None:
            self._publish_in(peer, event, port, queue, body, message_id)
        elif producer is not None:
            self._broker.publish_numbered(queue, body, message_id, token, producer, number)
        else:
            self._broker.publish(queue, body, message_id, token)
        if token is None:
            self._service.owe(link, port)

    def _relayed_to(self, data: bytes) -> Queue:
        """The queue that a message to the anonymous relay names (AMQP.md A2)."""
        address = scan(data).to
        if not address:
            raise ProtocolError("A message to the anonymous relay must say where to: properties.to.", "failed")
        return self._broker.queue(address)

    def _publish_in(
        self, peer: Peer, event: Transfer, port: Publisher, queue: Queue, body: bytes, message_id: str
    ) -> None:
        assert event.txn_id is not None
        transaction = self._broker.transaction(event.txn_id, peer)
        if transaction is None:
            token = None if event.settled else (event.link, event.delivery)
            self._refuse(port, token, 0, UNKNOWN_TXN, "the transaction is not known on this connection")
            return
        self._broker.publish_in(transaction, queue, body, message_id)
        if not event.settled:
            event.link.settle(event.delivery, Transactional(event.txn_id, ACCEPTED))
            self._service.owe(event.link, port)

    def _doom(self, peer: Peer, event: Transfer, reason: str) -> None:
        """A transaction that lost one of its sends can only roll back (AMQP.md A7)."""
        transaction = self._broker.transaction(event.txn_id, peer) if event.txn_id is not None else None
        if transaction is not None:
            transaction.failed = reason

    def _refuse(self, port: Publisher, token: Any, number: int, condition: str, description: str) -> None:
        if number and port.producer is not None and not port.producer.is_duplicate(number):
            self._broker.refuse_number(port.producer, number)
        if token is not None:
            link, delivery = token
            link.settle(delivery, Rejected(condition, description))
            self._service.owe(link, port)

    def _coordinate(self, peer: Peer, port: Coordinator, event: Transfer) -> None:
        link = event.link
        try:
            asked = decode_coordinator(event.data)
        except ProtocolError as error:
            link.settle(event.delivery, Rejected(error.condition, str(error)))
            return
        if isinstance(asked, Declare):
            txn_id = self._broker.declare(peer)
            port.declared.add(txn_id)
            link.settle(event.delivery, Declared(txn_id))
        else:
            port.declared.discard(asked.txn_id)
            token = DischargeToken(link, event.delivery)
            self._broker.discharge(asked.txn_id, peer, fail=asked.fail, token=token)
        self._service.owe(link, port)

    # -- outcomes ----------------------------------------------------------------------------------------------

    def _disposition(self, event: Disposition) -> None:
        message = event.context
        link = event.link
        consumer = link.context
        if message.__class__ is not Message or consumer.__class__ is not Consumer:
            return
        assert isinstance(link, Sender)
        outcome = event.outcome
        confirm = not event.settled
        broker = self._broker
        kind = outcome.__class__
        if kind is Accepted:
            known = broker.acknowledge(consumer, message, confirm=confirm)
        elif kind is Transactional:
            self._acknowledge_in(consumer, message, outcome, confirm)  # type: ignore[arg-type]
            return
        elif kind is Received:
            broker.present(consumer, message)
            return
        elif outcome is None:
            # Settled without an outcome: the source's default (AMQP 3.4.5), modified with delivery-failed.
            known = event.settled and broker.modify(consumer, message, failed=True, undeliverable_here=False)
            return
        else:
            known = self._give_back(consumer, message, outcome)
            if known and confirm:
                link.confirm(message.handle, outcome)
        if not known and confirm:
            link.confirm(message.handle, Rejected(names.WENT_ELSEWHERE, "another receiver has the message"))

    def _give_back(self, consumer: Consumer, message: Message, outcome: Outcome) -> bool:
        match outcome:
            case Released():
                return self._broker.release(consumer, message)
            case Modified(delivery_failed=failed, undeliverable_here=here):
                return self._broker.modify(consumer, message, failed=failed, undeliverable_here=here)
            case Rejected(condition=condition, description=description):
                return self._broker.reject(consumer, message, description or condition or "rejected")
        return False

    def _acknowledge_in(self, consumer: Consumer, message: Message, state: Transactional, unsettled: bool) -> None:
        outlet: Outlet = consumer.port
        transaction = self._broker.transaction(state.txn_id, outlet.peer)
        inner = state.outcome
        if transaction is None:
            # The transaction is gone (rolled back by a failure): what it would have consumed returns.
            self._broker.modify(consumer, message, failed=True, undeliverable_here=False)
        elif inner is None or isinstance(inner, Accepted):
            self._broker.acknowledge_in(transaction, consumer, message)
        else:
            self._give_back(consumer, message, inner)
        if unsettled:
            outlet.link.confirm(message.handle, state)

    # -- credit --------------------------------------------------------------------------------------------------

    def _flow(self, link: Sender, now_us: int) -> None:
        port = link.context
        if isinstance(port, Consumer):
            self._broker.flow(port, link.credit, link.draining, now_us)
        elif isinstance(port, Browser):
            self._broker.browser_flow(port, link.credit, link.draining)
        elif isinstance(port, StatusPort):
            self._service.send_status(link)
            if link.draining:
                link.drained()

    # -- connections, sessions, links ----------------------------------------------------------------------------

    def _rare(self, peer: Peer, event: Event) -> None:
        match event:
            case Opened():
                self._open(peer, event)
            case SessionBegan(session=session):
                session.open()
            case SessionEnded(session=session):
                for link in [link for link in peer.links if link.session is session]:
                    self._links.gone(peer, link, clean=False)
                session.close()
            case Attached(link=link):
                self._links.attach(peer, link)
            case Detached(link=link, closed=closed):
                self._links.gone(peer, link, clean=True, forget=closed)
                link.close() if closed else link.detach()
            case Closed():
                self._closed(peer, event)

    def _open(self, peer: Peer, event: Opened) -> None:
        peer.container = event.container_id
        peer.established()
        peer.amqp.open()
        log.info("< %s opened as %s", peer.name, event.container_id)

    def _closed(self, peer: Peer, event: Closed) -> None:
        for link in list(peer.links):
            self._links.gone(peer, link, clean=event.clean)
        self._broker.disconnect(peer)
        if not event.clean and event.condition:
            log.warning("! %s failed: %s %s", peer.name, event.condition, event.description)
        else:
            log.info("- %s closed", peer.name)
        if event.clean:
            peer.amqp.close()
        peer.end()
