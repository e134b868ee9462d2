"""Transfers to commands: publish, acknowledge, declare, discharge, management requests."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

from legato import limits
from legato.amqp import names
from legato.amqp.codec.coordinator import Declare, decode_coordinator
from legato.amqp.codec.delivery_options import DeliveryOptions
from legato.amqp.codec.sections import scan
from legato.amqp.codec.stubs import STUB_MARK
from legato.amqp.engine.batch import RUN_MIN
from legato.amqp.engine.events import Transfer, TransferAborted, TransferLost, TransferPart, TransferRun
from legato.amqp.engine.link import Receiver
from legato.amqp.engine.outcomes import ACCEPTED, Declared, Rejected, Transactional
from legato.amqp.engine.states import DELIVERY_TAG
from legato.core.broker import Broker
from legato.core.publishing import takes_run
from legato.core.refusals import FULL, Refusal
from legato.core.traits import PLAIN, Traits
from legato.core.transactions import UNKNOWN_TXN
from legato.errors import ProtocolError
from legato.server.access.permissions import SEND, Denied
from legato.server.links.link_closing import LinkCloser
from legato.server.links.link_roles import Coordinator, DischargeToken, ManagementLink, Node, PublisherLink, RunTokens
from legato.server.links.nodes import Nodes
from legato.server.links.producer_credit import ProducerCredit
from legato.server.links.refused import NOT_ALLOWED, TOO_LARGE, Refused
from legato.server.management.management import Management
from legato.server.messages.uploads import Uploads
from legato.server.shell import Peer, Shell

FAILED = "failed"
"""What Apache Artemis answers to a message to the relay that does not say where to."""
TOO_MANY_TRANSACTIONS = f"A connection may have {limits.OPEN_TRANSACTIONS_MAX} open transactions."
NO_TRANSACTION = "A request to the management address cannot be part of a transaction."
_REQUEST_TOO_LARGE = f"A request to the management address may have at most {limits.REQUEST_BYTES_MAX} bytes."
_LOST = "One of its messages was sent to what had been deleted, or refused."
JMS_DESTINATION = "x-opt-jms-dest"
_CAPABILITIES: dict[object, tuple[str, ...]] = {0: ("queue",), 1: ("topic",), 2: ("queue",), 3: ("topic",)}
"""By the number in the annotation (amqp.md A9)."""
_NUMBER_MAX = 1 << 62
_NO_NUMBER = "The delivery tag of a numbered message is a number of 62 bits."


class Transfers:
    """Turns transfers into commands.

    Args:
        owe: gives credit to a link whose sender asks and waits.
    """

    def __init__(
        self,
        shell: Shell,
        broker: Broker,
        nodes: Nodes,
        closer: LinkCloser,
        management: Management,
        credit: ProducerCredit,
        owe: Callable[[Receiver, Coordinator | ManagementLink], None],
    ) -> None:
        self._shell = shell
        self._broker = broker
        self._nodes = nodes
        self._closer = closer
        self._management = management
        self._credit = credit
        self._owe = owe
        self.uploads = Uploads(broker)
        self._own_stub: Transfer | None = None

    def transfer(self, peer: Peer, event: Transfer, now_us: int) -> None:
        """A message came in on a link."""
        link = event.link
        port = link.context
        if type(port) is not PublisherLink:
            if type(port) is Coordinator:
                self._coordinate(peer, port, event)
            elif type(port) is ManagementLink:
                self._manage(peer, port, event)
            elif event.txn_id is not None:
                self.doom(peer, event.txn_id, _LOST)
            return
        token = None if event.settled else (link, event.delivery)
        producer = port.producer
        number = 0
        if producer is not None and event.txn_id is None:
            number = int.from_bytes(event.tag, "big")
        try:
            if event.data.endswith(STUB_MARK) and event is not self._own_stub:
                raise Refused(NOT_ALLOWED, "The message ends as no message may.")
            if number > _NUMBER_MAX:
                number = 0
                raise Refused(NOT_ALLOWED, _NO_NUMBER)
            body, message_id, special = port.admit(event.data)
            target = port.target
            known = bool(number) and producer is not None and producer.is_duplicate(number)
            if target is None:
                target = self._relayed_to(peer, event.data, known=known)
                if target is None:
                    if event.txn_id is not None:
                        raise Refused(NOT_ALLOWED, NO_TRANSACTION)
                    if len(event.data) > limits.REQUEST_BYTES_MAX or event is self._own_stub:
                        raise Refused(TOO_LARGE, _REQUEST_TOO_LARGE)
                    self._management.request(peer, event.data, lambda: self._owe_relay(link, port))
                    link.settle(event.delivery, ACCEPTED)
                    return
            if self._shell.full and not known:
                raise Refused(FULL, self._shell.full)
        except (ProtocolError, Refused, Refusal) as error:
            if isinstance(error, Denied):
                self._shell.audit.say("denial", peer, "denied", operation="send", reason=str(error))
            self._refuse(peer, event, port, number, error.condition, str(error))
            return
        traits = PLAIN if special is None else traits_of(special, now_us)
        if event.txn_id is not None:
            self._publish_in(peer, event, port, target, body, message_id, traits)
            return
        if producer is not None:
            self._broker.publisher.publish_numbered(
                target, body, message_id, token, producer, number, traits, peer.container
            )
        else:
            self._broker.publisher.publish(target, body, message_id, token, traits, peer.container)
        if token is None:
            self._credit.owe(link, port)

    def run(self, peer: Peer, event: TransferRun, now_us: int) -> None:
        """Messages came in together on a link: what is plain of them is published as runs, the others one by one."""
        link, ends = event.link, event.ends
        first, at, count = event.number, 0, len(ends)
        port = link.context
        target = port.target if type(port) is PublisherLink else None
        # A topic looks at all of its subscriptions for that: not for each message.
        takes_runs = target is not None and takes_run(target)
        while at < count:
            port = link.context
            target = port.target if type(port) is PublisherLink else None
            matched, ids = 0, b""
            if target is not None and takes_runs and not self._shell.full:
                matched, ids = port.admit_run(event.data, ends, at)
            if target is None or matched < RUN_MIN or (port.producer is not None and first + at <= port.producer.last):
                self.transfer(peer, _part_of(event, at), now_us)
                at += 1
                continue
            content, own_ends = event.data, ends
            if matched < count:
                begin = ends[at - 1] if at else 0
                own_ends = array("I", [end - begin for end in ends[at : at + matched]])
                content = content[begin : begin + own_ends[-1]]
            tokens = None if event.settled else RunTokens(link, event.delivery + at, matched)
            number = first + at if port.producer is not None else 0
            self._broker.publisher.publish_run(
                target, content, own_ends, ids, tokens, port.producer, number, peer.container
            )
            if tokens is None:
                self._credit.owe(link, port, matched)
            at += matched

    # -- large messages ------------------------------------------------------------------------------------------

    def part(self, peer: Peer, event: TransferPart, now_us: int) -> None:
        """Part of a large message came in on a link."""
        port = event.link.context
        if type(port) is not PublisherLink:
            if event.txn_id is not None:
                self.doom(peer, event.txn_id, _LOST)
            return
        number, known = 0, False
        if port.producer is not None and event.txn_id is None:
            number = int.from_bytes(event.tag, "big")
            known = number <= _NUMBER_MAX and port.producer.is_duplicate(number)
        upload = self.uploads.take(event, wanted=not known)
        if number > _NUMBER_MAX:
            number = 0  # No record has one so large.
            upload.refuse(Refused(NOT_ALLOWED, _NO_NUMBER))
        if self._shell.full and upload.wanted:
            upload.refuse(Refused(FULL, self._shell.full))
        if not event.last:
            return
        whole = Transfer(event.link, event.delivery, event.tag, b"", event.settled, event.txn_id)
        try:
            whole.data = upload.finish()
            if not upload.wanted and not known:
                raise Refused(FULL, "The message was refused before it came again as a whole.")
        except (ProtocolError, Refused) as error:
            upload.end()
            self._refuse(peer, whole, port, number, error.condition, str(error))
            return
        self._own_stub = whole
        self.transfer(peer, whole, now_us)
        self._own_stub = None
        upload.end(None if event.txn_id is None else self._broker.transactions.find(event.txn_id, peer))

    def aborted(self, event: TransferAborted) -> None:
        """A message of several frames does not come after all; its credit is used up (AMQP 2.6.14)."""
        self.uploads.give_up(event.link)
        port = event.link.context
        match port:
            case PublisherLink():
                self._credit.owe(event.link, port)
            case Coordinator() | ManagementLink():
                self._owe(event.link, port)

    def lost(self, peer: Peer, event: TransferLost) -> None:
        """A message of a transaction was on its way when its link was closed from this side."""
        self.doom(peer, event.txn_id, _LOST)

    # -- others --------------------------------------------------------------------------------------------------

    def _manage(self, peer: Peer, port: ManagementLink, event: Transfer) -> None:
        if event.txn_id is None:
            self._management.request(peer, event.data, lambda: self._owe_who_asks(event.link, port))
            event.link.settle(event.delivery, ACCEPTED)
        else:
            self.doom(peer, event.txn_id, NO_TRANSACTION)
            event.link.settle(event.delivery, Transactional(event.txn_id, Rejected(NOT_ALLOWED, NO_TRANSACTION)))
            self._owe(event.link, port)

    def _owe_who_asks(self, link: Receiver, port: ManagementLink) -> None:
        """A request was answered: there may be another one, if the link is still there."""
        if link.context is port:
            self._owe(link, port)

    def _owe_relay(self, link: Receiver, port: PublisherLink) -> None:
        """The same, of a request that came by the relay."""
        if link.context is port:
            self._credit.owe(link, port)

    def doom(self, peer: Peer, txn_id: bytes, description: str) -> None:
        """A transaction that lost a send or an acknowledgement of its own can only roll back (AMQP 4.3)."""
        transaction = self._broker.transactions.find(txn_id, peer)
        if transaction is not None:
            transaction.failed = description

    def _relayed_to(self, peer: Peer, data: bytes, *, known: bool) -> Node | None:
        """The node that a message to the anonymous relay names (amqp.md A2); None for the management address.

        Args:
            known: whether it is stored already, by its number: it needs no room.

        Raises:
            ProtocolError: it names none.
            Refused, Refusal: it cannot go there. Credit of the relay is for all addresses, so a full one refuses.
        """
        sections = scan(data)
        address = sections.to
        if not address:
            raise ProtocolError("A message to the anonymous relay must say where to: properties.to.", FAILED)
        if address == names.MANAGEMENT_ADDRESS:
            return None
        kind = sections.message_annotations().get(JMS_DESTINATION)
        capabilities = _CAPABILITIES.get(kind, ()) if isinstance(kind, int) else ()
        node = self._nodes.find(address, capabilities, peer.rights, SEND, peer.holdings)
        if not known and self._broker.backpressure.room(node) == 0:
            raise Refused(FULL, f"{node.address} is full, and the anonymous relay cannot wait for it.")
        return node

    def _publish_in(
        self,
        peer: Peer,
        event: Transfer,
        port: PublisherLink,
        target: Node,
        body: bytes,
        message_id: str,
        traits: Traits,
    ) -> None:
        assert event.txn_id is not None
        transaction = self._broker.transactions.find(event.txn_id, peer)
        if transaction is None:
            self._refuse(peer, event, port, 0, UNKNOWN_TXN, "the transaction is not known on this connection")
            return
        token = (event.link, event.delivery) if port.notices and not event.settled else None
        waits = self._broker.transactions.publish(transaction, target, body, message_id, traits, peer.container, token)
        if not event.settled:
            state = Transactional(event.txn_id, ACCEPTED)
            if waits:
                event.link.update(event.delivery, state)
            else:
                event.link.settle(event.delivery, state)
        self._credit.owe(event.link, port)

    def _refuse(
        self, peer: Peer, event: Transfer, port: PublisherLink, number: int, condition: str, description: str
    ) -> None:
        """The message is not stored."""
        if event.txn_id is not None:
            self.doom(peer, event.txn_id, description)
        if number and port.producer is not None and not port.producer.is_duplicate(number):
            self._broker.producers.refuse_number(port.producer, number)
        tag = event.tag if port.target is None else b""
        if not event.settled and port.rejects:
            rejected = Rejected(condition, description, tag=tag)
            known = event.txn_id is not None and condition != UNKNOWN_TXN
            event.link.settle(event.delivery, Transactional(event.txn_id or b"", rejected) if known else rejected)
            self._credit.owe(event.link, port)
        elif not event.settled or (event.txn_id is None and port.target is None):
            # Nobody waits for the outcome, or knows it, but the sender shall hear of it (Anonymous Terminus 2.2.2).
            self._closer.cut(event.link, condition, description, {DELIVERY_TAG: tag} if tag else None)
        else:
            self._credit.owe(event.link, port)

    def _coordinate(self, peer: Peer, port: Coordinator, event: Transfer) -> None:
        link = event.link
        try:
            asked = decode_coordinator(event.data)
        except ProtocolError as error:
            self._refuse_to_coordinate(port, event, error.condition, str(error))
            return
        if isinstance(asked, Declare):
            if self._broker.transactions.count(peer) >= limits.OPEN_TRANSACTIONS_MAX:
                self._refuse_to_coordinate(port, event, FULL, TOO_MANY_TRANSACTIONS)
                return
            txn_id = self._broker.transactions.declare(peer, peer.realm)
            port.declared.add(txn_id)
            link.settle(event.delivery, Declared(txn_id))
        else:
            port.declared.discard(asked.txn_id)
            token: Any = DischargeToken(link, event.delivery, port, asked.txn_id)
            self._broker.transactions.discharge(asked.txn_id, peer, fail=asked.fail, token=token, realm=peer.realm)
        self._owe(link, port)

    def _refuse_to_coordinate(self, port: Coordinator, event: Transfer, condition: str, description: str) -> None:
        if port.rejects:
            event.link.settle(event.delivery, Rejected(condition, description))
            self._owe(event.link, port)
        else:
            self._closer.cut(event.link, condition, description)


def _part_of(run: TransferRun, at: int) -> Transfer:
    """One message of a run."""
    begin = run.ends[at - 1] if at else 0
    tag = (run.number + at).to_bytes(8, "big") if run.number else b""
    return Transfer(run.link, run.delivery + at, tag, run.data[begin : run.ends[at]], run.settled, None)


def traits_of(special: DeliveryOptions, now_us: int) -> Traits:
    """Delivery options of a message, with relative times counted from its arrival (amqp.md A9)."""
    now_ms = now_us // 1000
    expires_ms = special.expiry_ms or (now_ms + special.ttl_ms if special.ttl_ms else 0)
    deliver_ms = special.delivery_ms or (now_ms + special.delay_ms if special.delay_ms else 0)
    if deliver_ms <= now_ms:
        deliver_ms = 0
    return Traits(
        special.priority,
        min(expires_ms, limits.TIME_MS_MAX) * 1000,
        min(deliver_ms, limits.TIME_MS_MAX) * 1000,
        special.group,
        special.closes_group,
        special.duplicate_id,
        special.flows,
    )
