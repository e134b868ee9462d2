"""Executor of effects: they become sends and settlements on links."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import Any

from legato.amqp.codec.sections import with_delivery
from legato.amqp.engine.link import Link, Receiver
from legato.amqp.engine.outcomes import ACCEPTED, IS_DUPLICATE, Rejected, Transactional
from legato.amqp.names import CAUSE
from legato.core.broker import Broker
from legato.core.consumers import Browser, Consumer
from legato.core.effects import (
    Confirm,
    ConfirmAcknowledged,
    ConfirmDuplicates,
    Deliver,
    Discharged,
    DischargeRefused,
    Drained,
    Effect,
    Finished,
    Paced,
    Refuse,
    Room,
    ScanAgain,
    SettleSends,
    Show,
    StagePublished,
    StageRefused,
)
from legato.core.message import Message, MessageRun, RunPart
from legato.core.records import Archive
from legato.core.transactions import ROLLED_BACK, UNKNOWN_TXN
from legato.server.links.link_roles import (
    COORDINATOR_REFILL,
    Coordinator,
    DeliveryLink,
    DischargeToken,
    ManagementLink,
    RunTokens,
    SendToken,
)
from legato.server.links.producer_credit import ProducerCredit
from legato.server.management.requests import Pending
from legato.server.messages.streams import Parcel, Streams
from legato.server.shell import Peer

QPID_JMS = "QpidJMS"
PLAINLY_FAILED = "failed"
_TAG = struct.Struct(">Q").pack


class Touched(dict[Peer, None]):
    """Peers to which something is to be written, the first that was touched first: who sent is told before others are
    given what was sent."""

    def add(self, peer: Peer) -> None:
        """Something is to be written to it."""
        self[peer] = None


class Executor:
    """Performs effects, and remembers which peers have something to be flushed."""

    def __init__(
        self,
        broker: Broker,
        archive: Archive,
        credit: ProducerCredit,
        unblock: Callable[[Consumer | Browser], None],
    ) -> None:
        self._broker = broker
        self._credit = credit
        self.streams = Streams(broker, archive, unblock)
        self.cut: Callable[[Link, str, str, dict[str, Any] | None], None] = _close
        """What ends a link from this side, and says why."""
        self.whose: Callable[[bytes], tuple[tuple[str, str], ...]] = lambda txn_id: ()
        """What a refusal says of a transaction that may be another group's."""
        self.touched = Touched()
        self.paced: list[Consumer] = []
        """Consumers that get more once what they got has left."""
        self.shown: dict[Browser, None] = {}
        """Browsers that were shown something."""
        self.scan_again = False
        """The broker has more to look at."""
        self.performing = False
        """Whether some effects are being performed, so that others must wait for their turn."""
        self._perform: dict[type[Effect], Callable[[Any], None]] = {
            Deliver: self._deliver,
            Paced: self._paced,
            Show: self._show,
            Drained: self._drained,
            Confirm: self._confirm,
            ConfirmDuplicates: self._confirm_duplicates,
            SettleSends: self._settle_sends,
            Refuse: self._refuse,
            ConfirmAcknowledged: self._confirm_acknowledged,
            Discharged: self._discharged,
            DischargeRefused: self._discharge_refused,
            Room: self._room,
            ScanAgain: self._scan_again,
            Finished: self._finished,
            StagePublished: self._stage_published,
            StageRefused: self._stage_refused,
        }

    def perform(self, effects: list[Effect]) -> None:
        """Perform `effects` in order."""
        within, self.performing = self.performing, True
        try:
            for effect in effects:
                self._perform[effect.__class__](effect)
        finally:
            self.performing = within

    def flush(self) -> None:
        """Write what was performed, once for each peer."""
        touched, self.touched = self.touched, Touched()
        for peer in touched:
            peer.flush()

    def _deliver(self, effect: Deliver) -> None:
        consumer = effect.consumer
        outlet: DeliveryLink = consumer.port
        self.touched.add(outlet.peer)
        if self._broker.uploads.has_larges:
            self._deliver_any(consumer, outlet, _apart(consumer, effect.messages))
            return
        if outlet.settled:
            self._deliver_settled(consumer, outlet, _apart(consumer, effect.messages))
            return
        if not consumer.runs:
            self._send(consumer, outlet, effect.messages)  # type: ignore[arg-type]
            return
        for is_run, entries in groupby(effect.messages, key=_is_run):
            if not is_run:
                self._send(consumer, outlet, [*entries])  # type: ignore[list-item]
                continue
            for run in entries:
                self._send_run(consumer, outlet, run)  # type: ignore[arg-type]

    def _send_run(self, consumer: Consumer, outlet: DeliveryLink, run: MessageRun) -> None:
        if not run.is_whole:
            # Some command needed its messages before it was sent.
            self._send(consumer, outlet, run.apart())
            return
        assert run.content is not None
        run.handle = outlet.link.send_run(run.content, run.ends, run.seq, run)
        run.content = None

    def _send(self, consumer: Consumer, outlet: DeliveryLink, messages: list[Message]) -> None:
        exact = consumer.reports_presented
        if len(messages) == 1:
            (message,) = messages
            data = message.body
            assert data is not None
            if message.count or message.flagged:
                data = _redelivered(data, message, exact)
            message.body = None
            message.handle = outlet.link.send_one(data, _TAG(message.seq), message)
            return
        bodies: list[bytes] = []
        for message in messages:
            data = message.body
            assert data is not None
            if message.count or message.flagged:
                data = _redelivered(data, message, exact)
            bodies.append(data)
            message.body = None
        tags = struct.pack(f">{len(messages)}Q", *[message.seq for message in messages])
        for message, handle in zip(messages, outlet.link.send_all(bodies, tags, messages), strict=True):
            message.handle = handle

    def _deliver_settled(self, consumer: Consumer, outlet: DeliveryLink, messages: list[Message]) -> None:
        """A receiver that settles nothing (AMQP 2.6.12): what is sent to it is consumed, at most once."""
        for message in messages:
            data = message.body
            assert data is not None
            if message.count or message.flagged:
                data = _redelivered(data, message, consumer.reports_presented)
            outlet.link.send(data, _TAG(message.seq), None, settled=True)
            message.body = None
            self._broker.settlement.acknowledge(consumer, message, confirm=False)

    def _deliver_any(self, consumer: Consumer, outlet: DeliveryLink, messages: list[Message]) -> None:
        """Some of them may be stubs of large messages."""
        for message in messages:
            data = message.body
            assert data is not None
            if message.count or message.flagged:
                data = _redelivered(data, message, consumer.reports_presented)
            message.body = None
            parcel = Parcel(data, _TAG(message.seq), message)
            if outlet.settled:
                parcel.message, message.handle = None, 0
                parcel.sent = partial(self._broker.settlement.acknowledge, consumer, message, confirm=False)
            self.streams.send(consumer, parcel)

    def _paced(self, effect: Paced) -> None:
        self.paced.append(effect.consumer)

    def _show(self, effect: Show) -> None:
        outlet: DeliveryLink = effect.browser.port
        for message in effect.messages:
            assert message.body is not None
            data = with_delivery(message.body, message.count, False)
            if self._broker.uploads.has_larges:
                self.streams.send(effect.browser, Parcel(data, _TAG(message.seq), None))
            else:
                outlet.link.send(data, _TAG(message.seq), None, settled=True)
        self.shown[effect.browser] = None
        self.touched.add(outlet.peer)

    def _drained(self, effect: Drained) -> None:
        receiver: Consumer | Browser = effect.receiver
        outlet: DeliveryLink = receiver.port
        if not self.streams.drained(receiver):
            outlet.link.drained()
        self.touched.add(outlet.peer)

    def _confirm(self, effect: Confirm) -> None:
        by_link: dict[Receiver, list[int]] = {}
        tokens: list[SendToken | RunTokens] = effect.tokens
        for token in tokens:
            if isinstance(token, RunTokens):
                self._confirm_run(token)
                continue
            link, delivery = token
            if link in by_link:
                by_link[link].append(delivery)
            else:
                by_link[link] = [delivery]
        for link, deliveries in by_link.items():
            link.accept_all(deliveries)
            port = link.context
            if port is not None:
                self._credit.owe(link, port, len(deliveries))

    def _confirm_run(self, tokens: RunTokens) -> None:
        link = tokens.link
        link.accept_run(tokens.deliveries.start, len(tokens))
        port = link.context
        if port is not None:
            self._credit.owe(link, port, len(tokens))

    def _confirm_duplicates(self, effect: ConfirmDuplicates) -> None:
        tokens: list[SendToken] = effect.tokens
        for link, delivery in tokens:
            port = link.context
            link.settle(delivery, IS_DUPLICATE if port is not None and port.notices else ACCEPTED)
            if port is not None:
                self._credit.owe(link, port)

    def _settle_sends(self, effect: SettleSends) -> None:
        accepted, duplicate = Transactional(effect.txn, ACCEPTED), Transactional(effect.txn, IS_DUPLICATE)
        duplicates = set(effect.duplicates)
        tokens: list[SendToken] = effect.tokens
        for token in tokens:
            link, delivery = token
            link.settle(delivery, duplicate if token in duplicates else accepted)
            if link.context is not None:
                self.touched.add(link.context.peer)

    def _refuse(self, effect: Refuse) -> None:
        if effect.token is None:
            return
        token: SendToken = effect.token
        link, delivery = token
        port = link.context
        if port is not None and not port.rejects:
            self.cut(link, effect.condition, effect.description, None)
            return
        link.settle(delivery, Rejected(effect.condition, effect.description))
        if port is not None:
            self._credit.owe(link, port)

    def _confirm_acknowledged(self, effect: ConfirmAcknowledged) -> None:
        by_consumer: dict[Consumer, list[int]] = {}
        for consumer, message in effect.messages:
            if isinstance(message, RunPart):
                to: DeliveryLink = consumer.port
                to.link.confirm_run(message.run.handle + message.at, message.length)
                self.touched.add(to.peer)
                continue
            if consumer in by_consumer:
                by_consumer[consumer].append(message.handle)
            else:
                by_consumer[consumer] = [message.handle]
        for consumer, handles in by_consumer.items():
            outlet: DeliveryLink = consumer.port
            outlet.link.confirm_all(handles)
            self.touched.add(outlet.peer)

    def _discharged(self, effect: Discharged) -> None:
        token: DischargeToken = effect.token
        token.link.settle(token.delivery, ACCEPTED)
        if token.link.context is not None:
            self.touched.add(token.link.context.peer)

    def _discharge_refused(self, effect: DischargeRefused) -> None:
        token: DischargeToken = effect.token
        port = token.port
        condition, info = transaction_error(effect.condition, port.peer.product)
        if condition == UNKNOWN_TXN:
            info = self.whose(token.txn_id)
        if port.rejects:
            token.link.settle(token.delivery, Rejected(condition, effect.description, info))
        elif token.link.context is not None:
            self.cut(token.link, condition, effect.description, dict(info))
        self.touched.add(port.peer)

    def _room(self, effect: Room) -> None:
        self._credit.room(effect.queue)

    def _scan_again(self, effect: ScanAgain) -> None:
        self.scan_again = True

    def _finished(self, effect: Finished) -> None:
        pending: Pending = effect.token
        if effect.refused:
            pending.stop_at(effect.count, effect.refused)
        else:
            pending.finish(effect.count)

    def _stage_published(self, effect: StagePublished) -> None:
        pending: Pending = effect.token
        pending.finish(effect.count)

    def _stage_refused(self, effect: StageRefused) -> None:
        pending: Pending = effect.token
        pending.failed(effect.description)

    def owe(self, link: Receiver, port: Coordinator | ManagementLink) -> None:
        """One more unit of credit is due to somebody who asks; it is given back in lumps."""
        port.owed += 1
        if port.owed >= COORDINATOR_REFILL:
            link.add_credit(port.owed)
            port.owed = 0
        self.touched.add(port.peer)


def _is_run(entry: Message | MessageRun) -> bool:
    return isinstance(entry, MessageRun)


def _apart(consumer: Consumer, entries: list[Message | MessageRun]) -> list[Message]:
    """What a consumer is given, with messages in the places of runs; they are told apart for it, too."""
    messages: list[Message] = []
    for entry in entries:
        messages += entry.apart() if isinstance(entry, MessageRun) else [entry]
    if consumer.runs:
        assert consumer.unsettled
    return messages


def _close(link: Link, condition: str, description: str, info: dict[str, Any] | None) -> None:
    link.close(condition, description, info)


def transaction_error(condition: str, product: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """How a peer is told why its commit is refused: the condition and the error's info (AMQP 4.3, 4.5.8).

    Qpid JMS takes `amqp:transaction:rollback` for "in doubt", and any other condition for a plain rollback.
    """
    if condition == UNKNOWN_TXN:
        return condition, ()
    if product == QPID_JMS:
        return (PLAINLY_FAILED if condition == ROLLED_BACK else condition), ()
    return ROLLED_BACK, () if condition == ROLLED_BACK else ((CAUSE, condition),)


def _redelivered(data: bytes, message: Message, exact: bool) -> bytes:
    """A message that came back, in the terms of its receiver.

    One that reports presentations gets the exact count and the flag beside it; for any other, JMS clients take
    `delivery-count > 0` for `JMSRedelivered`, which must never be falsely unset (promise 4).
    """
    if exact:
        return with_delivery(data, message.count, message.flagged)
    return with_delivery(data, max(message.count, 1), False)
