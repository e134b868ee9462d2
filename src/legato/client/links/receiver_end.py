"""Receiving link of a consumer: keeps its inbox filled, and sends its dispositions. Runs in the I/O thread."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from legato.amqp import names
from legato.amqp.codec.types import Array, ULong
from legato.amqp.engine import batch
from legato.amqp.engine.events import (
    Attached,
    ConfirmedRun,
    Detached,
    Transfer,
    TransferAborted,
    TransferPart,
    TransferRun,
)
from legato.amqp.engine.outcomes import ACCEPTED, Modified
from legato.client.links.deliveries import ACCEPTING, ACKNOWLEDGED, HERE, Delivery, DeliveryState, finish
from legato.client.links.dispositions import DispositionEnd
from legato.client.links.downloads import Download
from legato.client.links.prefetch import FIRST_CREDIT, LARGE_CREDIT
from legato.client.links.redirection import redirection
from legato.client.links.session_state import AcknowledgeMode
from legato.client.mapping.conditions import RESOURCE_DELETED, error_of
from legato.client.mapping.explanations import explanation
from legato.client.mapping.source import ATTACH_BYTES, Source
from legato.errors import InvalidSelectorError, JMSError

if TYPE_CHECKING:
    from legato.amqp.engine.link import Receiver
    from legato.client.links.ports import ChannelPort

LAZY_MAX = 200
"""DUPS_OK: acknowledgements that may wait for the next lump (CONTRACT C5)."""
HELD_MAX = 16_000
"""Claims that fit the one frame of an attach; what an application holds beyond that comes again, flagged."""
_CLAIM_BYTES = 8

_ACKNOWLEDGED_LATER = (AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL)
_KEEPING = (AcknowledgeMode.AUTO, AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL)
"""After a loss of the connection the application may still acknowledge what it has."""


class ReceiverEnd(DispositionEnd):
    """One link from a queue or subscription, re-attached by its name after a failover.

    The application's thread takes from `incoming.inbox`, appends to `presented` and `accepted`, and calls
    `Channel.wake_receiver`; all else is the I/O thread's.
    """

    def __init__(self, channel: ChannelPort, name: str, source: Source, prefetch: int) -> None:
        super().__init__(channel, prefetch)
        self.name = name
        self.source = source
        self.presented: deque[Delivery] = deque()
        """Handed to the application."""
        self.accepted: deque[Delivery] = deque()
        """Done with by the application."""
        self.handing: Delivery | None = None
        """What a call of the application's is about to return; until it has, nothing is said about it, and it can be
        taken back."""
        self.scheduled = False
        """Whether the I/O thread has been told to look at `presented` and `accepted`."""
        self.ready = False
        """Whether it was attached once: the destination exists."""
        self.closed = False
        self._releasing = False
        """Whether it is released once nothing more can come."""
        self.error: JMSError | None = None
        self._given_up: JMSError | None = None
        """Why what the application has comes again though it may not know that yet, in a transacted session."""
        self._queue: int | None = None
        """The broker's number of what it receives from, of which the tags of its deliveries are the numbers."""
        self._download = Download()

    # -- its life ----------------------------------------------------------------------------------------

    def attach(self) -> None:
        """Attach on the channel's present session, claiming what the application still holds."""
        session = self.channel.session
        assert session is not None
        properties = self.source.properties() | {names.REPORTS_PRESENTED: True}
        self.incoming.forget_beyond(self._claims_max(session.connection.remote_max_frame_bytes))
        held = self.incoming.held()
        if held:
            properties[names.HELD] = Array([ULong(seq) for seq in held])
            if self._queue is not None:
                properties[names.QUEUE] = ULong(self._queue)
        self.link = session.receiver(
            self.name,
            source=self.source.terminus(),
            properties=properties,
        )
        self.link.context = self
        self.link.streams = True
        # Elsewhere the broker hears of each message that it is presented.
        self.link.takes_runs = batch.tells_runs and self.channel.mode is AcknowledgeMode.AUTO
        self.link.reads_apart = True
        self._credit = 0
        self._ramp = FIRST_CREDIT

    def _claims_max(self, frame_bytes: int) -> int:
        """How many claims fit a frame that the broker takes."""
        texts = (self.name, self.source.destination.name, self.source.selector or "")
        room_bytes = frame_bytes - ATTACH_BYTES - sum(len(text.encode()) for text in texts)
        return min(max(room_bytes // _CLAIM_BYTES, 0), HELD_MAX)

    def connection_lost(self) -> tuple[list[Delivery], int]:
        """The wire is gone; returns the deliveries that the application has, and how many it has not seen."""
        self.link = None
        self.attached = False
        self._accepting.clear()
        self._download.forget()
        self._run_drained()
        self.lost()
        unseen = len(self.incoming.inbox)
        mode, contract = self.channel.mode, self.channel.contract
        again = mode in _ACKNOWLEDGED_LATER and not contract.keeps_unacknowledged
        with_application = self.incoming.connection_lost(
            keep=mode in _KEEPING,
            again=again,
            # A consumer that the application has closed can present nothing again.
            presents=not self.released,
            resolve=contract.resolves_calls,
        )
        self.close_if_asked()
        return with_application, unseen

    def on_attached(self, event: Attached) -> None:
        """The broker answered; a refusal has no source and is followed by `Detached`."""
        link = event.link
        if link.remote_source.kind == "none":
            return
        try:
            self.source.check_answer(link.remote_source)
        except JMSError as error:
            self.refuse(error)
            return
        self.attached = True
        self.ready = True
        self.incoming.claims_answered(
            link.remote_properties.get(names.HELD_COUNT, None if self.incoming.outstanding else 0),
            link.remote_properties.get(names.ELSEWHERE) or (),
        )
        self._queue = link.remote_properties.get(names.QUEUE)
        self.channel.restored(self)
        self.channel.touch()
        self.grant()
        self.close_if_asked()

    def on_detached(self, event: Detached) -> None:
        """The broker closed the link, or confirms that we did."""
        link, self.link, self.attached = self.link, None, False
        if link is not None:
            link.close()
        if self.closed:
            return
        what = (
            f"The consumer of {self.source.destination} {'was closed by the broker' if self.ready else 'was refused'}"
        )
        kind = InvalidSelectorError if self.source.selector and event.condition == "amqp:invalid-field" else None
        error = redirection(event, what) or error_of(event.condition, event.description, what, kind)
        if event.condition != RESOURCE_DELETED:
            # Else what was received is gone for everybody, as it is to be.
            self._give_up_received(error)
        if self.closing:
            self._close_done()
            self.channel.restored(self)
            return
        self.refuse(error)

    def _give_up_received(self, error: JMSError) -> None:
        """What was received comes again: no transaction may commit without it (CONTRACT A3)."""
        coordinator = self.channel.coordinator
        if coordinator is not None:
            self._flush_presented()
            coordinator.give_up(self, error)
            self._given_up = error

    def refuse(self, error: JMSError) -> None:
        """It does not exist any more, or never did."""
        link, self.link = self.link, None
        if link is not None:
            self._end(link)
        told = self.ready
        self.error = error
        self._close_done()
        self.channel.restored(self)
        if told:
            self.channel.report(self.error)

    def _end(self, link: Receiver) -> None:
        if self.source.durable:
            # Only its consumer goes; what is closed for good ends with its messages (amqp.md A3).
            link.detach()
        else:
            link.close()

    def release(self) -> None:
        """The application closes its consumer: what it has not seen goes back, what it has it may acknowledge yet.

        The link closes with the last acknowledgement, or with the session.
        """
        if self.channel.mode not in _ACKNOWLEDGED_LATER:
            self.close()
            return
        self.flush()
        self.closing = True
        self._releasing = True
        self.drain(self._release)

    def _release(self) -> None:
        if self._releasing and not self.closed:
            self._releasing = False
            self._return_unseen()
            self.released = True
            self._detach_when_done()
            self.channel.touch()

    def close(self) -> None:
        """Close once all that was accepted is confirmed; the rest goes back to the queue."""
        self.flush()
        self.closing = True
        self.released = self._releasing = False
        self._detach_when_done()

    @property
    def unheard(self) -> int:
        """How many acknowledgements are unconfirmed that no call waits for."""
        outstanding = self.incoming.outstanding.values()
        return sum(each.state is ACCEPTING and each.batch is None for each in outstanding)

    def give_up(self) -> None:
        """The session closes, and what it accepted was not confirmed for too long: what became of that stays open."""
        outstanding = self.incoming.outstanding
        for delivery in [each for each in outstanding.values() if each.state is ACCEPTING]:
            del outstanding[delivery.tag]
        self.close_if_asked()

    def _detach_when_done(self) -> None:
        if self._releasing:
            # What the application has, and what it has not, is told apart once nothing more comes.
            return
        if self.handing is not None and (self.presented or self.accepted):
            # What a call is about to return is not what goes back: `flush` comes again.
            return
        awaited = (ACCEPTING, HERE) if self.released else (ACCEPTING,)
        if any(delivery.state in awaited for delivery in self.incoming.outstanding.values()):
            return
        coordinator = self.channel.coordinator
        if coordinator is not None and not coordinator.release(self):
            return
        self.released = False
        if self.link is None:
            self._close_done()
        elif self.attached:
            self.attached = False
            self._end(self.link)

    def _close_done(self) -> None:
        self.closed = True
        self._accepting.clear()
        self._run_drained()
        for delivery in self.incoming.outstanding.values():
            finish(delivery, DeliveryState.RETURNED)
        self.incoming.outstanding.clear()
        self.incoming.inbox.clear()
        self.channel.forget_receiver(self)
        self.channel.touch()

    def close_if_asked(self) -> None:
        """Something that `close` waits for has happened."""
        if self.closing and not self.closed:
            self._detach_when_done()

    # -- messages ----------------------------------------------------------------------------------------

    def on_transfer(self, event: Transfer) -> None:
        """A message came."""
        self._credit -= 1
        outcome = self.incoming.settled_early(event.tag)
        if outcome is not None:
            event.link.settle(event.delivery, outcome)
            self.incoming.claims_came()
            self.grant()
        elif (
            known := self.incoming.arrived(self, event.delivery, event.tag, event.data, settled=event.settled)
        ) is None:
            self._wanted = 0
        else:
            if known.state is ACCEPTING:
                self._state_accepted(known)
            self.incoming.claims_came()
            # What is held takes credit but no room in the inbox: nobody else would ever ask for more.
            self.grant()
        self.channel.touch()
        if self._credit == 0 and self._drained:
            self._run_drained()
        # Claims may be decided now.
        self.close_if_asked()

    def on_run(self, event: TransferRun | ConfirmedRun) -> None:
        """Messages came together, or the broker settled together what we accepted."""
        if isinstance(event, ConfirmedRun):
            self.on_confirmed(event)
            return
        bodies = event.bodies
        assert bodies is not None
        count = len(bodies)
        tags = [number.to_bytes(8, "big") for number in range(event.number, event.number + count)]
        if event.settled or not self.incoming.arrived_together(self, event.delivery, tags, bodies):
            for handle, (tag, data) in enumerate(zip(tags, bodies, strict=True), event.delivery):
                self.on_transfer(Transfer(event.link, handle, tag, data, event.settled, None))
            return
        self._credit -= count
        self._wanted = 0
        self.channel.touch()
        if self._credit == 0 and self._drained:
            self._run_drained()

    def on_part(self, event: TransferPart) -> None:
        """Part of a large message came; with the last one it is a message like any other."""
        data = self._download.take(event, wanted=self.incoming.wants(event.tag))
        if data is None:
            return
        self._ramp = min(self._ramp, LARGE_CREDIT)
        problem = self._download.problem
        if problem is None:
            self.on_transfer(Transfer(event.link, event.delivery, event.tag, data, event.settled, event.txn_id))
            return
        event.link.settle(
            event.delivery, Modified(delivery_failed=True, undeliverable_here=True, text=explanation(problem))
        )
        self.channel.report(JMSError(f"A message of {self.source.destination} cannot be had: {problem}"))
        self._spend_in_vain(event.tag)

    def on_aborted(self, event: TransferAborted) -> None:
        """A large message does not come after all."""
        self._download.forget()
        self._spend_in_vain(event.tag)

    def _spend_in_vain(self, tag: bytes) -> None:
        """A message took credit and does not come: with none left the broker has nothing to give back."""
        self._credit -= 1
        self.incoming.comes_not(tag)
        self.channel.touch()
        if self._credit == 0 and self._drained:
            self._run_drained()
        self.grant()
        self.close_if_asked()

    def announce(self, delivery: Delivery) -> None:
        """Say that the application is about to have a message, so that this is known even if that kills it.

        What it is done with is acknowledged before: that must not be taken for what killed it.
        """
        self.flush()
        self.present(delivery)
        self.channel.transport.flush()
        delivery.announced = True
        self.channel.touch()

    def look(self) -> None:
        """State what the application's thread has put into `presented` and `accepted`; in DUPS_OK, what has to be."""
        accepted = self.accepted
        if self.channel.mode is AcknowledgeMode.DUPS_OK and len(accepted) < LAZY_MAX and self.incoming.inbox:
            self.scheduled = False
            # All others of these the application has done with; this one may be what kills it. They come again flagged,
            # and are not counted: saying it of each takes a frame for each (promise 4).
            newest = accepted[-1] if accepted else None
            if newest is not None and not newest.announced and newest is not self.handing:
                self.present(newest)
            self.widen()
        else:
            self.flush()

    def flush(self) -> None:
        """State what the application's thread has put into `presented` and `accepted` since the last time."""
        self.scheduled = False
        self._flush_presented()
        self._flush_accepted()
        if self.handing is not None and (self.presented or self.accepted):
            # A call is about to return it.
            self.scheduled = True
            self.channel.transport.later(self.flush)
        self.widen()
        self.close_if_asked()

    def _flush_presented(self) -> None:
        coordinator = self.channel.coordinator
        while (delivery := self._handed(self.presented)) is not None:
            if delivery.state is not HERE:
                if coordinator is not None and self._given_up is not None:
                    coordinator.take_in_vain(self._given_up)
            elif coordinator is not None:
                coordinator.take(self, delivery)
            elif not delivery.announced:
                self.present(delivery)

    def _flush_accepted(self) -> None:
        accepted = self.accepted
        taken = []
        while accepted:
            try:
                delivery = accepted[0]
            except IndexError:  # the application took the last one back
                break
            if delivery is self.handing:
                break
            accepted.popleft()
            taken.append(delivery)
        if self.channel.mode is AcknowledgeMode.DUPS_OK:
            for delivery in taken:
                self.settle(delivery, ACCEPTED, ACKNOWLEDGED)
        else:
            self.accept_all(taken)

    def _handed(self, deliveries: deque[Delivery]) -> Delivery | None:
        """Take out the first of those that the application has; None if there is none."""
        try:
            delivery = deliveries[0]
        except IndexError:
            return None
        if delivery is self.handing:
            return None
        deliveries.popleft()
        return delivery
