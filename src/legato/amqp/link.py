"""Sessions and links of a `Connection`: flow, transfers and outcomes over the engine's objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cproton import ffi, lib

from legato import limits
from legato.amqp.link_base import Link
from legato.amqp.outcomes import ACCEPTED, Accepted, Outcome, Transactional
from legato.amqp.states import ACCEPTED_STATE, write_condition, write_outcome
from legato.amqp.terminus import Terminus

if TYPE_CHECKING:
    from legato.amqp.connection import Connection

__all__ = ["Link", "Receiver", "Sender", "Session", "links_limit_reached"]

_pn_delivery = lib.pn_delivery
_pn_delivery_settle = lib.pn_delivery_settle
_pn_delivery_update = lib.pn_delivery_update
_pn_link_advance = lib.pn_link_advance
_pn_link_send = lib.pn_link_send


class Session:
    """An AMQP session; `context` belongs to the caller."""

    def __init__(self, connection: Connection, pn_session: Any) -> None:
        self.connection = connection
        self.context: Any = None
        self.closed = connection.closing
        self.remote_ended = False
        self.partial_bytes = 0
        """Held in messages of which more frames are to come."""
        self._links: dict[Any, Link] = {}
        self._pn = pn_session

    @property
    def outgoing_bytes(self) -> int:
        """What was given to senders and is not on its way yet, because the peer's window is closed or nothing asked for
        data to send."""
        return 0 if self.closed else lib.pn_session_outgoing_bytes(self._pn)

    @property
    def links(self) -> list[Link]:
        """The links that are not freed yet, oldest first."""
        return list(self._links.values())

    def open(self) -> None:
        """Send Begin: a server's answer to `SessionBegan`."""
        if not self.closed:
            lib.pn_session_set_incoming_capacity(self._pn, self.connection.session_capacity_bytes)
            lib.pn_session_open(self._pn)

    def close(self, condition: str = "", description: str = "") -> None:
        """Send End; the session's links and deliveries are gone with it. Does nothing the second time."""
        if self.closed:
            return
        self.closed = True
        write_condition(lib.pn_session_condition(self._pn), condition, description)
        lib.pn_session_close(self._pn)
        for link in self.links:
            link._forget()
        if self.remote_ended:
            self._free()

    def sender(
        self,
        name: str,
        *,
        target: Terminus,
        source: Terminus | None = None,
        properties: dict[str, Any] | None = None,
        snd_settle_mode: int = 0,
    ) -> Sender:
        """Attach a sender, for a client.

        Args:
            snd_settle_mode: 0 unsettled, 1 settled, 2 mixed (AMQP 2.8.2).
        """
        pn_link = None if self.closed else lib.pn_sender(self._pn, name.encode("utf-8"))
        link = Sender(self, name, pn_link)
        link._attach(source or Terminus(), target, properties, snd_settle_mode, 0)
        return link

    def receiver(
        self,
        name: str,
        *,
        source: Terminus,
        target: Terminus | None = None,
        properties: dict[str, Any] | None = None,
        snd_settle_mode: int = 0,
        rcv_settle_mode: int = 0,
    ) -> Receiver:
        """Attach a receiver, for a client; it has no credit yet.

        Args:
            snd_settle_mode: 0 unsettled, 1 settled, 2 mixed (AMQP 2.8.2).
            rcv_settle_mode: 0 first, 1 second (AMQP 2.8.3).
        """
        pn_link = None if self.closed else lib.pn_receiver(self._pn, name.encode("utf-8"))
        link = Receiver(self, name, pn_link)
        link._attach(source, target or Terminus(), properties, snd_settle_mode, rcv_settle_mode)
        return link

    def _free(self) -> None:
        for link in self.links:
            link._forget()
            self.connection._links.pop(link._pn, None)
        self._links.clear()
        self.closed = True
        if self.connection._sessions.pop(self._pn, None) is not None:
            lib.pn_session_free(self._pn)


class Sender(Link):
    """A link over which we send.

    Attributes:
        credit: messages that may be sent now; sending more only queues them in memory.
        draining: the peer wants the credit used up or given back: send what there is, then call `drained`.
    """

    def __init__(self, session: Session, name: str, pn_link: Any) -> None:
        super().__init__(session, name, pn_link)
        self.draining = False
        self.reserved = 0
        """Of the peer's credit, what is for messages that are begun, or wait in the shell for that to end."""
        self._begun_delivery: Any = None
        self._begun_settled = False
        self._tag_buffer = ffi.new("char[]", 32)
        self._tag_view = ffi.buffer(self._tag_buffer)
        self._tag_span = ffi.new("pn_bytes_t *", (8, self._tag_buffer))
        self._tag = self._tag_span[0]

    def send(
        self,
        data: bytes,
        tag: bytes,
        context: Any = None,
        *,
        settled: bool = False,
        txn_id: bytes | None = None,
    ) -> int:
        """Send one message.

        Args:
            data: the encoded message.
            tag: at most 32 bytes (AMQP 2.8.7).
            context: comes back in every `Disposition` of this delivery.
            settled: nothing will be heard of it any more.
            txn_id: the transaction it belongs to (AMQP 4.5.8).

        Returns:
            A handle for `confirm` and `settle`; 0 if settled or the link is closed.
        """
        if self.closed:
            return 0
        size = len(tag)
        if size == 8:
            self._tag_view[0:8] = tag
            delivery = _pn_delivery(self._pn, self._tag)
        else:
            delivery = _pn_delivery(self._pn, (size, ffi.from_buffer(tag)))
        if txn_id is not None:
            write_outcome(delivery, Transactional(txn_id))
        pn = self._pn
        _pn_link_send(pn, data, len(data))
        _pn_link_advance(pn)
        self.credit -= 1
        if settled:
            _pn_delivery_settle(delivery)
            return 0
        self._last_handle = handle = self._last_handle + 1
        self._unsettled[handle] = delivery
        self._deliveries[delivery] = (self, handle, context)
        return handle

    # -- in parts ------------------------------------------------------------------------------------------------

    def begin(self, tag: bytes, context: Any = None, *, settled: bool = False, txn_id: bytes | None = None) -> int:
        """Begin a message that goes out in parts: `push` each, then `finish`; until then nothing else may be sent.

        Args:
            tag, context, settled, txn_id: as for `send`.

        Returns:
            A handle for `confirm` and `settle`; 0 if the link is closed.
        """
        if self.closed:
            return 0
        self._begun_delivery = delivery = _pn_delivery(self._pn, (len(tag), ffi.from_buffer(tag)))
        self._begun_settled = settled
        if txn_id is not None:
            write_outcome(delivery, Transactional(txn_id))
        self.credit -= 1
        self.reserved += 1
        self._begun = self._last_handle = handle = self._last_handle + 1
        if not settled:
            self._unsettled[handle] = delivery
            self._deliveries[delivery] = (self, handle, context)
        return handle

    def push(self, data: bytes) -> bool:
        """Send more of the message begun; False if it has ended meanwhile: the peer settled it, or the link closed."""
        if not self._begun:
            return False
        _pn_link_send(self._pn, data, len(data))
        return True

    def finish(self) -> bool:
        """That was all of the message begun; False as for `push`."""
        if not self._begun:
            return False
        self._begun = 0
        self.reserved -= 1
        _pn_link_advance(self._pn)
        if self._begun_settled:
            _pn_delivery_settle(self._begun_delivery)
        return True

    def abort(self) -> None:
        """What was begun does not come after all: the receiver drops what it has of it (AMQP 2.7.5)."""
        if self._begun:
            self._unsettled.pop(self._begun, None)
            self._deliveries.pop(self._begun_delivery, None)
            self._abort()

    def _abort(self) -> None:
        self._begun = 0
        self.reserved -= 1
        lib.pn_delivery_abort(self._begun_delivery)

    def confirm(self, handle: int, outcome: Outcome | None = None) -> None:
        """Settle our side of a delivery whose receiver waits for it; nothing if it is settled already.

        Args:
            outcome: the state to settle with, if any.
        """
        delivery = self._unsettled.pop(handle, None)
        if delivery is None:
            return
        self._reported.pop(handle, None)
        del self._deliveries[delivery]
        if outcome is not None:
            write_outcome(delivery, outcome)
        if handle == self._begun:
            self._abort()
        else:
            _pn_delivery_settle(delivery)

    settle = confirm

    def confirm_all(self, handles: list[int]) -> None:
        """`confirm` as accepted, for many at once."""
        take = self._unsettled.pop
        forget = self._deliveries.pop
        unreport = self._reported.pop
        for handle in handles:
            unreport(handle, None)
            delivery = take(handle, None)
            if delivery is not None:
                forget(delivery, None)
                _pn_delivery_update(delivery, ACCEPTED_STATE)
                _pn_delivery_settle(delivery)

    def drained(self) -> int:
        """Give back the credit left over; returns how much, 0 unless the peer drains."""
        if self.closed:
            return 0
        given_back: int = lib.pn_link_drained(self._pn)
        self.credit = lib.pn_link_credit(self._pn)
        return given_back


class Receiver(Link):
    """A link over which we receive; the shell grants `credit` and settles what came."""

    def __init__(self, session: Session, name: str, pn_link: Any) -> None:
        super().__init__(session, name, pn_link)
        self.max_message_bytes = session.connection.settings.max_message_bytes
        self.streams = False
        """Whether messages of more than `limits.LARGE_MESSAGE_BYTES` are reported in parts, as they come."""
        self.reads_tags = True
        """Whether `Transfer.tag` is wanted; reading it costs as much as the rest of a small transfer's bookkeeping."""
        self._parts: list[bytes] = []
        self._part_bytes = 0
        self._streamed_bytes = 0
        """Of the message that is reported in parts, what was; 0 if none is."""
        self._streamed_tag = b""
        self._drain_asked = False

    @property
    def draining(self) -> bool:
        """We asked the peer to use up or give back its credit, and it has not done so yet."""
        return self._drain_asked and self.credit > 0

    @property
    def queued(self) -> int:
        """Deliveries begun that are not read to their end."""
        return 0 if self.closed else lib.pn_link_queued(self._pn)

    def add_credit(self, messages: int) -> None:
        """Allow the peer `messages` more; ends a drain."""
        if not self.closed and messages > 0:
            self._drain_asked = False
            self.credit += messages
            lib.pn_link_flow(self._pn, messages)

    def drain(self, messages: int = 0) -> bool:
        """Allow `messages` more and ask for the rest back; a `Flow` tells when it came, unless messages used it up.

        Returns:
            False if there is no credit to drain, so that nothing is to be waited for (AMQP.md C2.3).
        """
        if self.closed or self.credit + messages <= 0:
            return False
        self._drain_asked = True
        self.credit += messages
        lib.pn_link_drain(self._pn, messages)
        return True

    def settle(self, delivery: int, outcome: Outcome | None = ACCEPTED) -> None:
        """State `outcome` and settle; nothing if the delivery is unknown or settled."""
        pn_delivery = self._unsettled.pop(delivery, None)
        if pn_delivery is None:
            return
        self._deliveries.pop(pn_delivery, None)
        if type(outcome) is Accepted:
            _pn_delivery_update(pn_delivery, ACCEPTED_STATE)
        elif outcome is not None:
            write_outcome(pn_delivery, outcome)
        _pn_delivery_settle(pn_delivery)

    def accept_all(self, deliveries: list[int]) -> None:
        """`settle` as accepted, for many at once."""
        take = self._unsettled.pop
        forget = self._deliveries.pop
        for delivery in deliveries:
            pn_delivery = take(delivery, None)
            if pn_delivery is not None:
                forget(pn_delivery, None)
                _pn_delivery_update(pn_delivery, ACCEPTED_STATE)
                _pn_delivery_settle(pn_delivery)

    def update(self, delivery: int, outcome: Outcome) -> None:
        """State `outcome` without settling: a terminal one asks the sender for a confirmation (AMQP 2.6.12)."""
        pn_delivery = self._unsettled.get(delivery)
        if pn_delivery is not None:
            self._deliveries[pn_delivery] = (self, delivery, delivery)
            write_outcome(pn_delivery, outcome)

    def _limit_messages(self, max_message_bytes: int | None) -> None:
        if max_message_bytes is not None:
            self.max_message_bytes = max_message_bytes
        lib.pn_link_set_max_message_size(self._pn, self.max_message_bytes)

    def _drop_parts(self) -> None:
        self.session.partial_bytes -= self._part_bytes
        self._parts.clear()
        self._part_bytes = self._streamed_bytes = 0

    def _forget(self) -> None:
        self._drop_parts()
        super()._forget()


def links_limit_reached(session: Session) -> bool:
    """Whether the peer may attach no more links to `session`."""
    return len(session._links) >= limits.MAX_LINKS_PER_SESSION
