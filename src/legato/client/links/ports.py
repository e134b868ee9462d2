"""Protocols of a channel and its transport, as the ends of links see them; so they import neither."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from legato.client.failover.contract import FailoverContract
from legato.client.failover.wire import Wire
from legato.client.gate import Gate
from legato.client.links.session_state import AcknowledgeMode, Send, Transaction
from legato.errors import JMSError

if TYPE_CHECKING:
    from legato.amqp.engine.link import Session


class TransportPort(Protocol):
    """The I/O thread of a connection, for the ends of links."""

    uploading: set[Any]
    """Producers that have a message on its way out of a file."""
    deaf: bool
    """Whether the thread looks no more for commands and sends."""

    @property
    def post(self) -> Callable[..., None]:
        """Have the I/O thread call a function soon."""

    @property
    def wire(self) -> Wire | None:
        """The connection to a broker, if there is one."""

    @property
    def hurry(self) -> Callable[[], None]:
        """Have the I/O thread look at once."""

    @property
    def flush(self) -> Callable[[], None]:
        """Write now what the engine has to say."""

    @property
    def later(self) -> Callable[[Callable[[], None]], None]:
        """Have the I/O thread call a function in the lump after this one."""

    @property
    def started(self) -> bool:
        """Whether messages may come."""


class ChannelPort(Protocol):
    """The I/O thread's half of a session, for the ends of its links."""

    session: Session | None
    """The engine's, on the present wire."""
    closing: bool
    listening: bool
    """Whether messages go to listeners."""
    sends_given_up: int
    """Sends that failed unconfirmed because their link, session or connection ended, and for which no call waited."""
    coordinator: Any
    """The end of the link for transactions, if the session has them."""

    @property
    def transport(self) -> TransportPort:
        """Its connection's."""

    @property
    def mode(self) -> AcknowledgeMode:
        """How received messages count as consumed."""

    @property
    def contract(self) -> FailoverContract:
        """Failover contract of the calls."""

    @property
    def gate(self) -> Gate:
        """Gate at which the application's threads wait."""

    @property
    def flowing(self) -> bool:
        """Whether messages may come."""

    @property
    def holds_back(self) -> bool:
        """Whether `receive()` is to raise before a message comes."""

    def wake_sender(self, sender: Any) -> None:
        """There is something in `outgoing.waiting`."""

    def wake_receiver(self, receiver: Any) -> None:
        """There is something in `presented` or `accepted`."""

    def touch(self) -> None:
        """Something changed that the application's thread may wait for."""

    def report(self, error: JMSError, *, usual: bool = False) -> None:
        """Tell the connection's exception listener."""

    def restored(self, end: Any) -> None:
        """A link is attached again, or never will be."""

    def fail(self, error: JMSError) -> None:
        """The session cannot go on."""

    def complete(self, sends: list[Send]) -> None:
        """Call the completion listeners of sends."""

    def attach(self, end: Any) -> None:
        """Attach a link, if it can be now."""

    def forget(self, end: Any) -> None:
        """A link is closed."""

    def forget_browser(self, browser: Any) -> None:
        """A browser's link is closed."""

    def forget_receiver(self, receiver: Any) -> None:
        """A consumer's link is closed."""

    def forget_sender(self, sender: Any) -> None:
        """A producer's link is closed."""

    def grant(self) -> None:
        """Let messages come."""

    def quiesce(self, then: Callable[[], None]) -> None:
        """Stop the flow of messages, then call `then`."""

    def give_back(self, failed: list[Any], why: str = "") -> None:
        """Return messages in order."""

    def flush_receivers(self) -> None:
        """State all that the application's thread asked for so far."""

    def close_receivers_that_wait(self) -> None:
        """Close those that waited for the transaction to take what they received."""

    def drop_sends(self, transaction: Transaction, error: JMSError) -> None:
        """A transaction is rolled back: what is not on the wire yet need not go there."""

    def has_waiting_sends(self, transaction: Transaction) -> bool:
        """Whether sends of a transaction are not on the wire yet."""

    def pump_senders(self) -> None:
        """Send what can be sent."""
