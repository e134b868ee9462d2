"""Hot path: turns the engine's deliveries and credit into events."""

from __future__ import annotations

from typing import Any

from cproton import ffi, lib

from legato import limits
from legato.amqp.engine.bypass import MARK_AT, MARK_END, Bypass
from legato.amqp.engine.events import (
    Disposition,
    Event,
    Flow,
    OutcomeLost,
    Transfer,
    TransferAborted,
    TransferLost,
    TransferPart,
)
from legato.amqp.engine.link import Link, Receiver, Sender
from legato.amqp.engine.outcomes import ACCEPTED, Outcome, Transactional
from legato.amqp.engine.settings import Settings
from legato.amqp.engine.states import ACCEPTED_STATE, TRANSACTIONAL_STATE, read_outcome
from legato.errors import ProtocolError

Known = dict[Any, tuple[Link, int, Any]]
"""Unsettled deliveries of which more will be heard, by their pointer: link, handle, and the context to report. Every
entry goes when its delivery is settled or its link is freed, since the engine uses the same memory again."""

TAG_BYTES_MAX = 32
"""AMQP 2.8.7."""
_ABORTED = -11
"""`PN_ABORTED`, which the bindings leave out."""

_delivery_link = lib.pn_delivery_link
_delivery_partial = lib.pn_delivery_partial
_delivery_pending = lib.pn_delivery_pending
_delivery_remote_state = lib.pn_delivery_remote_state
_delivery_settle = lib.pn_delivery_settle
_delivery_settled = lib.pn_delivery_settled
_delivery_tag = lib.pn_delivery_tag
_link_advance = lib.pn_link_advance
_link_recv = lib.pn_link_recv
_unpack = ffi.unpack
_new_uncleared = ffi.new_allocator(should_clear_after_alloc=False)


def _txn_id(delivery: Any) -> bytes | None:
    """The transaction that a message is sent in."""
    state = _delivery_remote_state(delivery)
    outcome = read_outcome(delivery, state) if state == TRANSACTIONAL_STATE else None
    return outcome.txn_id if isinstance(outcome, Transactional) else None


def _lose(link: Receiver, delivery: Any, events: list[Event]) -> None:
    txn_id = _txn_id(delivery)
    if txn_id is not None:
        events.append(TransferLost(link, txn_id))
    _delivery_settle(delivery)


def refuse_size(link: Receiver, delivery: Any, events: list[Event]) -> None:
    """A message is larger than its link allows."""
    link.close("amqp:link:message-size-exceeded", f"a message may have at most {link.max_message_bytes} bytes")
    _lose(link, delivery, events)


class Deliveries:
    """A connection's deliveries.

    Args:
        links: the connection's, by pointer.
        known: the connection's unsettled deliveries, by pointer.
        settings: for what a peer may send.
        bypass: knows the bodies that have passed the engine by.
    """

    def __init__(self, links: dict[Any, Link], known: Known, settings: Settings, bypass: Bypass | None = None) -> None:
        self._links = links
        self._bypass = bypass
        self._known = known
        self._unfinished_bytes_max = max(
            settings.session_window_bytes, min(settings.max_message_bytes, limits.UNFINISHED_BYTES_MAX)
        )
        self._buffer_bytes = 4096
        self._buffer = _new_uncleared("char[]", self._buffer_bytes)

    def on_transfer(self, delivery: Any, events: list[Event]) -> None:
        """A delivery can be read: part of a message, or the whole of one."""
        link = self._links.get(_delivery_link(delivery))
        if link.__class__ is not Receiver:
            return
        pn_link = link._pn
        size = _delivery_pending(delivery)
        if size > self._buffer_bytes:
            self._buffer_bytes = size
            self._buffer = _new_uncleared("char[]", size)
        taken = _link_recv(pn_link, self._buffer, size)
        if link.closed:
            _lose(link, delivery, events)
            return
        if taken == _ABORTED:
            self._drop_aborted(link, delivery, events)
            return
        data = _unpack(self._buffer, taken) if taken > 0 else b""
        if self._bypass is not None and data[MARK_AT:MARK_END] == self._bypass.mark:
            data = self._bypass.whole(data)
        if _delivery_partial(delivery) or link._parts:
            whole = self._assemble(link, delivery, data, events)
            if whole is None:
                return
            data = whole
        elif len(data) > link.max_message_bytes:
            refuse_size(link, delivery, events)
            return
        if link.credit <= 0:
            self._refuse_transfer(link, delivery, events)
            return
        tag = _delivery_tag(delivery)
        if tag.size > TAG_BYTES_MAX:
            link.close("amqp:invalid-field", f"a delivery tag has at most {TAG_BYTES_MAX} bytes")
            _lose(link, delivery, events)
            return
        tag_bytes = _unpack(tag.start, tag.size) if link.reads_tags and tag.size else b""
        state = _delivery_remote_state(delivery)
        txn_id = None
        if state == TRANSACTIONAL_STATE:
            outcome = read_outcome(delivery, state)
            txn_id = outcome.txn_id if isinstance(outcome, Transactional) else None
        settled = _delivery_settled(delivery)
        _link_advance(pn_link)
        self._report(link, delivery, data, tag_bytes, txn_id, settled, events)

    def on_message(
        self,
        link: Receiver,
        delivery: Any,
        data: bytes,
        tag: bytes,
        txn_id: bytes | None,
        settled: bool,
        events: list[Event],
    ) -> None:
        """As `on_transfer`, of a whole message that was read already."""
        if link.closed:
            if txn_id is not None:
                events.append(TransferLost(link, txn_id))
            _delivery_settle(delivery)
            return
        if self._bypass is not None and data[MARK_AT:MARK_END] == self._bypass.mark:
            data = self._bypass.whole(data)
        if len(data) > link.max_message_bytes:
            refuse_size(link, delivery, events)
            return
        if link.credit <= 0:
            self._refuse_transfer(link, delivery, events)
            return
        self._report(link, delivery, data, tag if link.reads_tags else b"", txn_id, settled, events)

    @staticmethod
    def _report(
        link: Receiver,
        delivery: Any,
        data: bytes,
        tag: bytes,
        txn_id: bytes | None,
        settled: bool,
        events: list[Event],
    ) -> None:
        """A whole message is the shell's: it uses credit, and has a handle until it is settled."""
        link.credit -= 1
        link._last_handle = handle = link._last_handle + 1
        if settled:
            _delivery_settle(delivery)
        else:
            link._unsettled[handle] = delivery
        events.append(Transfer(link, handle, tag, data, settled, txn_id))

    # -- messages of several frames ------------------------------------------------------------------------------

    def _assemble(self, link: Receiver, delivery: Any, data: bytes, events: list[Event]) -> bytes | None:
        """The whole of a message with its last part; None before, or if its parts are reported one by one."""
        if link._streamed_bytes:
            self._go_on(link, delivery, data, events)
            return None
        link._hold_part(data)
        link._part_bytes += len(data)
        session = link.session
        session.partial_bytes += len(data)
        if link._part_bytes > link.max_message_bytes:
            refuse_size(link, delivery, events)
            return None
        if link.credit <= 0:
            self._refuse_transfer(link, delivery, events)
            return None
        if session.partial_bytes > self._unfinished_bytes_max:
            link.close("amqp:resource-limit-exceeded", "too much is held in unfinished messages")
            _lose(link, delivery, events)
            return None
        if not _delivery_partial(delivery):
            whole = b"".join(link._parts)
            link._drop_parts()
            return whole
        if link.streams and link._part_bytes > limits.LARGE_MESSAGE_BYTES:
            self._begin_stream(link, delivery, events)
        return None

    def _begin_stream(self, link: Receiver, delivery: Any, events: list[Event]) -> None:
        """The message is a large one: from here on its parts are reported as they come."""
        data = b"".join(link._parts)
        link._drop_parts()
        # Not empty, so that the last part is not taken for a whole message.
        link._hold_part(b"")
        link._streamed_bytes = len(data)
        link._last_handle += 1
        tag = _delivery_tag(delivery)
        if tag.size > TAG_BYTES_MAX:
            link.close("amqp:invalid-field", f"a delivery tag has at most {TAG_BYTES_MAX} bytes")
            _lose(link, delivery, events)
            return
        link._streamed_tag = _unpack(tag.start, tag.size) if tag.size else b""
        txn_id = _txn_id(delivery)
        events.append(TransferPart(link, link._last_handle, link._streamed_tag, data, True, False, False, txn_id))

    def _go_on(self, link: Receiver, delivery: Any, data: bytes, events: list[Event]) -> None:
        link._streamed_bytes += len(data)
        if link._streamed_bytes > link.max_message_bytes:
            refuse_size(link, delivery, events)
            return
        handle, tag = link._last_handle, link._streamed_tag
        if _delivery_partial(delivery):
            if data:
                events.append(TransferPart(link, handle, tag, data, False, False, False, _txn_id(delivery)))
            return
        link._drop_parts()
        txn_id = _txn_id(delivery)
        settled = _delivery_settled(delivery)
        link.credit -= 1
        _link_advance(link._pn)
        if settled:
            _delivery_settle(delivery)
        else:
            link._unsettled[handle] = delivery
        events.append(TransferPart(link, handle, tag, data, False, True, settled, txn_id))

    def _drop_aborted(self, link: Receiver, delivery: Any, events: list[Event]) -> None:
        tag = _delivery_tag(delivery)
        events.append(TransferAborted(link, _unpack(tag.start, tag.size) if tag.size else b""))
        link._drop_parts()
        link.credit -= 1
        _delivery_settle(delivery)

    def _refuse_transfer(self, link: Receiver, delivery: Any, events: list[Event]) -> None:
        link.close("amqp:link:transfer-limit-exceeded", "a message came without credit")
        _lose(link, delivery, events)

    def on_disposition(self, delivery: Any, known: tuple[Link, int, Any], events: list[Event]) -> None:
        """A delivery that we know changed; the engine reports several changes as one, so look at all (amqp.md C7)."""
        link = known[0]
        state = _delivery_remote_state(delivery)
        settled = _delivery_settled(delivery)
        if not settled and (not state or isinstance(link, Receiver)):
            return
        outcome = ACCEPTED if state == ACCEPTED_STATE else read_outcome(delivery, state)
        self.on_outcome(delivery, known, outcome, settled, events)

    def on_outcome(
        self, delivery: Any, known: tuple[Link, int, Any], outcome: Outcome | None, settled: bool, events: list[Event]
    ) -> None:
        """The peer stated an outcome of a delivery that we know, or settled it, or both."""
        link, handle, context = known
        if not settled:
            # Two dispositions in one read are two events that both see the second: report that once.
            if link._reported.get(handle) == outcome:
                return
            link._reported[handle] = outcome
        if settled:
            del self._known[delivery]
            del link._unsettled[handle]
            if link._reported:
                link._reported.pop(handle, None)
            if link._begun == handle:
                link._abort()
            else:
                _delivery_settle(delivery)
        events.append(Disposition(link, context, outcome, settled, handle))

    def on_stray(self, delivery: Any, events: list[Event]) -> None:
        """A delivery that is none of ours any more changed: harmless, unless a transaction counts on it.

        Raises:
            ProtocolError: it is a transfer to a link of ours that sends.
        """
        pn_link = _delivery_link(delivery)
        if not lib.pn_link_is_sender(pn_link):
            return
        # The engine takes it for one of ours that is to be sent. Of what the peer may speak of, all has been sent.
        if lib.pn_link_current(pn_link) == delivery or _delivery_pending(delivery):
            if self._bypass is not None:
                self._bypass.is_misled = True
            raise ProtocolError("a transfer came over a link that sends", "amqp:not-allowed")
        link = self._links.get(pn_link)
        txn_id = _txn_id(delivery) if link is not None and link.closed else None
        if txn_id is not None:
            events.append(OutcomeLost(txn_id))

    def on_flow(self, pn_link: Any, events: list[Event]) -> None:
        """Credit or drain of a link may have changed."""
        link = self._links.get(pn_link)
        if link is None or link.closed or link.suspended:
            return
        credit = lib.pn_link_credit(pn_link)
        if isinstance(link, Sender):
            credit -= link.reserved
            draining = lib.pn_link_get_drain(pn_link)
            if draining or credit != link.credit or draining != link.draining:
                link.credit = credit
                link.draining = draining
                events.append(Flow(link))
        elif isinstance(link, Receiver):
            link.credit = credit
            if link._drain_asked and lib.pn_link_drained(pn_link):
                link._drain_asked = False
                events.append(Flow(link))
