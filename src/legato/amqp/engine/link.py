"""Sessions of a `Connection`, and the links in them."""

from __future__ import annotations

from collections import deque
from typing import Any

from cproton import lib

from legato import limits
from legato.amqp.engine.link_base import Link, LinkConnection
from legato.amqp.engine.receiver import Receiver
from legato.amqp.engine.sender import Sender
from legato.amqp.engine.states import write_condition
from legato.amqp.engine.terminus import Terminus

__all__ = ["Link", "Receiver", "Sender", "Session", "links_limit_reached"]


class Session:
    """An AMQP session; `context` belongs to the caller."""

    def __init__(self, connection: LinkConnection, pn_session: Any) -> None:
        self.connection = connection
        self.context: Any = None
        self.closed = connection.closing
        self.remote_ended = False
        self.partial_bytes = 0
        """Held in messages of which more frames are to come."""
        self.apart_bytes = 0
        """Of what was given to senders and is not on its way, what passes the engine by."""
        self._links: dict[Any, Link] = {}
        self._ended: deque[Link] = deque()
        """Links that have ended, the first first, and are remembered for what may still be said of their deliveries."""
        self._given_up = 0
        """The deliveries of these."""
        self._pn = pn_session

    @property
    def outgoing_bytes(self) -> int:
        """What was given to senders and is not on its way yet, because the peer's window is closed or nothing asked for
        data to send."""
        return 0 if self.closed else lib.pn_session_outgoing_bytes(self._pn) + self.apart_bytes

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
        # The engine gives the channel's number to the next session at once, and would take the Begin that answers this
        # one for the answer to that.
        if not lib.pn_session_state(self._pn) & lib.PN_REMOTE_UNINIT:
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
        rcv_settle_mode: int = 0,
    ) -> Sender:
        """Attach a sender, for a client.

        Args:
            snd_settle_mode: 0 unsettled, 1 settled, 2 mixed (AMQP 2.8.2).
            rcv_settle_mode: what is asked of the receiver: 0 first, 1 second (AMQP 2.8.3).
        """
        pn_link = None if self.closed else lib.pn_sender(self._pn, name.encode("utf-8"))
        link = Sender(self, name, pn_link)
        link._attach(source or Terminus(), target, properties, snd_settle_mode, rcv_settle_mode)
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

    def _remember(self, link: Link) -> None:
        """Keep an ended link in the engine, so that outcomes for its deliveries are seen; free the oldest ones."""
        ended = self._ended
        ended.append(link)
        self._given_up += link.given_up
        while len(ended) > limits.ENDED_LINKS_REMEMBERED or self._given_up > limits.ENDED_DELIVERIES_REMEMBERED:
            oldest = ended.popleft()
            self._given_up -= oldest.given_up
            oldest._free()

    def _free(self) -> None:
        for link in self.links:
            link._forget()
            if self.connection._bypass is not None:
                self.connection._bypass.forget(link)
            if self.connection._links.pop(link._pn, None) is not None:
                self.connection._links_kept_bytes -= link.kept_bytes
        self._links.clear()
        self._ended.clear()
        self.closed = True
        if self.connection._sessions.pop(self._pn, None) is not None:
            lib.pn_session_free(self._pn)


def links_limit_reached(session: Session) -> bool:
    """Whether the peer may attach no more links to `session`."""
    return len(session._links) - len(session._ended) >= limits.MAX_LINKS_PER_SESSION
