"""A single-threaded context for sending and receiving: acknowledgement, transactions, recovery."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from legato.client.browser import QueueBrowser
from legato.client.channel import Channel
from legato.client.consumer import MessageConsumer
from legato.client.destinations import Destination, Queue, checked_queue
from legato.client.dispatcher import Dispatcher
from legato.client.messages import BytesMessage, Message, TextMessage
from legato.client.producer import MessageProducer
from legato.client.received import message_id_of
from legato.client.receiver_end import ReceiverEnd
from legato.client.session_state import AckBatch, AcknowledgeMode, Delivery, Send, Transaction
from legato.errors import IllegalStateError, JMSError, TransactionRolledBackError

if TYPE_CHECKING:
    from legato.client.connection import Connection


class Session:
    """What one thread at a time works with (Jakarta Messaging 6.2); `close()` may be called by any thread.

    A failover does not end a session: its producers, consumers and listeners go on. In a transacted session it dooms a
    transaction that has done work: until its end that transaction absorbs what is sent and received, `commit()` then
    raises `TransactionRolledBackError` once, and what it had received comes again, flagged (CONTRACT B18, E13).
    """

    def __init__(self, connection: Connection, name: str, acknowledge_mode: AcknowledgeMode) -> None:
        self.acknowledge_mode = acknowledge_mode
        self._connection = connection
        self._name = name
        options = connection._options
        self._send_window = options.send_window
        self._prefetch = options.prefetch
        self._redeliver_on_error = options.listener_error == "redeliver"
        self._lock = threading.RLock()
        """Held by the thread that uses the session."""
        self._transaction = Transaction() if acknowledge_mode is AcknowledgeMode.SESSION_TRANSACTED else None
        self._disposed: list[tuple[object, Send]] = []
        """(the producer's I/O half, send) of the transaction that was rolled back last."""
        self._unacknowledged: list[Delivery] = []
        self._consumers: list[MessageConsumer] = []
        self._producers: list[MessageProducer] = []
        self._dispatcher: Dispatcher | None = None
        self._made = 0
        self._closed = False
        self._channel = Channel(connection._transport, name, acknowledge_mode, self._transaction)
        connection._transport.add(self._channel)

    # -- making things -----------------------------------------------------------------------------------

    @property
    def transacted(self) -> bool:
        """Whether the session is transacted."""
        return self._transaction is not None

    def create_queue(self, name: str) -> Queue:
        """The queue of that name; the broker creates it when it is first used."""
        self._check_open()
        queue = Queue(name)
        checked_queue(queue)
        return queue

    def create_text_message(self, text: str | None = None) -> TextMessage:
        """A message whose body is `text`."""
        return TextMessage(text)

    def create_bytes_message(self, body: bytes = b"") -> BytesMessage:
        """A message whose body is `body`."""
        return BytesMessage(body)

    def create_message(self) -> Message:
        """A message without a body."""
        return Message()

    def create_producer(self, destination: Destination | None = None) -> MessageProducer:
        """A producer for a queue, or for those that each `send()` names.

        Raises:
            InvalidDestinationError: the destination cannot be sent to.
            IllegalStateError: the session is closed.
        """
        with self._used():
            queue = None if destination is None else checked_queue(destination)
            producer = MessageProducer(self, queue, self._next_name("p"))
            self._producers.append(producer)
            return producer

    def create_consumer(self, destination: Destination, *, prefetch: int | None = None) -> MessageConsumer:
        """A consumer of a queue.

        Args:
            prefetch: messages kept ready ahead of `receive()`, at least 1; default: the connection's option.

        Raises:
            InvalidDestinationError: the destination cannot be received from.
            IllegalStateError: the session is closed.
        """
        with self._used():
            queue = checked_queue(destination)
            ahead = self._prefetch if prefetch is None else max(prefetch, 1)
            end = ReceiverEnd(self._channel, self._next_name("c"), queue.name, ahead)
            consumer = MessageConsumer(self, queue, end)
            self._channel.transport.post(self._channel.add_receiver, end)
            self._wait(lambda: end.ready or end.closed, "create a consumer")
            if end.error is not None:
                raise end.error
            self._consumers.append(consumer)
            return consumer

    def create_browser(self, destination: Destination) -> QueueBrowser:
        """A look at the messages of a queue, without consuming them (Jakarta Messaging 6.2.9)."""
        with self._used():
            queue = checked_queue(destination)
            return QueueBrowser(self, queue, self._next_name("b"))

    # -- transactions ------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Commit: what was received is consumed, what was sent becomes visible, both or neither.

        A commit that is cut off by a failover returns its true outcome (promise 2). One without work succeeds
        (CONTRACT B17).

        Raises:
            TransactionRolledBackError: the transaction was rolled back. What it received comes again; `replay()`
                sends again what it sent. The session can be used on (CONTRACT E13).
            IllegalStateError: the session is not transacted, or closed.
        """
        with self._used():
            transaction = self._end(commit=True)
            if transaction.outcome:
                self._disposed = []
                return
            self._disposed = list(transaction.sends)
            failure = transaction.failure
            raise TransactionRolledBackError(
                str(failure) if failure else "", code=failure.code if failure else None, linked=failure
            )

    def rollback(self) -> None:
        """Roll back: what was received comes again, in order and counted, what was sent is gone (CONTRACT A4).

        Raises:
            IllegalStateError: the session is not transacted, or closed.
        """
        with self._used():
            self._end(commit=False)
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
                if end.closed or end.closing:  # type: ignore[attr-defined]
                    self._disposed = disposed
                    raise IllegalStateError(
                        "A producer of the rolled back transaction is closed; nothing was replayed."
                    )
            for end, send in disposed:
                outgoing = end.outgoing  # type: ignore[attr-defined]
                outgoing.last_number += 1
                again = Send(outgoing.last_number, send.data, send.message, current)
                current.sends.append((end, again))
                outgoing.waiting.append(again)
                self._channel.wake_sender(end)  # type: ignore[arg-type]
            return len(disposed)

    def _require_transaction(self) -> Transaction:
        if self._transaction is None:
            raise IllegalStateError("The session is not transacted; create it with create_session(transacted=True).")
        return self._transaction

    def _end(self, *, commit: bool) -> Transaction:
        transaction = self._require_transaction()
        coordinator = self._channel.coordinator
        assert coordinator is not None
        self._transaction = following = Transaction()
        self._channel.transport.post(coordinator.end, commit, following)
        try:
            self._wait(lambda: transaction.outcome is not None, "commit" if commit else "roll back")
        except JMSError as error:
            if commit and transaction.did_work:
                raise JMSError(
                    "The connection is gone for good, and whether the transaction was committed is not known.",
                    code="IN_DOUBT",
                    linked=error,
                ) from error
            raise
        return transaction

    # -- acknowledgement ---------------------------------------------------------------------------------

    def recover(self) -> None:
        """Give back what was received and not acknowledged; it comes again, flagged and counted (CONTRACT C8).

        Raises:
            IllegalStateError: the session is transacted, or closed.
        """
        with self._used():
            if self._transaction is not None:
                raise IllegalStateError("A transacted session has no recover(); call rollback().")
            deliveries, self._unacknowledged = self._unacknowledged, []
            current = None if self._dispatcher is None else self._dispatcher.current
            if current is not None and current not in deliveries:
                deliveries.append(current)
            self._give_back(deliveries)

    def _give_back(self, deliveries: list[Delivery]) -> None:
        batch = AckBatch(deliveries)
        batch.open = 1
        self._channel.transport.post(self._channel.recover, batch)
        self._wait(lambda: batch.open == 0, "recover")

    def _acknowledge(self, message: Message) -> None:
        if self.acknowledge_mode is not AcknowledgeMode.CLIENT:
            self._check_open()
            return
        with self._used():
            deliveries, self._unacknowledged = self._unacknowledged, []
            if not deliveries:
                return
            batch = AckBatch(deliveries)
            self._channel.transport.post(self._channel.acknowledge, batch)
            self._wait(lambda: batch.open == 0, "acknowledge")
            gone = batch.elsewhere()
            if gone:
                names = ", ".join(message_id_of(delivery.data) for delivery in gone[:5])
                more = f" and {len(gone) - 5} more" if len(gone) > 5 else ""
                raise IllegalStateError(
                    f"After a failover another receiver got {names}{more}; all else is acknowledged. Call recover(), "
                    "and expect redelivery.",
                    code="WENT_ELSEWHERE",
                )

    # -- the end -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Roll back or give back what is open, close producers and consumers, then the session. May be called again.

        Waits for the listener that runs now.
        """
        if self._closed:
            return
        self._closed = True
        if self._dispatcher is not None:
            self._dispatcher.stop()
        for consumer in self._consumers:
            consumer._closed = True
        self._channel.gate.open()
        # Another thread's receive() returns now; its commit() or send() first comes to its end.
        with self._lock:
            self._close()

    def _close(self) -> None:
        channel = self._channel
        if channel.coordinator is not None and channel.error is None:
            transaction = self._transaction
            channel.transport.post(channel.coordinator.end, False, Transaction())
            self._wait_closed(lambda: transaction is None or transaction.outcome is not None)
        channel.transport.post(channel.close)
        self._wait_closed(lambda: channel.closed)
        for producer in self._producers:
            producer._closed = True
        self._consumers.clear()
        self._producers.clear()
        self._connection._forget_session(self)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _forget_producer(self, producer: MessageProducer) -> None:
        if producer in self._producers:
            self._producers.remove(producer)

    def _forget_consumer(self, consumer: MessageConsumer) -> None:
        if consumer in self._consumers:
            self._consumers.remove(consumer)
        self._unacknowledged = [d for d in self._unacknowledged if d.consumer is not consumer._end]

    def _listeners_changed(self) -> None:
        if self._dispatcher is None:
            self._dispatcher = Dispatcher(
                self, f"legato session {self._name}", redeliver_on_error=self._redeliver_on_error
            )
        self._channel.gate.open()

    # -- one thread at a time ----------------------------------------------------------------------------

    @contextmanager
    def _used(self) -> Iterator[None]:
        if not self._lock.acquire(False):
            raise self._misused()
        try:
            self._check_open()
            yield
        finally:
            self._lock.release()

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("The session is closed.")
        if self._channel.error is not None:
            raise self._channel.error

    def _misused(self) -> IllegalStateError:
        if self._closed:
            return IllegalStateError("The session is closed.")
        return IllegalStateError(
            "Another thread is using this session, and a session is for one thread at a time: create one for each "
            "thread (Jakarta Messaging 6.2)."
        )

    def _next_name(self, kind: str) -> str:
        self._made += 1
        return f"{self._name}:{kind}{self._made}"

    def _wait(self, ready: Callable[[], object], what: str, timeout_s: float | None = None) -> bool:
        """Wait for the I/O thread; raises what ended the session or connection meanwhile."""
        channel = self._channel
        transport = channel.transport
        if transport.is_current_thread:
            raise IllegalStateError(f"A failover listener cannot {what}: it runs in the thread that would do it.")
        transport.hurry()
        if not channel.gate.wait(lambda: ready() or channel.error or transport.error, timeout_s):
            return False
        if not ready():
            error = channel.error or transport.error
            assert error is not None
            raise error
        return True

    def _wait_closed(self, closed: Callable[[], bool]) -> None:
        """Wait for the I/O thread to close something; a connection that is gone has closed it."""
        channel = self._channel
        transport = channel.transport
        if not transport.is_current_thread:
            transport.hurry()
            channel.gate.wait(lambda: closed() or channel.error or transport.error)
