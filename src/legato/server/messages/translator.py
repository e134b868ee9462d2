"""Translator of AMQP events into commands of the broker.

Only this module, `transfers` and the modules of links know both vocabularies.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice
from typing import Any

import msgspec

from legato.amqp import names
from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, encode_message
from legato.amqp.engine.events import (
    AcceptedRun,
    Attached,
    Closed,
    Detached,
    Disposition,
    Event,
    Flow,
    Opened,
    OutcomeLost,
    SessionBegan,
    SessionEnded,
    Transfer,
    TransferAborted,
    TransferLost,
    TransferPart,
    TransferRun,
)
from legato.amqp.engine.link import Link, Sender, Session
from legato.amqp.engine.outcomes import (
    ACCEPTED,
    Accepted,
    Modified,
    Outcome,
    Received,
    Rejected,
    Released,
    Transactional,
)
from legato.core.broker import Broker
from legato.core.consumers import Browser, Consumer
from legato.core.message import Message, MessageRun
from legato.core.transaction import Disposal
from legato.core.transactions import DROPPED
from legato.quoting import quoted
from legato.server.access.permissions import Denied
from legato.server.connections.container_registry import ContainerRegistry
from legato.server.limits.accounts import LimitExceeded
from legato.server.limits.names import Names
from legato.server.links.attachment import Links
from legato.server.links.expiry_timers import ExpiryTimers
from legato.server.links.heartbeats import Heartbeats
from legato.server.links.link_endings import LinkEnding
from legato.server.links.link_roles import DeliveryLink, HeartbeatLink, ManagementReplies, StatusLink
from legato.server.links.refused import Refused
from legato.server.links.timeouts import TAKEN_BACK
from legato.server.management.management import Management
from legato.server.messages.transfers import Transfers
from legato.server.shell import Peer, Shell

log = logging.getLogger("legato.translate")

SLICE_MS = 5
"""Then everybody else has a turn."""
_TIME_EVERY = 16
"""After how many of the usual events the time is looked at."""


class CutOff(Event):
    """A connection may not stay: it is told why when nothing that it has is left in the broker.

    `gives_way` is True if another one takes its place: it does not count any more then.
    """

    condition: str
    description: str
    info: dict[str, Any] | None = None
    gives_way: bool = False


_OF_ONE = (Received, Transactional)
"""What clients say of one message after the other: that it was presented, and that a transaction has it."""
_GIVES_WAY = CutOff(
    "amqp:resource-locked", "opened again elsewhere", {"sole-connection-enforcement": True}, gives_way=True
)


class Translator:
    """Turns the events of connections into commands for one broker.

    Args:
        return_window_ms: over which time clients are to spread their return, should they lose the broker now.
        status: what a status link is answered with.
        redirection: for the hostname of an open, why and where to send its peer, if another group is meant.
    """

    def __init__(
        self,
        shell: Shell,
        broker: Broker,
        links: Links,
        management: Management,
        transfers: Transfers,
        return_window_ms: Callable[[], int],
        heartbeats: Heartbeats,
        expiry_timers: ExpiryTimers,
        status: Callable[[], Any],
        names: Names,
        redirection: Callable[[str | None], tuple[str, dict[str, Any]] | None],
    ) -> None:
        self._shell = shell
        self._broker = broker
        self._links = links
        self._management = management
        self._transfers = transfers
        self._uploads = transfers.uploads
        self._containers = ContainerRegistry(
            return_window_ms, lambda peer, deadline_ms: self._cut_off(peer, _GIVES_WAY, deadline_ms), names, redirection
        )
        self._heartbeats = heartbeats
        self._expiry_timers = expiry_timers
        self._status = status

    def handle(self, peer: Peer, events: list[Event], now_us: int) -> list[Event]:
        """Apply the events of one read, in order; flows last, when everything before them has been counted.

        Each link's once: what the first of them led to is not on the link yet when the next one is looked at.

        Returns:
            Those that are left for later, as all that came before them took `SLICE_MS`.
        """
        flows: dict[Sender, None] = {}
        now_ms = self._shell.clock.monotonic_ms
        deadline_ms = now_ms() + SLICE_MS
        rest: list[Event] = []
        coming = iter(events)
        for _ in range(0, len(events), _TIME_EVERY):
            for event in islice(coming, _TIME_EVERY):
                kind = event.__class__
                if kind is Transfer:
                    self._transfers.transfer(peer, event, now_us)  # type: ignore[arg-type]
                elif kind is Disposition:
                    self._disposition(peer, event)  # type: ignore[arg-type]
                elif kind is AcceptedRun:
                    self._accepted_run(peer, event)  # type: ignore[arg-type]
                elif kind is Flow:
                    flows[event.link] = None  # type: ignore[attr-defined]
                elif kind is TransferRun:
                    self._transfers.run(peer, event, now_us)  # type: ignore[arg-type]
                    if now_ms() >= deadline_ms:
                        rest = list(coming)
                        break
                elif kind is TransferPart:
                    self._transfers.part(peer, event, now_us)  # type: ignore[arg-type]
                elif not self._rare(peer, event, deadline_ms):
                    rest = [event, *coming]
                    break
                elif now_ms() >= deadline_ms:
                    rest = list(coming)
                    break
            else:
                if now_ms() < deadline_ms:
                    continue
                rest = list(coming)
            break
        for number, link in enumerate(flows, 1):
            self._flow(link, now_us)
            if number < len(flows) and now_ms() >= deadline_ms:
                rest = [*map(Flow, islice(flows, number, None)), *rest]
                break
        self._uploads.sweep()
        return rest

    # -- outcomes ----------------------------------------------------------------------------------------------

    def _accepted_run(self, peer: Peer, event: AcceptedRun) -> None:
        consumer = event.link.context
        run: MessageRun = event.context
        at, count = event.at, event.count
        if type(consumer) is Consumer and self._broker.settlement.acknowledge_run(
            consumer, run, at, count, confirm=not event.settled
        ):
            return
        for place in range(at, at + count):
            handle = event.delivery + place - at
            self._disposition(peer, Disposition(event.link, (run, place), ACCEPTED, event.settled, handle))

    def _disposition(self, peer: Peer, event: Disposition) -> None:
        message = event.context
        link = event.link
        consumer = link.context
        if type(message) is tuple:
            run, place = message
            message = _message_of(run, place)
            if type(consumer) is Consumer and event.outcome.__class__ in _OF_ONE:
                # It says so of each: runs would be told apart for nothing.
                consumer.takes_runs = False
        if type(message) is not Message or type(consumer) is not Consumer:
            if isinstance(event.outcome, Transactional):
                self._transfers.doom(peer, event.outcome.txn_id, DROPPED)
            if message is TAKEN_BACK and not event.settled and event.outcome.__class__ is not Received:
                assert isinstance(link, Sender)
                link.confirm(event.delivery, Rejected(names.WENT_ELSEWHERE, "it was not acknowledged in time"))
            return
        assert isinstance(link, Sender)
        outcome = event.outcome
        confirm = not event.settled
        broker = self._broker
        kind = outcome.__class__
        if kind is Accepted:
            known = broker.settlement.acknowledge(consumer, message, confirm=confirm)
        elif kind is Transactional:
            self._acknowledge_in(consumer, message, outcome, confirm)  # type: ignore[arg-type]
            return
        elif kind is Received:
            broker.presentations.present(consumer, message)
            return
        elif outcome is None:
            # Settled without an outcome: the source's default (AMQP 3.4.5), modified with delivery-failed.
            if event.settled:
                broker.settlement.modify(consumer, message, failed=True, undeliverable_here=False)
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
                return self._broker.settlement.release(consumer, message)
            case Modified(delivery_failed=failed, undeliverable_here=here, text=text):
                return self._broker.settlement.modify(
                    consumer, message, failed=failed, undeliverable_here=here, text=text
                )
            case Rejected(condition=condition, description=description, info=info):
                return self._broker.settlement.reject(consumer, message, description or condition, dict(info))
        return False

    def _acknowledge_in(self, consumer: Consumer, message: Message, state: Transactional, unsettled: bool) -> None:
        outlet: DeliveryLink = consumer.port
        transaction = self._broker.transactions.find(state.txn_id, outlet.peer)
        inner = state.outcome
        if transaction is None:
            # The transaction is gone (rolled back by a failure): what it would have consumed returns.
            self._broker.settlement.modify(consumer, message, failed=True, undeliverable_here=False)
        else:
            self._broker.transactions.acknowledge(
                transaction, consumer, message, None if inner is ACCEPTED else _disposal_of(inner)
            )
        if unsettled:
            outlet.link.confirm(message.handle, state)

    # -- credit --------------------------------------------------------------------------------------------------

    def _flow(self, link: Sender, now_us: int) -> None:
        port = link.context
        if isinstance(port, Consumer):
            self._broker.receivers.flow(port, link.credit, link.draining, now_us)
        elif isinstance(port, Browser):
            self._broker.browsers.flow(port, link.credit, link.draining)
        elif isinstance(port, StatusLink):
            self._send_status(link, port)
        elif isinstance(port, HeartbeatLink):
            self._heartbeats.flow(port)
        elif isinstance(port, ManagementReplies):
            self._management.flow(port)

    def resume(self, peer: Peer, now_us: int) -> None:
        """Its socket takes more again: what waited for that is sent."""
        for link in peer.links:
            port = link.context
            if isinstance(port, ManagementReplies) or (isinstance(port, StatusLink) and port.waits):
                self._flow(link, now_us)

    def _send_status(self, link: Sender, port: StatusLink) -> None:
        """Answer on a status link: once for each flow that leaves credit, however much that is.

        Who does not read has one answer when it does.
        """
        port.waits = port.peer.paused
        if port.waits:
            return
        if link.credit > 0:
            document = msgspec.json.encode(self._status())
            link.send(encode_message(header=Header(), body=DataBody(document)), b"status", None, settled=True)
        if link.draining:
            link.drained()

    # -- connections, sessions, links ----------------------------------------------------------------------------

    def _rare(self, peer: Peer, event: Event, deadline_ms: int) -> bool:
        """Apply an event; False if it is to be applied again, to go on where the time was up."""
        match event:
            case Opened():
                return self._containers.open(peer, event, deadline_ms)
            case SessionBegan(session=session):
                session.open()
                self._begin_session(peer, session)
            case SessionEnded(session=session, condition=condition):
                ending = LinkEnding.LOST if condition else LinkEnding.SESSION_ENDED
                if not self._leave(peer, [link for link in peer.links if link.session is session], ending, deadline_ms):
                    return False
                peer.holdings.end_session(session)
                self._shell.when_durable(peer, session.close)
            case Attached(link=link):
                self._links.attach(peer, link)
            case Detached(link=link, closed=closed):
                self._detached(peer, link, closed)
            case TransferAborted():
                self._transfers.aborted(event)
            case TransferLost():
                self._transfers.lost(peer, event)
            case OutcomeLost(txn_id=txn_id):
                self._transfers.doom(peer, txn_id, DROPPED)
            case Closed():
                ending = LinkEnding.CONNECTION_CLOSED if event.clean else LinkEnding.LOST
                if not self._leave(peer, list(peer.links), ending, deadline_ms):
                    return False
                self._closed(peer, event, ending)
            case CutOff():
                return self._cut_off(peer, event, deadline_ms)
        return True

    def _begin_session(self, peer: Peer, session: Session) -> None:
        try:
            peer.holdings.begin_session(session)
        except LimitExceeded as exceeded:
            session.close(exceeded.condition, str(exceeded))

    def _leave(self, peer: Peer, links: list[Link], ending: LinkEnding, deadline_ms: int) -> bool:
        """Take links from the broker; False if there are more than fit into a slice."""
        now_ms = self._shell.clock.monotonic_ms
        for number, link in enumerate(links, 1):
            self._links.gone(peer, link, ending)
            if number < len(links) and now_ms() >= deadline_ms:
                return False
        return True

    def _detached(self, peer: Peer, link: Link, closed: bool) -> None:
        """Answer a detach once all that was asked before is durable: who hears the answer waits for nothing more."""
        if not closed and self._links.suspend(peer, link):
            self._shell.when_durable(peer, link.suspend)
            return
        try:
            self._links.gone(peer, link, LinkEnding.CLOSED if closed else LinkEnding.DETACHED)
        except Refused as refusal:
            link.close(refusal.condition, str(refusal))
            return
        self._shell.when_durable(peer, link.close if closed else link.detach)

    def _closed(self, peer: Peer, event: Closed, ending: LinkEnding) -> None:
        self._let_go(peer, ending)
        if not event.clean and event.condition:
            log.warning("! %s failed: %s %s", peer.name, quoted(event.condition), quoted(event.description))
        else:
            log.info("- %s closed", peer.name)
        if peer.amqp.close_unanswered:
            self._shell.when_durable(peer, peer.end)
        else:
            peer.end()

    def expel(self, peer: Peer, why: str, condition: str = Denied.condition) -> None:
        """Close a connection that may not stay; what it had is given back as if it had been lost."""
        if peer.is_cut_off:
            return
        log.warning("- %s (%s) is cut off: %s", peer.name, quoted(peer.user), why)
        self._shell.audit.say("disconnection", peer, "denied", reason=why)
        if peer.opened:
            self._cut_off(peer, CutOff(condition, why), self._shell.clock.monotonic_ms() + SLICE_MS)
        else:
            peer.drop()

    def _cut_off(self, peer: Peer, last: CutOff, deadline_ms: int) -> bool:
        """Take from the broker all that a peer has, and tell it why; False if what is left is for its own turns."""
        if not self._leave(peer, list(peer.links), LinkEnding.LOST, deadline_ms):
            peer.end_with(last)
            return False
        self._let_go(peer, LinkEnding.LOST)
        peer.amqp.close(last.condition, last.description, last.info)
        peer.end()
        if last.gives_way:
            peer.holdings.give_way()
        return True

    def _let_go(self, peer: Peer, ending: LinkEnding) -> None:
        """Take from the broker all that the peer has."""
        for link in list(peer.links):
            self._links.gone(peer, link, ending)
        self._broker.transactions.disconnect(peer)
        peer.holdings.let_go()
        self._containers.closed(peer)
        if ending is LinkEnding.CONNECTION_CLOSED and not self._containers.is_connected(peer.container):
            self._broker.reservations.release_container(peer.container)
            self._expiry_timers.release(peer.container)


def _message_of(run: MessageRun, place: int) -> Message:
    """One message of a run, which is needed by itself."""
    holder = run.consumer
    message = run.apart()[place]
    if holder is not None:
        # It has messages in place of its runs from now on.
        assert holder.unsettled is not None
    return message


def _disposal_of(outcome: Outcome | None) -> Disposal | None:
    """Disposal of a message by its transaction; None to consume it."""
    match outcome:
        case Rejected(condition=condition, description=description, info=info):
            return Disposal(rejected=True, text=description or condition, properties=info)
        case Modified(delivery_failed=failed, text=text):
            return Disposal(failed=failed, text=text)
        case Released():
            return Disposal()
    return None
