"""Base of senders and receivers: attach, detach, and free the engine's link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from cproton import lib

from legato.amqp.engine import batch
from legato.amqp.engine.bypass import Bypass
from legato.amqp.engine.outcomes import Outcome
from legato.amqp.engine.pndata import kept_bytes, read_map, write_map
from legato.amqp.engine.settings import Settings
from legato.amqp.engine.states import ACCEPTED_STATE, write_condition
from legato.amqp.engine.terminus import Terminus, read_terminus, terminus_kept_bytes, write_terminus

if TYPE_CHECKING:
    from legato.amqp.engine.link import Session

_FIRST = 0
_pn_delivery_settle = lib.pn_delivery_settle
_pn_delivery_update = lib.pn_delivery_update


class LinkConnection(Protocol):
    """A `Connection`, as its sessions and links see it.

    Attributes:
        settings: what its Open says and what it allows the peer.
        closing: its sessions and links do nothing any more.
        session_capacity_bytes: what the peer may send in a session without hearing from us.
        remembers_ended_links: whether outcomes are wanted for deliveries of links that have ended.
    """

    settings: Settings
    closing: bool
    session_capacity_bytes: int
    remembers_ended_links: bool
    _sessions: dict[Any, Session]
    _links: dict[Any, Link]
    _links_kept_bytes: int
    _deliveries: dict[Any, tuple[Link, int, Any]]
    _run_deliveries: int
    _unfinished: int
    _opened: bool
    _batches: bool
    _bypass: Bypass | None

    @property
    def remote_max_frame_bytes(self) -> int:
        """The largest frame that the peer takes."""

    def _produce(self) -> None:
        """Have the engine make bytes of what it was told."""


class Link:
    """Base of senders and receivers; `context` belongs to the caller.

    Once `closed` is set (by `close`, `detach`, `refuse`, or the end of session or connection) every call does nothing:
    the engine reuses the memory of deliveries and links.
    """

    def __init__(self, session: Session, name: str, pn_link: Any) -> None:
        self.session = session
        self.connection = session.connection
        self.name = name
        self.context: Any = None
        self.closed = session.closed
        self.suspended = False
        """Detached, and neither closed nor forgotten: what is unsettled on it can still be settled."""
        self.remote_detached = False
        self.credit = 0
        """For a sender: messages that may still be sent. For a receiver: messages that may still come."""
        self.kept_bytes = 0
        """What its attach takes in memory, about."""
        self._pn = pn_link
        self._unsettled: dict[int, Any] = {}
        self._reported: dict[int, Outcome | None] = {}
        """Outcomes that a `Disposition` has told of and that the peer has not settled, by handle."""
        self.given_up = 0
        """Deliveries that were not settled when the link ended here."""
        self._last_handle = 0
        self._begun = 0
        """The handle of the message that goes out in parts; 0 if none does."""
        self._deliveries = session.connection._deliveries
        self.remote_source = Terminus()
        self.remote_target = Terminus()
        self.remote_properties: dict[str, Any] = {}
        self.remote_snd_settle_mode = 2
        self.remote_rcv_settle_mode = 0
        self.remote_max_message_bytes = 0
        if not self.closed:
            session._links[pn_link] = self
            session.connection._links[pn_link] = self

    @property
    def unsettled(self) -> int:
        """Deliveries that we have not settled."""
        return len(self._unsettled)

    def accept(
        self,
        *,
        source: Terminus | None = None,
        target: Terminus | None = None,
        properties: dict[str, Any] | None = None,
        max_message_bytes: int | None = None,
    ) -> None:
        """Answer the peer's attach, echoing its termini and settle modes where nothing else is given.

        A receiver always settles first, and says so (AMQP 2.8.3): it does not wait for the sender to settle.

        Args:
            max_message_bytes: the most a message may have, for a receiver; default: the connection's setting.
        """
        if self.closed:
            return
        pn = self._pn
        if source is None:
            lib.pn_terminus_copy(lib.pn_link_source(pn), lib.pn_link_remote_source(pn))
        else:
            write_terminus(lib.pn_link_source(pn), source, "source")
        if target is None:
            lib.pn_terminus_copy(lib.pn_link_target(pn), lib.pn_link_remote_target(pn))
        else:
            write_terminus(lib.pn_link_target(pn), target, "target")
        if properties:
            write_map(lib.pn_link_properties(pn), properties)
        lib.pn_link_set_snd_settle_mode(pn, self.remote_snd_settle_mode)
        is_sender = lib.pn_link_is_sender(pn)
        lib.pn_link_set_rcv_settle_mode(pn, self.remote_rcv_settle_mode if is_sender else _FIRST)
        self._limit_messages(max_message_bytes)
        lib.pn_link_open(pn)

    def refuse(self, condition: str, description: str, info: dict[str, Any] | None = None) -> None:
        """Answer the peer's attach with a null terminus and a detach that says why (AMQP 2.6.3)."""
        if self.closed:
            return
        pn = self._pn
        if lib.pn_link_is_sender(pn):
            lib.pn_terminus_set_type(lib.pn_link_source(pn), lib.PN_UNSPECIFIED)
            lib.pn_terminus_copy(lib.pn_link_target(pn), lib.pn_link_remote_target(pn))
        else:
            lib.pn_terminus_set_type(lib.pn_link_target(pn), lib.PN_UNSPECIFIED)
            lib.pn_terminus_copy(lib.pn_link_source(pn), lib.pn_link_remote_source(pn))
        lib.pn_link_open(pn)
        self.close(condition, description, info)

    def close(self, condition: str = "", description: str = "", info: dict[str, Any] | None = None) -> None:
        """Detach for good, with an error if `condition` is given; unsettled deliveries are forgotten."""
        if self.closed:
            return
        self._forget()
        write_condition(lib.pn_link_condition(self._pn), condition, description, info)
        lib.pn_link_close(self._pn)
        self.connection._produce()
        if self.remote_detached:
            self._retire()

    def detach(self) -> None:
        """Detach without closing: a durable subscription stays (AMQP 2.6.4)."""
        if self.closed:
            return
        self._forget()
        lib.pn_link_detach(self._pn)
        self.connection._produce()
        if self.remote_detached:
            self._retire()

    def suspend(self) -> None:
        """Answer a detach that does not close, and keep what is unsettled (AMQP 2.6.4): what the peer says of it is
        reported, and can be answered, until `close`."""
        if self.closed or self.suspended:
            return
        self.suspended = True
        self.credit = 0
        lib.pn_link_detach(self._pn)
        self.connection._produce()

    def _accept_all(self, handles: list[int]) -> None:
        """Accept and settle what is not settled yet."""
        take = self._unsettled.pop
        forget = self._deliveries.pop
        found = [delivery for handle in handles if (delivery := take(handle, None)) is not None]
        for delivery in found:
            forget(delivery, None)
        if self.connection._batches:
            batch.settle_all(found, ACCEPTED_STATE)
            return
        for delivery in found:
            _pn_delivery_update(delivery, ACCEPTED_STATE)
            _pn_delivery_settle(delivery)

    def _attach(
        self,
        source: Terminus,
        target: Terminus,
        properties: dict[str, Any] | None,
        snd_settle_mode: int,
        rcv_settle_mode: int,
    ) -> None:
        if self.closed:
            return
        pn = self._pn
        write_terminus(lib.pn_link_source(pn), source, "source")
        write_terminus(lib.pn_link_target(pn), target, "target")
        if properties:
            write_map(lib.pn_link_properties(pn), properties)
        lib.pn_link_set_snd_settle_mode(pn, snd_settle_mode)
        lib.pn_link_set_rcv_settle_mode(pn, rcv_settle_mode)
        self._limit_messages(None)
        lib.pn_link_open(pn)

    def _limit_messages(self, max_message_bytes: int | None) -> None:
        """A sender has no limit of its own to tell."""

    def _abort(self) -> None:
        """Give up what is begun; only senders begin anything."""

    def _read_remote(self) -> None:
        pn = self._pn
        self.remote_source = read_terminus(lib.pn_link_remote_source(pn))
        self.remote_target = read_terminus(lib.pn_link_remote_target(pn))
        self.remote_properties = read_map(lib.pn_link_remote_properties(pn))
        before = self.kept_bytes
        self.kept_bytes = (
            2 * len(self.name)
            + terminus_kept_bytes(lib.pn_link_remote_source(pn), self.remote_source)
            + terminus_kept_bytes(lib.pn_link_remote_target(pn), self.remote_target)
            + kept_bytes(lib.pn_link_remote_properties(pn))
        )
        self.connection._links_kept_bytes += self.kept_bytes - before
        self.remote_snd_settle_mode = lib.pn_link_remote_snd_settle_mode(pn)
        self.remote_rcv_settle_mode = lib.pn_link_remote_rcv_settle_mode(pn)
        self.remote_max_message_bytes = lib.pn_link_remote_max_message_size(pn)

    def _forget(self) -> None:
        """Make every later call harmless: the engine's memory is about to be reused."""
        self.closed = True
        self.credit = 0
        self._begun = 0
        self.given_up += len(self._unsettled)
        deliveries = self._deliveries
        for delivery in self._unsettled.values():
            deliveries.pop(delivery, None)
        self._unsettled.clear()
        self._reported.clear()

    def _retire(self) -> None:
        """Both sides have ended the link."""
        if self.given_up and self.connection.remembers_ended_links and lib.pn_link_is_sender(self._pn):
            self.session._remember(self)
        else:
            self._free()

    def _free(self) -> None:
        self._forget()
        if self.connection._bypass is not None:
            self.connection._bypass.forget(self)
        self.session._links.pop(self._pn, None)
        if self.connection._links.pop(self._pn, None) is not None:
            self.connection._links_kept_bytes -= self.kept_bytes
            lib.pn_link_free(self._pn)
