"""Steps of a session: create, start, close."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from legato.client.calls.browser_steps import BrowserSteps
from legato.client.calls.consumer_steps import ConsumerSteps
from legato.client.calls.ports import ConnectionPort
from legato.client.calls.producer_steps import ProducerSteps
from legato.client.calls.session_factory import Making
from legato.client.links.session_state import AcknowledgeMode, Transaction
from legato.client.steps import Steps, Wait
from legato.errors import IllegalStateError, JMSError

_Producer = TypeVar("_Producer", bound=ProducerSteps)
_Consumer = TypeVar("_Consumer", bound=ConsumerSteps)
_Browser = TypeVar("_Browser", bound=BrowserSteps)

GIVEN_UP_AFTER_S = 1.0
"""What was given up has at least so long to end in good order, before all else is given up too."""


class SessionSteps(Making[_Producer, _Consumer, _Browser], Generic[_Producer, _Consumer, _Browser]):
    """What one thread, or one task, at a time works with (Jakarta Messaging 6.2); anyone may call `close()`.

    A failover does not end a session: its producers, consumers and listeners go on. In a transacted session it dooms a
    transaction that has done work: until its end that transaction absorbs what is sent and received, `commit()` then
    raises `TransactionRolledBackError` once, and what it had received comes again, flagged (CONTRACT B18, E13).
    """

    def __init__(self, connection: ConnectionPort, name: str, acknowledge_mode: AcknowledgeMode) -> None:
        super().__init__(connection, name, acknowledge_mode)
        connection._transport.add(self._channel)

    def _close(self) -> Steps[None]:
        """Roll back or give back what is open, close producers and consumers, then the session. May be called again.

        Waits for the listener that runs now, and for completion listeners (Jakarta Messaging 6.2.15).

        Raises:
            IllegalStateError: one of the session's own listeners asks, which would wait for itself (8.8, 7.3.6).
        """
        if self._channel.transport.disowned:
            return
        self._check_not_in_listener("close")
        if self._channel.closed and not self._consumers and not self._producers:
            return
        # Called again all of it is done again, which changes nothing: the first call may have been interrupted.
        self._closed = True
        dispatcher = self._dispatcher
        if dispatcher is not None:
            dispatcher.stop()
            yield from self._patiently(lambda: dispatcher.ended)
        for consumer in self._consumers:
            consumer._closed = True
        self._channel.gate.open()
        # Another thread's receive() returns now; its commit() or send() first comes to its end.
        if not (yield from self._turn.awaited(self._patience_s)):
            self._give_up_sends()
            while not (yield from self._turn.awaited(max(self._patience_s, GIVEN_UP_AFTER_S))):
                self._give_up()
        try:
            yield from self._close_all()
        except BaseException:
            # Nobody waits for it any more, but it ends.
            self._channel.transport.post(self._channel.close)
            raise
        finally:
            self._turn.release()

    def _close_all(self) -> Steps[None]:
        channel = self._channel
        undertaking = self._undertaking
        if undertaking is not None and channel.error is None:
            undertaking.ask()
            yield from self._patiently(undertaking.over)
            if undertaking.over():
                undertaking.conclude()
        transaction = self._transaction
        if channel.coordinator is not None and transaction is not None and channel.error is None:
            channel.transport.post(channel.coordinator.end, transaction, False, Transaction())
            yield from self._patiently(lambda: transaction.outcome is not None)
        channel.transport.post(channel.close)
        yield from self._patiently(lambda: channel.closed)
        yield from self._wait_for_completions()
        for producer in self._producers:
            producer._closed = True
        for consumer in [*self._consumers, *self._closing]:
            consumer._release_subscription()
        self._consumers.clear()
        self._closing.clear()
        self._producers.clear()
        self._connection._forget_session(self)

    @property
    def _patience_s(self) -> float:
        return self._connection._options.close_timeout_s

    def _patiently(self, ready: Callable[[], object]) -> Steps[None]:
        """Wait for something that closing needs; what the broker does not confirm for too long is given up."""
        channel = self._channel
        transport = channel.transport
        if transport.is_current_thread:
            return
        transport.hurry()
        either = Wait(channel.gate, lambda: ready() or channel.error or transport.error, self._patience_s)
        if not (yield either):
            self._give_up_sends()
            while not (yield Wait(channel.gate, either.ready, max(self._patience_s, GIVEN_UP_AFTER_S))):
                self._give_up()

    def _give_up_sends(self) -> None:
        error = JMSError(
            f"The session was closed, and the broker did not confirm the message within {self._patience_s:g} s; "
            "whether it is stored is not known.",
            code="TIMEOUT",
        )
        channel = self._channel
        channel.transport.post(channel.give_up_sends, error)
        channel.transport.hurry()

    def _give_up(self) -> None:
        """Whatever else the broker has not answered: who is blocked in a call on the session hears so."""
        dispatcher = self._dispatcher
        if dispatcher is not None and not dispatcher.ended and not self._blocked:
            return  # A listener of the application takes its time (Jakarta Messaging 6.2.15).
        error = JMSError(
            f"The session was closed, and the broker did not answer within {self._patience_s:g} s; what came of the "
            "call is not known.",
            code="TIMEOUT",
        )
        channel = self._channel
        channel.transport.post(channel.give_up, error)
        channel.transport.hurry()

    def _check_not_in_listener(self, what: str) -> None:
        if self._dispatcher is not None and self._dispatcher.is_current:
            raise IllegalStateError(f"A message listener cannot {what} its own session or connection.")
        self._check_not_completing(what)
