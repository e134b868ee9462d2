"""Protocols of the two objects that nearly every part of the server is given: the shell and a peer.

A part knows them by what it uses of them. What they are is in `process.service` and `connections.client_connection`,
which import the parts; so no part imports these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from legato.amqp.engine.connection import Connection
from legato.amqp.engine.events import Event
from legato.clock import Clock
from legato.core.consumers import Browser, Consumer
from legato.errors import StoreError
from legato.server.client_description import ClientDescription


class Rights(Protocol):
    """What a user may do: see `access.permissions.Rights`."""

    def may(self, operation: str, address: str, topic: bool | None = None) -> bool:
        """Whether an operation on an address is allowed."""

    def demand(self, operation: str, address: str, topic: bool | None = None) -> None:
        """See that an operation on an address is allowed; raises `Denied` if it is not."""

    def demand_view(self) -> None:
        """See that the broker may be looked at; raises `Denied` if it may not."""


class Peer(Protocol):
    """One client's connection, from accept to its end.

    Attributes:
        container: the container id of its open, which is the client id in JMS.
        name: address and port, for the log.
        product: what its open says that the client is.
        user: who logged in.
        realm: what is put before the names that its client gives to what is its own, so that nobody else has them.
        rights: what it may do; None if everything.
        proof: what its login proved besides the name; see `identity.mechanisms.Proof`.
        origin: where it comes from; see `identity.origin.Origin`.
        holdings: what counts against its limits; see `limits.accounts.Holdings`.
        client: what its open says of itself.
        since_us: when it was accepted.
        receivers: what it receives with, as the broker knows it.
        links: its links that are attached.
        only_listens: it attached links for heartbeats and never another one; None if it attached none at all.
        opened: its open was answered.
        ended: nothing more is read from it or written to it.
        is_cut_off: what it has is taken from the broker, in slices; what it sent does not count any more.
        paused: its socket cannot take more now.
        slow_consumers: how many of its consumers are slow; see `links.timeouts`.
        unread_bytes: of its requests that are not answered yet, and of answers that wait for credit.
        due_ms: when its heartbeats and its silence are to be looked at.
        amqp: the engine of its connection.
    """

    container: str
    name: str
    product: str
    user: str | None
    realm: str
    rights: Any
    proof: Any
    origin: Any
    holdings: Any
    client: ClientDescription
    since_us: int
    receivers: set[Consumer | Browser]
    links: set[Any]
    only_listens: bool | None
    opened: bool
    ended: bool
    paused: bool
    due_ms: int
    unread_bytes: int
    slow_consumers: int
    amqp: Connection

    def hear_kept(self) -> None:
        """Handle its small reads that wait for the end of a commit."""

    def timed_out(self, events: list[Event]) -> None:
        """Handle the engine's `events` that are due to time."""

    def admit(self) -> None:
        """Give it the rights of its user."""

    def begin_holdings(self) -> None:
        """It opens: from now on it counts for its user.

        Raises:
            LimitExceeded: there are too many connections.
        """

    def established(self) -> None:
        """Its open arrived and was answered."""

    def flush(self) -> None:
        """Write what the engine has to send."""

    def pause_reading(self, paused: bool) -> None:
        """Leave what the client sends in its socket, or go on."""

    def hold_back(self, held_back: bool) -> None:
        """The same, as there is too little memory for what it holds."""

    def measure(self) -> None:
        """Count what it holds in memory."""

    @property
    def is_cut_off(self) -> bool: ...

    def end_with(self, last: Event) -> None:
        """Handle an event in its turns, in place of all that it sent, until that has ended it."""

    def end(self) -> None:
        """The AMQP connection is over: write what is left, then close the socket and free the engine."""

    def fail(self, error: Exception) -> None:
        """What it sent led to an error that nobody expected: it is cut off, outside of what others have asked for."""

    def part(self) -> None:
        """Like `end`, but leave the closing to the client, as far as TLS allows."""

    def withhold(self) -> None:
        """Write nothing any more of what there is for it."""

    def part_unanswered(self, why: str, info: dict[str, Any]) -> None:
        """Say why it is left, and nothing of what was withheld."""

    def drop(self, *, linger: bool = False) -> None:
        """Cut the socket, at once unless what was written should still arrive."""


class AuditTrail(Protocol):
    """The audit trail: see `identity.audit_trail`."""

    def say(self, event: str, peer: Peer | None, decision: str, **told: Any) -> None:
        """Add a line."""


class Shell(Protocol):
    """The broker process while it serves: clock, peers, and commits.

    Attributes:
        clock: its time.
        audit: the `AuditTrail`.
        peers: who is connected.
        ending: nothing is taken from peers any more; what was asked before is still committed and confirmed.
        stopped: nothing is stored or becomes visible any more.
        full: why producers are refused now; empty while there is room.
    """

    clock: Clock
    peers: set[Peer]
    ending: bool
    stopped: bool

    @property
    def audit(self) -> AuditTrail: ...

    @property
    def full(self) -> str: ...

    def may_serve(self, *, look: bool = False) -> bool:
        """Whether peers may be listened to and answered; if the lease has ended, all stops here.

        Args:
            look: look at the lock, due or not.
        """

    def touch(self, peer: Peer) -> None:
        """Something waits to be flushed to a peer that is not the one being handled."""

    def advance(self) -> None:
        """Perform what the broker has to say, have stored what it wants stored, write to whom it concerns."""

    def handle(self, peer: Peer, events: list[Event]) -> list[Event]:
        """Apply what one read of one peer asks for; returns what took too long to be done at once."""

    def when_durable(self, peer: Peer, then: Callable[[], None]) -> None:
        """Tell `peer` something once everything that was asked so far is durable: at once if it is."""

    def when_settled(self, peer: Peer, then: Callable[[StoreError | None], None]) -> None:
        """Tell `peer` something once other processes see everything that was asked so far, or why they do not."""
