"""Sending messages: one by one, each confirmed, or many in flight with a completion listener."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from legato.client.destinations import Destination, checked_queue
from legato.client.messages import PRIORITY_DEFAULT, DeliveryMode, Message
from legato.client.sender_end import SenderEnd
from legato.client.session_state import Send
from legato.client.translate import Envelope
from legato.errors import IllegalStateError, InvalidDestinationError, JMSError, MessageFormatError

if TYPE_CHECKING:
    from legato.client.session import Session

log = logging.getLogger("legato.client")


class CompletionListener(Protocol):
    """Hears what became of asynchronous sends (Jakarta Messaging 7.3)."""

    def on_completion(self, message: Message) -> None:
        """The broker has stored the message."""

    def on_exception(self, message: Message, error: JMSError) -> None:
        """The broker has not stored the message."""


CompletionCallable = Callable[[Message, JMSError | None], None]
"""A function does as a completion listener too; `error` is None if the broker has stored the message."""


class MessageProducer:
    """Sends messages to a queue, or, created without one, to the queue each `send()` names (Jakarta Messaging 6.2.5).

    A send survives a failover: what is not confirmed is sent again, and the broker stores it once.

    Attributes:
        delivery_mode, priority, time_to_live_ms: for sends that do not say otherwise; a time to live of 0 is for ever.
    """

    def __init__(self, session: Session, destination: Destination | None, name: str) -> None:
        self.destination = destination
        self.delivery_mode = DeliveryMode.PERSISTENT
        self.priority = PRIORITY_DEFAULT
        self.time_to_live_ms = 0
        self._session = session
        self._name = name
        self._id_prefix = f"ID:{name}:"
        self._routes: dict[Destination, _Route] = {}
        self._closed = False
        self._completions_owed = 0
        self._completions_paid = 0
        self._completion: tuple[Any, Callable[[Send], None]] | None = None
        self._route = None if destination is None else self._new_route(destination)

    def send(
        self,
        message: Message,
        *,
        destination: Destination | None = None,
        delivery_mode: DeliveryMode | None = None,
        priority: int | None = None,
        time_to_live_ms: int | None = None,
        completion_listener: CompletionListener | CompletionCallable | None = None,
    ) -> None:
        """Send a message.

        Returns when the broker has stored it; at once in a transacted session, with a completion listener, or for a
        non-persistent message. Waits while the producer's window is full. Sets the message's headers.

        Args:
            destination: for a producer that was created without one.
            delivery_mode: this and the next two override the producer's.
            priority: 0 to 9, higher first.
            time_to_live_ms: milliseconds until it expires, 0 for never.
            completion_listener: called in another thread once the broker has stored the message or refused it. It may
                not use the session while another thread does.

        Raises:
            IllegalStateError: the producer is closed, or another thread uses the session.
            InvalidDestinationError: there is no destination, or two.
            MessageFormatError: a header, property or body cannot be sent.
            ResourceAllocationError: the broker has no room.
            JMSError: the broker refused it for another reason, or the connection is gone for good.
        """
        session = self._session
        if not session._lock.acquire(False):
            raise session._misused()
        try:
            if self._closed:
                raise IllegalStateError("The producer is closed.")
            route = self._route
            if route is None or destination is not None:
                route = self._route_to(destination)
            if route.end.closed or session._channel.error is not None:
                raise self._why_closed(route)
            mode = self.delivery_mode if delivery_mode is None else delivery_mode
            send = self._prepare(
                route,
                message,
                mode,
                self.priority if priority is None else priority,
                self.time_to_live_ms if time_to_live_ms is None else time_to_live_ms,
            )
            transaction = session._transaction
            if completion_listener is not None:
                self._completions_owed += 1
                send.completion = self._completion_of(completion_listener)
            elif transaction is None and mode != DeliveryMode.PERSISTENT:
                send.watched = False
            if transaction is not None:
                send.transaction = transaction
                transaction.sends.append((route.end, send))
            self._enqueue(route.end, send)
            if completion_listener is None and transaction is None and send.watched:
                session._wait(lambda: send.done, "send")
                if send.error is not None:
                    raise send.error
        finally:
            session._lock.release()

    def _prepare(self, route: _Route, message: Message, mode: int, priority: int, ttl_ms: int) -> Send:
        if not isinstance(message, Message):
            raise MessageFormatError(f"A message is needed, such as TextMessage('tea'); this is {message!r}.")
        if mode not in (1, 2) or not 0 <= priority <= 9 or ttl_ms < 0:
            raise JMSError(
                "The delivery mode must be one of DeliveryMode, the priority from 0 to 9 and the time to live at "
                f"least 0; not {mode!r}, {priority!r} and {ttl_ms!r}."
            )
        if message._headers_unread:
            message._read_headers()
        outgoing = route.end.outgoing
        outgoing.last_number = number = outgoing.last_number + 1
        timestamp = time.time_ns() // 1_000_000
        values = message.__dict__
        values["_message_id"] = f"{route.id_prefix}{number}"
        values["_timestamp"] = timestamp
        values["_destination"] = route.envelope.destination
        values["_delivery_mode"] = mode
        values["_priority"] = priority
        values["_expiration"] = timestamp + ttl_ms if ttl_ms else 0
        return Send(number, route.envelope.encode(message, ttl_ms), message)

    def _enqueue(self, end: SenderEnd, send: Send) -> None:
        waiting = end.outgoing.waiting
        window = self._session._send_window
        if len(waiting) >= window:
            # Woken at half, so that the two threads take turns in lumps.
            self._session._wait(lambda: len(waiting) <= window // 2, "send")
        waiting.append(send)
        if not end.scheduled:
            self._session._channel.wake_sender(end)

    def _completion_of(self, listener: CompletionListener | CompletionCallable) -> Callable[[Send], None]:
        if self._completion is None or self._completion[0] is not listener:
            call = _caller_of(listener)

            def complete(send: Send) -> None:
                try:
                    call(send.message, send.error)
                except Exception:
                    log.exception("a completion listener raised")
                self._completions_paid += 1
                if self._completions_paid == self._completions_owed:
                    self._session._channel.gate.open()

            self._completion = (listener, complete)
        return self._completion[1]

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every asynchronous send is confirmed or refused, and its completion listener has returned.

        Raises:
            JMSError: that took longer than `timeout_s` seconds, or the connection is gone for good.
        """
        with self._session._used():
            if not self._session._wait(self._flushed, "flush", timeout_s):
                raise JMSError(f"Not all messages were confirmed within {timeout_s:g} s.", code="TIMEOUT")

    def _flushed(self) -> bool:
        if self._completions_paid < self._completions_owed:
            return False
        if self._session._transaction is not None:
            return True
        ends = [route.end for route in self._routes.values()]
        return not any(end.outgoing.waiting or end.outgoing.unconfirmed for end in ends)

    def close(self) -> None:
        """Wait for what is not confirmed yet, then close (Jakarta Messaging 6.2.5.5). May be called again."""
        if self._closed:
            return
        self._closed = True
        channel = self._session._channel
        ends = [route.end for route in self._routes.values()]
        for end in ends:
            channel.transport.post(end.close)
        self._session._wait_closed(lambda: all(end.closed for end in ends))
        self._session._forget_producer(self)

    def __enter__(self) -> MessageProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _route_to(self, destination: Destination | None) -> _Route:
        if self.destination is not None:
            raise InvalidDestinationError(
                f"This producer sends to {self.destination.name!r} only; create one without a destination to name one "
                "with each send()."
            )
        queue = checked_queue(destination)
        route = self._routes.get(queue)
        return self._new_route(queue) if route is None else route

    def _new_route(self, destination: Destination) -> _Route:
        number = len(self._routes) + 1
        name = self._name if number == 1 else f"{self._name}.{number}"
        channel = self._session._channel
        end = SenderEnd(channel, name, destination.name, destination.capability)
        route = self._routes[destination] = _Route(end, Envelope(destination), f"ID:{name}:")
        channel.transport.post(channel.add_sender, end)
        self._session._wait(lambda: end.ready or end.closed, "create a producer")
        if end.error is not None:
            del self._routes[destination]
            raise end.error
        return route

    def _why_closed(self, route: _Route) -> JMSError:
        return self._session._channel.error or route.end.error or IllegalStateError("The producer is closed.")


class _Route:
    """A producer's way to one destination."""

    __slots__ = ("end", "envelope", "id_prefix")

    def __init__(self, end: SenderEnd, envelope: Envelope, id_prefix: str) -> None:
        self.end = end
        self.envelope = envelope
        self.id_prefix = id_prefix


def _caller_of(listener: CompletionListener | CompletionCallable) -> CompletionCallable:
    if callable(listener):
        return listener

    def call(message: Message, error: JMSError | None) -> None:
        if error is None:
            listener.on_completion(message)
        else:
            listener.on_exception(message, error)

    return call
