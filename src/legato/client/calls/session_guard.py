"""Guard of a session: exclusive use, open checks, and waiting for the I/O thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from legato.client.calls.ports import ConnectionPort, Dispatcher
from legato.client.calls.undertakings import Told, Undertaking
from legato.client.links.channel import Channel
from legato.client.links.completion import Completions
from legato.client.links.deliveries import AckBatch, Delivery
from legato.client.links.sender_end import SenderEnd
from legato.client.links.session_state import AcknowledgeMode, Send, Transaction
from legato.client.mapping.conditions import UNBLOCKED
from legato.client.steps import Steps, Wait
from legato.errors import IllegalStateError, JMSError

if TYPE_CHECKING:
    from legato.client.calls.consumer_steps import ConsumerSteps


class SessionWork:
    """One user at a time; whoever else comes is told so (Jakarta Messaging 6.2)."""

    def __init__(self, connection: ConnectionPort, name: str, acknowledge_mode: AcknowledgeMode) -> None:
        self.acknowledge_mode = acknowledge_mode
        self._connection = connection
        self._world = connection._world
        self._name = name
        self._turn = self._world.turn()
        """Of whoever uses the session."""
        self._transaction = Transaction() if acknowledge_mode is AcknowledgeMode.SESSION_TRANSACTED else None
        self._undertaking: Undertaking | None = None
        """What a call has begun. It was interrupted if another call finds it here."""
        self._making: ConsumerSteps | None = None
        """A consumer that a call is about to return."""
        self._told: Told | None = None
        """The last error that another call must not forget if it was not heard."""
        self._untold: Transaction | None = None
        """It was rolled back, and its `commit()` was interrupted before it could say so."""
        self._disposed: list[tuple[SenderEnd, Send]] = []
        """What the transaction had sent that was rolled back last."""
        self._unacknowledged: dict[Delivery, None] = {}
        """Received and to be acknowledged by the application, in order."""
        self._started_over = 0
        """After so many losses of the connection the application got again what it had."""
        self._consumers: list[ConsumerSteps] = []
        self._dispatcher: Dispatcher | None = None
        self._closed = False
        self._blocked = False
        """Whether a call waits for the broker."""
        self._contract = connection._options.contract
        self._channel = Channel(
            connection._transport, name, acknowledge_mode, self._transaction, self._contract, owner=self
        )
        self._completions = Completions(self._channel.gate)

    @property
    def transacted(self) -> bool:
        """Whether the session is transacted."""
        return self._transaction is not None

    # -- messages and listeners --------------------------------------------------------------------------

    def _give_back(self, deliveries: list[Delivery], why: str = "") -> Steps[None]:
        """Return messages, and have them come again.

        Args:
            why: what the application raised when it had them, if it did.
        """
        batch = AckBatch(deliveries, why)
        batch.open = 1
        self._channel.transport.post(self._channel.recover, batch)
        yield from self._wait(lambda: batch.open == 0, "recover")

    # -- what goes on even if a call is interrupted ------------------------------------------------------

    def _undertake(self, undertaking: Undertaking, over: Callable[[], object] | None = None) -> Steps[None]:
        """Begin something and wait for its end, or until `over()`."""
        self._undertaking = undertaking
        undertaking.ask()
        try:
            yield from self._wait(over or undertaking.over, undertaking.what, resolved=undertaking.resolved)
        except JMSError:
            self._undertaking = None
            raise
        undertaking.conclude()
        self._undertaking = None

    def _hear(self, until: Callable[[], object] | None = None, timeout_s: float | None = None) -> Steps[bool]:
        """Wait for the end of what an interrupted call had begun; returns whether there is nothing of that left.

        Args:
            until: when to wait no more.
        """
        undertaking = self._undertaking
        if undertaking is None:
            return True
        undertaking.ask()
        over = undertaking.over
        try:
            ready = over if until is None else lambda: over() or until()
            heard = yield from self._wait(ready, undertaking.what, timeout_s, resolved=undertaking.resolved)
        except JMSError:
            self._undertaking = None
            raise
        if heard and over():
            undertaking.conclude()
            self._undertaking = None
            return True
        return False

    def _interrupted(self, interruption: BaseException) -> None:
        """A call was interrupted at any line: what it had taken goes back, what it had begun goes on.

        May be called again. Whoever else uses the session has not been interrupted.
        """
        if not self._turn.acquire(False):
            return
        if self._told is not None:
            self._told.heard_instead(interruption)
        channel = self._channel
        post = channel.transport.post
        for consumer in list(self._consumers):
            consumer._take_back()
            if consumer._closed:
                post(consumer._end.release)
        if self._undertaking is not None:
            self._undertaking.ask()
        making = self._making
        if making is not None:
            post(making._end.close)
            making._release_subscription()
            self._forget_consumer(making)
            self._making = None
        if self._closed:
            post(channel.close)
        self._blocked = False
        channel.resolving = False
        post(channel.look_again)
        channel.transport.wake()
        self._turn.release()

    def _forget_consumer(self, consumer: Any) -> None:
        """It is closed."""
        raise NotImplementedError

    def _listeners_changed(self) -> None:
        if self._dispatcher is None:
            self._dispatcher = self._world.dispatcher(
                self,
                f"legato session {self._name}",
                redeliver_on_error=self._connection._options.listener_error == "redeliver",
            )
        self._note_listeners()
        self._channel.gate.open()

    def _note_listeners(self) -> None:
        """Whether messages go to listeners: these are not kept waiting for `receive()` to tell of an abort."""
        channel = self._channel
        channel.listening = any(consumer._listener is not None for consumer in self._consumers)
        if channel.aborted is not None:
            channel.transport.post(channel.grant)

    # -- completions -------------------------------------------------------------------------------------

    def _check_not_completing(self, what: str) -> None:
        if self._completions.running and self._channel.transport.notifier.is_current:
            raise IllegalStateError(f"A completion listener cannot {what} its own session (Jakarta Messaging 7.3.4).")

    def _wait_for_completions(self) -> Steps[None]:
        """Wait until all completion listeners have returned (Jakarta Messaging 7.3.4), unless one is asking."""
        completions = self._completions
        transport = self._channel.transport
        if not completions.all_called and not transport.notifier.is_current:
            yield Wait(self._channel.gate, lambda: completions.all_called or transport.ended)

    # -- one user at a time ------------------------------------------------------------------------------

    @contextmanager
    def _used(self) -> Iterator[None]:
        if not self._turn.acquire(False):
            raise self._misused()
        try:
            self._check_open()
            yield
        finally:
            self._turn.release()

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("The session is closed.")
        if self._channel.error is not None:
            raise self._channel.error

    def _misused(self) -> JMSError:
        if self._channel.transport.disowned and self._channel.error is not None:
            return self._channel.error
        if self._closed:
            return IllegalStateError("The session is closed.")
        return IllegalStateError(
            "Another thread or task is using this session, and a session is for one thread or task at a time: create "
            "one for each (Jakarta Messaging 6.2)."
        )

    def _wait(
        self, ready: Callable[[], object], what: str, timeout_s: float | None = None, *, resolved: bool = False
    ) -> Steps[bool]:
        """Wait for the I/O thread; raises what ended the session or connection meanwhile.

        Args:
            resolved: whether to wait for the truth, even if the failover contract releases blocked calls.
        """
        channel = self._channel
        releases = self._contract.releases_blocked_calls and not resolved
        interruptions = channel.interruptions
        transport = channel.transport
        if transport.is_current_thread:
            raise IllegalStateError(f"A failover listener cannot {what}: it runs in the thread that would do it.")
        transport.hurry()

        def over() -> object:
            released = releases and channel.interruptions != interruptions
            return ready() or channel.error or transport.error or released

        self._blocked = True
        try:
            if not (yield Wait(channel.gate, over, timeout_s)):
                return False
        finally:
            self._blocked = False
        if not ready():
            raise channel.error or transport.error or _released(what)
        return True

    def _wait_closed(self, closed: Callable[[], bool]) -> Steps[None]:
        """Wait for the I/O thread to close something; a connection that is gone has closed it."""
        channel = self._channel
        transport = channel.transport
        if not transport.is_current_thread:
            transport.hurry()
            yield Wait(channel.gate, lambda: closed() or channel.error or transport.error)


def _released(what: str) -> JMSError:
    """What a blocked call raises under a contract that does not have it wait for the next connection."""
    return JMSError(
        f"The connection to the broker was lost during a call that was to {what}; what came of it is not known. The "
        "session goes on with the next connection: call again.",
        code=UNBLOCKED,
    )
