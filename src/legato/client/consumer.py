"""Receiving messages: one by one, by iteration, or by a listener."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from legato.amqp.outcomes import Rejected
from legato.client.destinations import Destination
from legato.client.messages import Message
from legato.client.received import read_message
from legato.client.receiver_end import ReceiverEnd
from legato.client.session_state import AcknowledgeMode, Delivery, DeliveryState
from legato.errors import IllegalStateError, ProtocolError

if TYPE_CHECKING:
    from legato.client.session import Session

MessageListener = Callable[[Message], None]

LAZY_MAX = 200
"""DUPS_OK: acknowledgements that may wait for the next lump (CONTRACT C5)."""


class MessageConsumer:
    """Receives messages from a queue; iteration receives for ever, until it is closed (Jakarta Messaging 6.2.6).

    It survives a failover: what the application has is not presented again, what it has not seen comes again.
    """

    def __init__(self, session: Session, destination: Destination, end: ReceiverEnd) -> None:
        self.destination = destination
        self._session = session
        self._end = end
        self._inbox = end.incoming.inbox
        self._transport = session._channel.transport
        self._mode = session.acknowledge_mode
        self._listener: MessageListener | None = None
        self._closed = False

    def receive(self, timeout_s: float | None = None) -> Message | None:
        """The next message; waits for one at most `timeout_s` seconds, for ever if None.

        Returns:
            None if none came in time, or if the consumer is closed, by whichever thread (CONTRACT A22).

        Raises:
            IllegalStateError: the consumer has a listener, the session is closed, or another thread uses it.
            JMSError: the connection is gone for good.
        """
        session = self._session
        if not session._lock.acquire(False):
            raise session._misused()
        try:
            if self._listener is not None:
                raise IllegalStateError("receive() cannot be called while the consumer has a message listener.")
            deadline: float | None = None
            while True:
                if self._transport.started and not self._closed:
                    try:
                        delivery = self._inbox.popleft()
                    except IndexError:
                        pass
                    else:
                        message = self._received(delivery)
                        if message is not None:
                            return message
                        continue
                if self._closed:
                    return None
                if timeout_s is not None:
                    now = time.monotonic()
                    deadline = deadline or now + timeout_s
                    if now >= deadline:
                        return None
                self._await_message(deadline)
        finally:
            session._lock.release()

    def receive_no_wait(self) -> Message | None:
        """The next message if the broker has one now; asks it, if none is here (Jakarta Messaging 8.5)."""
        with self._session._used():
            if not self._inbox and self._transport.started and not self._closed:
                answered: list[bool] = []
                self._transport.post(self._end.probe, lambda: answered.append(True))
                self._session._wait(lambda: answered or self._inbox or self._closed, "receive")
            return self.receive(0)

    def __iter__(self) -> Iterator[Message]:
        while (message := self.receive()) is not None:
            yield message

    @property
    def message_listener(self) -> MessageListener | None:
        """A function called with each message, one at a time for all consumers of a session (Jakarta Messaging 8.7)."""
        return self._listener

    @message_listener.setter
    def message_listener(self, listener: MessageListener | None) -> None:
        with self._session._used():
            if self._closed:
                raise IllegalStateError("The consumer is closed.")
            self._listener = listener
            self._session._listeners_changed()

    def close(self) -> None:
        """Close: what was received and not acknowledged, and what was not received, goes back. May be called again.

        Another thread's `receive()` returns None.
        """
        if self._closed:
            return
        self._closed = True
        self._listener = None
        self._session._channel.gate.open()
        self._transport.post(self._end.close)
        self._session._wait_closed(lambda: self._end.closed)
        self._session._forget_consumer(self)

    def __enter__(self) -> MessageConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _await_message(self, deadline: float | None) -> None:
        end = self._end
        if end.accepted and not end.scheduled:
            end.channel.wake_receiver(end)
        if end.error is not None:
            raise end.error
        remaining_s = None if deadline is None else deadline - time.monotonic()
        self._session._wait(
            lambda: self._closed or end.closed or (self._inbox and self._transport.started), "receive", remaining_s
        )

    def _received(self, delivery: Delivery) -> Message | None:
        """What the acknowledgement mode wants done when `receive()` returns a message; None if it cannot be read."""
        message = self._read(delivery)
        if message is None:
            return None
        end = self._end
        mode = self._mode
        if mode == AcknowledgeMode.AUTO:
            end.accepted.append(delivery)
        elif mode == AcknowledgeMode.DUPS_OK:
            end.accepted.append(delivery)
            if len(end.accepted) < LAZY_MAX and self._inbox:
                return message
        else:
            self._presented(delivery)
            return message
        if not end.scheduled:
            end.channel.wake_receiver(end)
        return message

    def _read(self, delivery: Delivery) -> Message | None:
        try:
            return read_message(delivery.data, self.destination, self._session._acknowledge)
        except ProtocolError as error:
            self._transport.post(
                self._end.settle, delivery, Rejected(error.condition, str(error)), DeliveryState.RETURNED
            )
            return None

    def _presented(self, delivery: Delivery) -> None:
        end = self._end
        if self._mode == AcknowledgeMode.CLIENT:
            self._session._unacknowledged.append(delivery)
        end.presented.append(delivery)
        if not end.scheduled:
            end.channel.wake_receiver(end)

    # -- with a listener: called by the session's dispatcher ---------------------------------------------

    def _take_for_listener(self) -> tuple[Delivery, Message] | None:
        """The next message for the listener, presented; None if there is none now."""
        while self._listener is not None and self._transport.started and not self._closed:
            try:
                delivery = self._inbox.popleft()
            except IndexError:
                return None
            message = self._read(delivery)
            if message is not None:
                self._presented(delivery)
                return delivery, message
        return None

    def _listener_returned(self, delivery: Delivery) -> None:
        """AUTO and DUPS_OK: acknowledge now (CONTRACT C3)."""
        end = self._end
        end.accepted.append(delivery)
        if not end.scheduled:
            end.channel.wake_receiver(end)
