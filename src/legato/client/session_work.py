"""What a session does with messages: acknowledgement, transactions, recovery; as steps for both worlds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from legato.client.channel import Channel
from legato.client.completion import Completions
from legato.client.deliveries import AckBatch, Delivery
from legato.client.message import Message
from legato.client.received import message_id_of
from legato.client.sender_end import SenderEnd
from legato.client.session_state import AcknowledgeMode, Send, Transaction
from legato.client.steps import NOTHING, Steps, Wait
from legato.errors import IllegalStateError, JMSError, TransactionRolledBackError

if TYPE_CHECKING:
    from legato.client.connection_steps import ConnectionSteps
    from legato.client.consumer_steps import ConsumerSteps
    from legato.client.dispatcher import Dispatcher


class SessionWork:
    """One user at a time; whoever else comes is told so (Jakarta Messaging 6.2)."""

    def __init__(self, connection: ConnectionSteps[Any], name: str, acknowledge_mode: AcknowledgeMode) -> None:
        self.acknowledge_mode = acknowledge_mode
        self._connection = connection
        self._world = connection._world
        self._name = name
        self._turn = self._world.turn()
        """Of whoever uses the session."""
        self._transaction = Transaction() if acknowledge_mode is AcknowledgeMode.SESSION_TRANSACTED else None
        self._unheard: Transaction | None = None
        """Its `commit()` or `rollback()` was interrupted before its outcome was known."""
        self._disposed: list[tuple[SenderEnd, Send]] = []
        """What the transaction had sent that was rolled back last."""
        self._unacknowledged: dict[Delivery, None] = {}
        """Received and to be acknowledged by the application, in order."""
        self._consumers: list[ConsumerSteps] = []
        self._dispatcher: Dispatcher | None = None
        self._closed = False
        self._channel = Channel(connection._transport, name, acknowledge_mode, self._transaction)
        self._completions = Completions(self._channel.gate)

    @property
    def transacted(self) -> bool:
        """Whether the session is transacted."""
        return self._transaction is not None

    # -- transactions ------------------------------------------------------------------------------------

    def _commit(self) -> Steps[None]:
        """Commit: what was received is consumed, what was sent becomes visible, both or neither.

        A commit that is cut off by a failover returns its true outcome (promise 2). One without work succeeds
        (CONTRACT B17). If the call is interrupted the commit goes on; the next call waits for its outcome first.

        Raises:
            TransactionRolledBackError: the transaction was rolled back. What it received comes again; `replay()`
                sends again what it sent. The session can be used on (CONTRACT E13).
            IllegalStateError: the session is not transacted, or closed.
        """
        with self._used():
            self._check_not_completing("commit")
            transaction = yield from self._end(commit=True)
            if not transaction.outcome:
                self._disposed = list(transaction.sends)
                failure = transaction.failure
                raise TransactionRolledBackError(
                    str(failure) if failure else "", code=failure.code if failure else None, linked=failure
                )
            self._disposed = []
        yield from self._tell_duplicates()

    def _tell_duplicates(self) -> Steps[None]:
        """Producers' listeners hear of what the commit dropped."""
        yield from NOTHING

    def _rollback(self) -> Steps[None]:
        """Roll back: what was received comes again, in order and counted, what was sent is gone (CONTRACT A4).

        Raises:
            IllegalStateError: the session is not transacted, or closed.
        """
        with self._used():
            self._check_not_completing("roll back")
            yield from self._end(commit=False)
            self._disposed = []

    def replay(self) -> int:
        """Send again, in the current transaction, what the last one had sent whose `commit()` raised (promise 3).

        For applications that do not compute their sends anew from what they receive again.

        Returns:
            How many messages that were.

        Raises:
            IllegalStateError: the session is not transacted, or one of the producers is closed.
        """
        with self._used():
            current = self._require_transaction()
            disposed, self._disposed = self._disposed, []
            for end, _ in disposed:
                if end.closed or end.closing:
                    self._disposed = disposed
                    raise IllegalStateError(
                        "A producer of the rolled back transaction is closed; nothing was replayed."
                    )
            for end, send in disposed:
                outgoing = end.outgoing
                outgoing.last_number += 1
                again = Send(outgoing.last_number, send.data, send.message, current, stream=send.stream)
                current.sends.append((end, again))
                outgoing.waiting.append(again)
                self._channel.wake_sender(end)
            return len(disposed)

    def _require_transaction(self) -> Transaction:
        if self._transaction is None:
            raise IllegalStateError("The session is not transacted; create it with create_session(transacted=True).")
        return self._transaction

    def _end(self, *, commit: bool) -> Steps[Transaction]:
        transaction = self._require_transaction()
        coordinator = self._channel.coordinator
        assert coordinator is not None
        yield from self._hear_of_the_last_one()
        self._transaction = following = Transaction()
        self._unheard = transaction
        self._channel.transport.post(coordinator.end, commit, following)
        try:
            yield from self._wait(lambda: transaction.outcome is not None, "commit" if commit else "roll back")
        except JMSError as error:
            if commit and transaction.did_work:
                raise JMSError(
                    "The connection is gone for good, and whether the transaction was committed is not known.",
                    code="IN_DOUBT",
                    linked=error,
                ) from error
            raise
        self._unheard = None
        yield from self._wait_for_completions()
        return transaction

    def _hear_of_the_last_one(self) -> Steps[None]:
        """The outcome of a commit that was interrupted: if it was rolled back, `replay()` sends its sends again."""
        last = self._unheard
        if last is not None:
            yield from self._wait(lambda: last.outcome is not None, "end a transaction")
            self._unheard = None
            if not last.outcome:
                self._disposed = list(last.sends)

    # -- acknowledgement ---------------------------------------------------------------------------------

    def _recover(self) -> Steps[None]:
        """Give back what was received and not acknowledged; it comes again, flagged and counted (CONTRACT C8).

        Raises:
            IllegalStateError: the session is transacted, or closed.
        """
        with self._used():
            if self._transaction is not None:
                raise IllegalStateError("A transacted session has no recover(); call rollback().")
            deliveries, self._unacknowledged = self._unacknowledged, {}
            current = None if self._dispatcher is None else self._dispatcher.current
            if current is not None:
                deliveries[current] = None
            yield from self._give_back(list(deliveries))

    def _give_back(self, deliveries: list[Delivery], why: str = "") -> Steps[None]:
        """Return messages, and have them come again.

        Args:
            why: what the application raised when it had them, if it did.
        """
        batch = AckBatch(deliveries, why)
        batch.open = 1
        self._channel.transport.post(self._channel.recover, batch)
        yield from self._wait(lambda: batch.open == 0, "recover")

    def _acknowledge(self, message: Message) -> Any:
        """What `Message.acknowledge()` calls; in asyncio the result has to be awaited."""
        return self._world.run(self._acknowledging(None))

    def _acknowledging(self, only: Delivery | None) -> Steps[None]:
        """Acknowledge one message, or all that the session has received."""
        if self.acknowledge_mode not in (AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL):
            self._check_open()
            return
        with self._used():
            if only is None:
                deliveries, self._unacknowledged = list(self._unacknowledged), {}
            else:
                deliveries = [only] if only in self._unacknowledged else []
                self._unacknowledged.pop(only, None)
            if not deliveries:
                return
            batch = AckBatch(deliveries)
            self._channel.transport.post(self._channel.acknowledge, batch)
            yield from self._wait(lambda: batch.open == 0, "acknowledge")
            gone = batch.elsewhere()
            if gone:
                names = ", ".join(message_id_of(delivery.data) for delivery in gone[:5])
                more = f" and {len(gone) - 5} more" if len(gone) > 5 else ""
                raise IllegalStateError(
                    f"After a failover another receiver got {names}{more}; all else is acknowledged. Call recover(), "
                    "and expect redelivery.",
                    code="WENT_ELSEWHERE",
                )

    def _listeners_changed(self) -> None:
        if self._dispatcher is None:
            self._dispatcher = self._world.dispatcher(
                self,
                f"legato session {self._name}",
                redeliver_on_error=self._connection._options.listener_error == "redeliver",
            )
        self._channel.gate.open()

    # -- completions -------------------------------------------------------------------------------------

    def _check_not_completing(self, what: str) -> None:
        if self._completions.running and self._channel.transport.notifier.is_current:
            raise IllegalStateError(f"A completion listener cannot {what} its own session (Jakarta Messaging 7.3.6).")

    def _wait_for_completions(self) -> Steps[None]:
        """Wait until all completion listeners have returned (Jakarta Messaging 7.3.5), unless one is asking."""
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

    def _misused(self) -> IllegalStateError:
        if self._closed:
            return IllegalStateError("The session is closed.")
        return IllegalStateError(
            "Another thread or task is using this session, and a session is for one thread or task at a time: create "
            "one for each (Jakarta Messaging 6.2)."
        )

    def _wait(self, ready: Callable[[], object], what: str, timeout_s: float | None = None) -> Steps[bool]:
        """Wait for the I/O thread; raises what ended the session or connection meanwhile."""
        channel = self._channel
        transport = channel.transport
        if transport.is_current_thread:
            raise IllegalStateError(f"A failover listener cannot {what}: it runs in the thread that would do it.")
        transport.hurry()
        if not (yield Wait(channel.gate, lambda: ready() or channel.error or transport.error, timeout_s)):
            return False
        if not ready():
            error = channel.error or transport.error
            assert error is not None
            raise error
        return True

    def _wait_closed(self, closed: Callable[[], bool]) -> Steps[None]:
        """Wait for the I/O thread to close something; a connection that is gone has closed it."""
        channel = self._channel
        transport = channel.transport
        if not transport.is_current_thread:
            transport.hurry()
            yield Wait(channel.gate, lambda: closed() or channel.error or transport.error)
