"""Sending link of a producer: sends its messages, and reports their outcomes. Runs in the I/O thread."""

from __future__ import annotations

import sys
from array import array
from collections import deque
from itertools import accumulate
from typing import TYPE_CHECKING

from legato.amqp import names
from legato.amqp.engine.events import AcceptedRun, Attached, Detached, Disposition, Flow
from legato.amqp.engine.outcomes import Accepted, Modified, Transactional
from legato.amqp.engine.terminus import Terminus
from legato.client.links.redirection import redirection
from legato.client.links.session_state import Outgoing, Send, Transaction, is_stored_already
from legato.client.links.uploads import Upload
from legato.client.mapping.conditions import RESOURCE_DELETED, error_of
from legato.client.mapping.refusals import refused, released
from legato.client.messages.destinations import Destination, Temporary
from legato.client.messages.large import unreadable
from legato.errors import JMSError

if TYPE_CHECKING:
    from legato.amqp.engine.link import Sender
    from legato.client.failover.wire import Wire
    from legato.client.links.ports import ChannelPort
    from legato.client.messages.message import Message


RUN_MAX = 128
"""Messages that go to the engine in one call at most. They are written then, before the next ones: so many usual ones
stay in the processor's cache while they are copied from one buffer to the next."""
RUN_BYTES_MAX = 1 << 18
"""What goes to the engine in one call may be copied once more: not more than this, or one message."""


class SenderEnd:
    """One link towards a destination, re-attached by its name after a failover.

    The application's thread appends to `outgoing.waiting` and calls `Channel.wake_sender`; no more than that.
    """

    def __init__(self, channel: ChannelPort, name: str, destination: Destination) -> None:
        self.channel = channel
        self.name = name
        self.destination = destination
        self.outgoing = Outgoing()
        self.link: Sender | None = None
        self.scheduled = False
        """Whether the I/O thread has been told to look at `outgoing.waiting`."""
        self._upload: Upload | None = None
        """The first of what waits, if it is on its way out of a file."""
        self.attached = False
        self.ready = False
        """Whether it was attached once: the destination exists."""
        self.closing = False
        self.closed = False
        self.error: JMSError | None = None
        self.duplicates: deque[Message] = deque()
        """Messages that the broker dropped as duplicates; the application's thread takes them."""

    def attach(self) -> None:
        """Attach on the channel's present session."""
        session = self.channel.session
        assert session is not None
        self.link = session.sender(
            self.name,
            source=Terminus(address=self.name),
            target=Terminus(address=self.destination.name, capabilities=[self.destination.capability]),
            properties={names.PRODUCER_ID: self.name, names.DUPLICATE_NOTICE: True},
        )
        self.link.context = self

    def connection_lost(self) -> int:
        """The wire is gone: what is unconfirmed waits again. Returns how many sends that are."""
        self.link = None
        self.attached = False
        self._upload = None
        if not self.channel.contract.resends:
            blocked = self.outgoing.blocked()
            for send in blocked:
                self.finish(send, released(self.destination))
            self.outgoing.drop(blocked)
        return self.outgoing.connection_lost()

    def on_attached(self, event: Attached) -> None:
        """The broker answered; a refusal has no target and is followed by `Detached`."""
        link = event.link
        if link.remote_target is None or link.remote_target.kind == "none":
            return
        self.attached = True
        self.ready = True
        self.channel.restored(self)
        self.pump()

    def on_detached(self, event: Detached) -> None:
        """The broker closed the link, or confirms that we did."""
        link, self.link, self.attached = self.link, None, False
        if link is not None:
            link.close()
        if self.closing and not self.outgoing.under_way:
            self._close_done()
            self.channel.restored(self)
            return
        what = f"The producer for {self.destination} was {'closed by the broker' if self.ready else 'refused'}"
        error = redirection(event, what) or error_of(event.condition, event.description, what)
        # Whoever asked has gone with the queue for replies, as is usual: that is no news. A send to it is refused.
        self.fail(error, usual=event.condition == RESOURCE_DELETED and isinstance(self.destination, Temporary))
        self._pump_coordinator()
        if self.closing:
            self._close_done()
        self.channel.restored(self)

    def fail(self, error: JMSError, *, usual: bool = False) -> None:
        """It will not come back: everything that waits hears so, and the connection's listener.

        Args:
            usual: whether it is no news to whoever has no listener.
        """
        told = self.error is None and self.ready
        self.error = error
        self.closed = True
        self._upload = None
        self.channel.sends_given_up += self.outgoing.unheard
        # One by one: the application's thread may be adding to them.
        for sends in (self.outgoing.unconfirmed, self.outgoing.waiting):
            while sends:
                self._fail_send(sends[0], error)
                sends.popleft()
        self.channel.touch()
        if told:
            self.channel.report(error, usual=usual)

    def on_flow(self, event: Flow) -> None:
        """Credit came, or the broker wants it back."""
        self.pump()

    def pump(self) -> None:
        """Put on the wire what credit allows."""
        self.scheduled = False
        link = self.link
        if link is None or not self.attached:
            if self.closed:
                self._refuse_waiting()
                self._pump_coordinator()
            return
        self._drop_done()
        waiting = self.outgoing.waiting
        unconfirmed = self.outgoing.unconfirmed
        credit = link.credit
        bytes_max = link.remote_max_message_bytes or sys.maxsize
        while credit > 0 and waiting and self._upload is None:
            send = waiting[0]
            transaction = send.transaction
            txn_id: bytes | None = None
            if transaction is not None:
                if transaction.doomed or transaction.outcome is not None or is_stored_already(send):
                    self.finish(send, transaction.failure)
                    waiting.popleft()
                    continue
                txn_id = transaction.id
                if txn_id is None:
                    break
            size = len(send.data) if send.stream is None else len(send.data) + send.stream.size
            if size > bytes_max:
                self._decide([self._uploaded(send)], self._too_large(size, bytes_max))
                continue
            if send.stream is not None:
                self._upload = Upload(link, send, send.stream, txn_id)
                self.channel.transport.uploading.add(self)
                continue
            if transaction is None:
                sent = self._send_run(link, min(credit, RUN_MAX), bytes_max)
                credit -= sent
                if sent == RUN_MAX:
                    self.channel.transport.flush()
                continue
            unconfirmed.append(send)
            waiting.popleft()
            link.send(send.data, send.number.to_bytes(8, "big"), send, txn_id=txn_id)
            credit -= 1
        if link.draining and self._upload is None:
            link.drained()
        self.channel.touch()
        self._pump_coordinator()
        if self.closing:
            self._detach_when_done()

    def _pump_coordinator(self) -> None:
        """A commit waits until none of its sends waits: fewer may."""
        if self.channel.coordinator is not None:
            self.channel.coordinator.pump()

    def _send_run(self, link: Sender, count_max: int, bytes_max: int) -> int:
        """Send the first of what waits and what follows that is like it; how many: whole, of no transaction, and
        numbered one after the other."""
        waiting, unconfirmed = self.outgoing.waiting, self.outgoing.unconfirmed
        run: list[Send] = []
        size = 0
        number = waiting[0].number
        while waiting and len(run) < count_max and size < RUN_BYTES_MAX:
            send = waiting[0]
            data = send.data
            if (
                send.transaction is not None
                or send.stream is not None
                or len(data) > bytes_max
                or send.number != number + len(run)
            ):
                break
            # In this order: whoever flushes sees each of them at one of both places.
            unconfirmed.append(send)
            waiting.popleft()
            run.append(send)
            size += len(data)
        if len(run) == 1:
            link.send(run[0].data, number.to_bytes(8, "big"), run[0])
            return 1
        bodies = [send.data for send in run]
        link.send_run(bodies, array("I", accumulate(map(len, bodies))), number, run)
        return len(run)

    # -- out of a file -----------------------------------------------------------------------------------

    def _too_large(self, size: int, bytes_max: int) -> JMSError:
        """The broker would close the link of whoever sends that."""
        return JMSError(
            f"The message for {self.destination} has {size:,} bytes, and the broker takes at most {bytes_max:,} "
            "(server.max_message_bytes).",
            code="amqp:link:message-size-exceeded",
        )

    @property
    def can_upload(self) -> bool:
        """Whether the broker takes more now."""
        return self._upload is not None and self._upload.can_go_on

    def upload(self, wire: Wire) -> bool:
        """Send more of the file; returns whether there is more to send."""
        uploading = self._upload
        if uploading is None:
            # The broker has decided before its end: what waited behind it can go.
            self.pump()
            return self._upload is not None
        try:
            if not uploading.go_on(wire):
                return True
        except (OSError, ValueError) as problem:
            self._decide([self._uploaded(uploading.send)], unreadable(problem))
        else:
            self._uploaded(uploading.send)
        self.pump()
        return self._upload is not None

    def _uploaded(self, send: Send) -> Send:
        """All of it is on the wire, or no more of it will be."""
        self._upload = None
        self.outgoing.unconfirmed.append(self.outgoing.waiting[0])
        self.outgoing.waiting.popleft()
        return send

    def holds_back(self, transaction: Transaction) -> bool:
        """Whether sends of a transaction are not on the wire yet; those of the next one come after them."""
        self._drop_done()
        waiting = self.outgoing.waiting
        return bool(waiting) and waiting[0].transaction is transaction

    def _drop_done(self) -> None:
        """Forget what needs no sending, without credit too: a failover rolled its transaction back before it went."""
        if self._upload is None:
            self.outgoing.drop_done()

    def drop_sends(self, transaction: Transaction, error: JMSError) -> None:
        """Drop the waiting sends and uploads of a transaction that is rolled back."""
        if self._upload is not None and self._upload.send.transaction is transaction:
            self._upload.abort()
            self._upload = None
            self.channel.transport.post(self.pump)
        self._drop_done()
        waiting = self.outgoing.waiting
        while waiting and waiting[0].transaction is transaction:
            self.finish(waiting[0], error)
            waiting.popleft()

    # -- outcomes ----------------------------------------------------------------------------------------

    def on_disposition(self, event: Disposition) -> None:
        """The broker decided about a send."""
        context = event.context
        # In a run each is named by its place.
        send: Send = context[0][context[1]] if type(context) is tuple else context
        if self._upload is not None and self._upload.send is send:
            # Before its end: it wants no more of it.
            self._uploaded(send)
        outcome = event.outcome
        if isinstance(outcome, Transactional):
            outcome = outcome.outcome
        if type(outcome) is Accepted:
            error = None
        elif isinstance(outcome, Modified) and outcome.duplicate:
            # What the sender wanted is so: the message is stored, since it was before.
            error = None
            send.message.duplicate = True
            self.duplicates.append(send.message)
        else:
            error = refused(self.destination, outcome)
        self._decide([send], error)
        if self.closing:
            self._detach_when_done()

    def on_run(self, event: AcceptedRun) -> None:
        """The broker has stored sends that it was sent together."""
        self._decide(event.context[event.at : event.at + event.count], None)
        if self.closing:
            self._detach_when_done()

    def _decide(self, sends: list[Send], error: JMSError | None) -> None:
        if error is not None:
            for send in sends:
                _fail_transaction(send, error)
        done = self.outgoing.decided(sends, error)
        self._finish(done)
        self.outgoing.forget(done)

    def _finish(self, sends: list[Send]) -> None:
        """The last word on sends whose `error` says what became of them; later ones do not count."""
        finished = [send for send in sends if not send.done]
        if not finished:
            return
        completed = []
        for send in finished:
            send.done = True
            if send.completion is not None:
                completed.append(send)
            elif send.error is not None and not send.watched:
                self.channel.report(send.error)
        if completed:
            self.channel.complete(completed)
        self.channel.touch()

    def finish(self, send: Send, error: JMSError | None) -> None:
        """The last word on a send; later ones do not count."""
        if not send.done:
            send.error = error
            self._finish([send])

    def _refuse_waiting(self) -> None:
        error = self.error or JMSError(f"The producer for {self.destination} is closed; the message was not sent.")
        while self.outgoing.waiting:
            self._fail_send(self.outgoing.waiting[0], error)
            self.outgoing.waiting.popleft()

    def refuse_last(self) -> None:
        """The connection has ended: what came since it was told so is not sent."""
        error = self.error or JMSError("The connection is closed.")
        for send in self.outgoing.refused():
            self._fail_send(send, error)

    def _fail_send(self, send: Send, error: JMSError) -> None:
        _fail_transaction(send, error)
        self.finish(send, error)

    def close(self) -> None:
        """Close once everything is confirmed; the broker then forgets the numbers."""
        self.closing = True
        self._detach_when_done()

    def give_up(self, error: JMSError) -> None:
        """It closes, and the broker has not confirmed its sends for too long: who waits for them hears so."""
        if self.outgoing.under_way:
            self.ready = False
            self.fail(error)
            self.close()

    def _detach_when_done(self) -> None:
        self._drop_done()
        if self.outgoing.under_way:
            return
        if self.link is None:
            self._close_done()
        elif self.attached:
            self.attached = False
            self.link.close()

    def _close_done(self) -> None:
        self.closed = True
        self.channel.forget_sender(self)
        self.channel.touch()


def _fail_transaction(send: Send, error: JMSError) -> None:
    """Doom the transaction of a send: it cannot commit without it."""
    if send.transaction is not None:
        send.transaction.failure = send.transaction.failure or error
