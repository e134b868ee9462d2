"""Guard of a session: exclusive use, open checks, and waiting for the I/O thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from legato.client.calls.turn import Turn
from legato.client.gate import Gate
from legato.client.links.channel import Channel
from legato.client.links.completion import Completions
from legato.client.mapping.conditions import UNBLOCKED
from legato.client.mapping.source import ATTACH_BYTES
from legato.client.steps import Steps, Wait
from legato.errors import IllegalStateError, InvalidDestinationError, InvalidSelectorError, JMSError


class SessionGuard:
    """Lets one user at a time use an open session; whoever else comes is told so (Jakarta Messaging 6.2).

    Attributes:
        turn: of whoever uses the session.
        channel: the session's half in the I/O thread, for which calls wait.
        completions: the completion listeners that are still to be called.
        closed: whether the session was closed.
        blocked: whether a call waits for the broker.
    """

    __slots__ = ("blocked", "channel", "closed", "completions", "turn")

    def __init__(self, channel: Channel, turn: Turn) -> None:
        self.channel = channel
        self.turn = turn
        self.completions = Completions(channel.gate)
        self.closed = False
        self.blocked = False

    # -- one user at a time ------------------------------------------------------------------------------

    @contextmanager
    def used(self, check_open: Callable[[], None] | None = None) -> Iterator[None]:
        """Have the turn of an open session.

        Args:
            check_open: raises if the session cannot be used, in place of this one's.

        Raises:
            IllegalStateError: somebody else has it, or the session is closed.
            JMSError: the session or its connection is gone for good.
        """
        if not self.turn.acquire(False):
            raise self.misused()
        try:
            (check_open or self.check_open)()
            yield
        finally:
            self.turn.release()

    @contextmanager
    def keeping_turn(self) -> Iterator[None]:
        """Have a session below take part in this one's call: it has the same turn, and does not end it."""
        kept = False
        try:
            kept = self.turn.keep(True)
            yield
        finally:
            self.turn.keep(kept)

    def check_open(self) -> None:
        """Raise if the session is closed, or gone for good."""
        if self.closed:
            raise IllegalStateError("The session is closed.")
        if self.channel.error is not None:
            raise self.channel.error

    @property
    def drops_calls(self) -> bool:
        """Whether no call waits for the broker any more, unless something of it is unconfirmed."""
        return self.closed and self.channel.transport.wire is None

    def misused(self) -> JMSError:
        """What a caller is told that does not get the turn."""
        if self.channel.transport.disowned and self.channel.error is not None:
            return self.channel.error
        if self.closed:
            return IllegalStateError("The session is closed.")
        return IllegalStateError(
            "Another thread or task is using this session, and a session is for one thread or task at a time: create "
            "one for each (Jakarta Messaging 6.2)."
        )

    def check_fits(self, destination: str, selector: str | None = None, *, subscription: str = "") -> None:
        """Raise if no link can have these: its attach is one frame, and no broker takes more than it says (AMQP 2.7.3).

        Raises:
            InvalidSelectorError, InvalidDestinationError: that is too long which takes the most.
        """
        frame_bytes_max = self.channel.transport.frame_bytes_max
        most = max(frame_bytes_max - ATTACH_BYTES, frame_bytes_max // 4)
        of_name, of_subscription, of_selector = (
            len(each.encode()) for each in (destination, subscription, selector or "")
        )
        # The name of a subscription's link is in the attach twice.
        if of_name + 2 * of_subscription + of_selector <= most:
            return
        told = f"and what the broker takes for a link is {most:,} bytes in all."
        if of_selector > max(of_name, of_subscription):
            raise InvalidSelectorError(f"The selector has {of_selector:,} bytes, {told}")
        raise InvalidDestinationError(f"The name has {max(of_name, of_subscription):,} bytes, {told}")

    # -- waiting for the I/O thread ----------------------------------------------------------------------

    def wait(
        self,
        ready: Callable[[], object],
        what: str,
        timeout_s: float | None = None,
        *,
        resolved: bool = False,
        unconfirmed: bool = False,
        gate: Gate | None = None,
    ) -> Steps[bool]:
        """Wait for the I/O thread; raises what ended the session or connection meanwhile.

        Args:
            unconfirmed: whether something is lost, or in doubt, if the wait ends early. Otherwise it ends when the
                session is closed while there is no connection.
            resolved: whether to wait for the truth, even if the failover contract releases blocked calls.
            gate: of the session of which something is waited for, if that is another one.
        """
        channel = self.channel
        releases = channel.contract.releases_blocked_calls and not resolved
        interruptions = channel.interruptions
        transport = channel.transport
        if transport.is_current_thread:
            raise IllegalStateError(f"A failover listener cannot {what}: it runs in the thread that would do it.")
        transport.hurry()

        def over() -> object:
            released = releases and channel.interruptions != interruptions
            dropped = self.drops_calls and not unconfirmed
            return ready() or channel.error or transport.error or released or dropped

        self.blocked = True
        try:
            if not (yield Wait(gate or channel.gate, over, timeout_s)):
                return False
        finally:
            self.blocked = False
        if not ready():
            dropped = self.drops_calls and not unconfirmed
            raise channel.error or transport.error or (session_closed(what) if dropped else _released(what))
        return True

    def wait_closed(self, closed: Callable[[], object], timeout_s: float | None = None) -> Steps[bool]:
        """Wait for the I/O thread to close something; a connection that is gone has closed it.

        Args:
            timeout_s: at most so long; returns whether it is closed.
        """
        channel = self.channel
        transport = channel.transport
        if transport.is_current_thread:
            return True
        transport.hurry()
        return bool((yield Wait(channel.gate, lambda: closed() or channel.error or transport.error, timeout_s)))

    # -- completion listeners ----------------------------------------------------------------------------

    def check_not_completing(self, what: str) -> None:
        """Raise if one of the session's completion listeners asks.

        Raises:
            IllegalStateError: one does, and would wait for itself.
        """
        if any(notifier.is_current for notifier in list(self.completions.running)):
            raise IllegalStateError(f"A completion listener cannot {what} its own session (Jakarta Messaging 7.3.4).")

    @property
    def _in_listener(self) -> bool:
        """Whether a listener of the connection calls."""
        return self.channel.transport.notifier.is_current

    @property
    def has_completed(self) -> bool:
        """Whether no completion listener is waited for: each has returned, or comes after a listener that waits."""
        completions = self.completions
        return completions.all_called or completions.held_up or self._in_listener

    def wait_for_completions(self) -> Steps[None]:
        """Wait until all completion listeners have returned (Jakarta Messaging 7.3.4).

        A listener of the connection's that asks, or that waits for the session meanwhile (`held`), holds them up: they
        are called when it has returned.
        """
        completions = self.completions
        transport = self.channel.transport
        if not self.has_completed:
            yield Wait(
                self.channel.gate,
                lambda: completions.all_called or completions.held_up or transport.ended,
                for_listener=True,
            )

    @contextmanager
    def held(self) -> Iterator[None]:
        """Who uses the session is waited for: if that would hold completion listeners up, nobody waits for them."""
        if not self._in_listener:
            yield
            return
        completions = self.completions
        completions.held_up = True
        self.channel.gate.open()
        try:
            yield
        finally:
            completions.held_up = False


def session_closed(what: str) -> JMSError:
    """What a blocked call raises whose session is closed while there is no broker that could answer."""
    return JMSError(
        f"The session was closed while there was no connection to a broker, during a call that was to {what}.",
        code=UNBLOCKED,
    )


def _released(what: str) -> JMSError:
    """What a blocked call raises under a contract that does not have it wait for the next connection."""
    return JMSError(
        f"The connection to the broker was lost during a call that was to {what}; what came of it is not known. The "
        "session goes on with the next connection: call again.",
        code=UNBLOCKED,
    )
