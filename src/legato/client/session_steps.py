"""A session's life and what it makes, as steps for both worlds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from legato.client.browser_steps import BrowserSteps
from legato.client.consumer_steps import ConsumerSteps
from legato.client.destinations import Destination, Queue, checked_queue
from legato.client.messages import BytesMessage, Message, TextMessage
from legato.client.producer_steps import ProducerSteps
from legato.client.receiver_end import ReceiverEnd
from legato.client.session_state import AcknowledgeMode, Transaction
from legato.client.session_work import SessionWork
from legato.client.steps import Steps

if TYPE_CHECKING:
    from legato.client.connection_steps import ConnectionSteps

_Producer = TypeVar("_Producer", bound=ProducerSteps)
_Consumer = TypeVar("_Consumer", bound=ConsumerSteps)
_Browser = TypeVar("_Browser", bound=BrowserSteps)


class SessionSteps(SessionWork, Generic[_Producer, _Consumer, _Browser]):
    """What one thread, or one task, at a time works with (Jakarta Messaging 6.2); anyone may call `close()`.

    A failover does not end a session: its producers, consumers and listeners go on. In a transacted session it dooms a
    transaction that has done work: until its end that transaction absorbs what is sent and received, `commit()` then
    raises `TransactionRolledBackError` once, and what it had received comes again, flagged (CONTRACT B18, E13).
    """

    _producer_type: type[_Producer]
    _consumer_type: type[_Consumer]
    _browser_type: type[_Browser]

    def __init__(self, connection: ConnectionSteps[Any], name: str, acknowledge_mode: AcknowledgeMode) -> None:
        super().__init__(connection, name, acknowledge_mode)
        options = connection._options
        self._send_window = options.send_window
        self._prefetch = options.prefetch
        self._redeliver_on_error = options.listener_error == "redeliver"
        self._producers: list[ProducerSteps] = []
        self._made = 0
        connection._transport.add(self._channel)

    # -- making things -----------------------------------------------------------------------------------

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

    def _create_producer(self, destination: Destination | None = None) -> Steps[_Producer]:
        """A producer for a queue, or for those that each `send()` names.

        Raises:
            InvalidDestinationError: the destination cannot be sent to.
            IllegalStateError: the session is closed.
        """
        with self._used():
            queue = None if destination is None else checked_queue(destination)
            producer = self._producer_type(self, queue, self._next_name("p"))
            if queue is not None:
                yield from producer._open_route(queue)
            self._producers.append(producer)
            return producer

    def _create_consumer(self, destination: Destination, *, prefetch: int | None = None) -> Steps[_Consumer]:
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
            consumer = self._consumer_type(self, queue, end)
            self._channel.transport.post(self._channel.add_receiver, end)
            try:
                yield from self._wait(lambda: end.ready or end.closed, "create a consumer")
            except BaseException:
                self._channel.transport.post(end.close)
                raise
            if end.error is not None:
                raise end.error
            self._consumers.append(consumer)
            return consumer

    def create_browser(self, destination: Destination) -> _Browser:
        """A look at the messages of a queue, without consuming them (Jakarta Messaging 6.2.9)."""
        with self._used():
            return self._browser_type(self, checked_queue(destination), self._next_name("b"))

    # -- the end -----------------------------------------------------------------------------------------

    def _close(self) -> Steps[None]:
        """Roll back or give back what is open, close producers and consumers, then the session. May be called again.

        Waits for the listener that runs now.
        """
        if self._closed:
            return
        self._closed = True
        if self._dispatcher is not None:
            yield from self._dispatcher.stop()
        for consumer in self._consumers:
            consumer._closed = True
        self._channel.gate.open()
        # Another thread's receive() returns now; its commit() or send() first comes to its end.
        yield from self._turn.awaited()
        try:
            yield from self._close_all()
        finally:
            self._turn.release()

    def _close_all(self) -> Steps[None]:
        channel = self._channel
        if channel.coordinator is not None and channel.error is None:
            transaction = self._transaction
            channel.transport.post(channel.coordinator.end, False, Transaction())
            yield from self._wait_closed(lambda: transaction is None or transaction.outcome is not None)
        channel.transport.post(channel.close)
        yield from self._wait_closed(lambda: channel.closed)
        for producer in self._producers:
            producer._closed = True
        self._consumers.clear()
        self._producers.clear()
        self._connection._forget_session(self)

    def _forget_producer(self, producer: ProducerSteps) -> None:
        if producer in self._producers:
            self._producers.remove(producer)

    def _forget_consumer(self, consumer: ConsumerSteps) -> None:
        if consumer in self._consumers:
            self._consumers.remove(consumer)
        self._unacknowledged = [d for d in self._unacknowledged if d.consumer is not consumer._end]

    def _listeners_changed(self) -> None:
        if self._dispatcher is None:
            self._dispatcher = self._world.dispatcher(
                self, f"legato session {self._name}", redeliver_on_error=self._redeliver_on_error
            )
        self._channel.gate.open()

    def _next_name(self, kind: str) -> str:
        self._made += 1
        return f"{self._name}:{kind}{self._made}"
