"""Steps of a message producer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from legato.client.calls.attributes import check_attribute
from legato.client.calls.described import described
from legato.client.calls.leaving import leaving
from legato.client.calls.patience import GIVEN_UP_AFTER_S, Losses, Patience
from legato.client.calls.ports import SessionPort
from legato.client.links.completion import Completion, CompletionCallable, CompletionListener
from legato.client.links.sender_end import SenderEnd
from legato.client.links.session_state import Send
from legato.client.mapping.translate import Envelope
from legato.client.messages.destinations import Destination, checked
from legato.client.messages.message import PRIORITY_DEFAULT, DeliveryMode, Message
from legato.client.messages.sendable import Sendable, message_of
from legato.client.steps import Await, Steps
from legato.errors import IllegalStateError, InvalidDestinationError, JMSError

log = logging.getLogger("legato.client")


class Route:
    """A producer's way to one destination."""

    __slots__ = ("end", "envelope", "id_prefix")

    def __init__(self, end: SenderEnd, envelope: Envelope, id_prefix: str) -> None:
        self.end = end
        self.envelope = envelope
        self.id_prefix = id_prefix


class ProducerSteps:
    """Sends messages to a destination, or, created without one, to that which each `send()` names (7).

    A send survives a failover: what is not confirmed is sent again, and the broker stores it once.

    Attributes:
        delivery_mode, priority, time_to_live_ms, delivery_delay_ms: for sends that do not say otherwise; a time to
            live of 0 is for ever.
        disable_message_id, disable_message_timestamp: whether messages go without these (7.2.2).
        duplicate_listener: is called with each message that the broker dropped because it remembers its duplicate id,
            before the call returns that heard of it: `send()`, `flush()`, `commit()` or `close()`. In asyncio it may
            be a coroutine function.
    """

    # Of the class too, for who asks the class what its objects have: mocks, for example.
    destination: Destination | None = None
    delivery_mode: DeliveryMode = DeliveryMode.PERSISTENT
    priority: int = PRIORITY_DEFAULT
    time_to_live_ms: int = 0
    delivery_delay_ms: int = 0
    disable_message_id: bool = False
    disable_message_timestamp: bool = False
    duplicate_listener: Callable[[Message], object] | None = None

    def __init__(self, session: SessionPort, destination: Destination | None, name: str) -> None:
        self.destination = destination
        self._session = session
        self._channel = session._channel
        self._guard = session._guard
        self._turn = session._guard.turn
        self._undertakings = session._undertakings
        self._transactions = session._transactions
        self._name = name
        self._window = session._connection._options.send_window
        self._route: Route | None = None
        """Where everything goes, for a producer of one destination."""
        self._routes: dict[Destination, Route] = {}
        self._opened = 0
        """Counts the links."""
        self._closed = False
        self._completion: Completion | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        check_attribute(self, name)
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        to = "to any destination" if self.destination is None else f"to {self.destination!r}"
        return described(self, to, "closed" if self._closed else "")

    # -- sending: a send is `_ready_route` if need be, `_submit`, and `_confirmed` if it is to be waited for ---

    def _ready_route(self, destination: Destination | None) -> Steps[Route]:
        """The way to a destination, once there is room for one more message on it."""
        if self._closed:
            raise IllegalStateError("The producer is closed.")
        if self._undertakings.current is not None:
            yield from self._undertakings.hear()
        route = self._route
        if route is None or destination is not None:
            if self.destination is not None:
                raise InvalidDestinationError(
                    f"This producer sends to {self.destination.name!r} only; create one without a destination to name "
                    "one with each send()."
                )
            target = checked(destination)
            known = self._routes.get(target)
            # The broker closes the link to a destination that is deleted. It may exist again, or be made by the next.
            route = known if known is not None and not known.end.closed else (yield from self._open_route(target))
        waiting = route.end.outgoing.waiting
        if len(waiting) >= self._window:
            # Woken at half, so that the two threads take turns in lumps.
            yield from self._guard.wait(lambda: len(waiting) <= self._window // 2, "send")
        return route

    def _move(self, session: SessionPort) -> None:
        """It has sent nothing yet, and is another session's from now on, with another group of brokers."""
        self._session._members.forget_producer(self)
        self._session = session
        self._channel = session._channel
        self._guard = session._guard
        self._undertakings = session._undertakings
        self._transactions = session._transactions
        session._members.producers.append(self)

    def _open_route(self, destination: Destination) -> Steps[Route]:
        """The way to a destination; to one of another group it is a link of the session below this one."""
        self._forget_closed()
        if self.destination is not None:
            return (yield from self._open_own_route(destination))
        route: Route = yield from self._session._groups.follow_redirects(
            "send",
            lambda: self._open_own_route(destination),
            lambda below: self._open_route_below(below, destination),
        )
        return route

    def _forget_closed(self) -> None:
        """Forget the ways to destinations that were deleted: a program may send to a new one again and again."""
        for destination, route in list(self._routes.items()):
            end = route.end
            if end.closed and not end.duplicates and not end.outgoing.under_way:
                end.channel.transport.post(end.close)
                self._routes.pop(destination, None)

    def _open_route_below(self, below: Any, destination: Destination) -> Steps[Route]:
        if below is self._session:
            # The producer has moved there.
            return (yield from self._open_own_route(destination))
        with self._guard.keeping_turn():
            producer = yield from below._factory.create_producer(destination)
        # Its link is this producer's, which closes it.
        below._members.forget_producer(producer)
        end = producer._route.end
        route = self._routes[destination] = Route(end, producer._route.envelope, producer._route.id_prefix)
        return route

    def _open_own_route(self, destination: Destination) -> Steps[Route]:
        self._guard.check_fits(destination.name)
        # Whoever is interrupted leaves a link behind that closes: the next one has another name.
        number = self._opened + 1
        self._opened = number
        name = self._name if number == 1 else f"{self._name}.{number}"
        channel = self._channel
        end = SenderEnd(channel, name, destination)
        envelope = Envelope(destination, self._session._connection._user_id)
        route = Route(end, envelope, f"ID:{name}:")
        try:
            channel.transport.post(channel.add_sender, end)
            yield from self._guard.wait(lambda: end.ready or end.closed, "create a producer")
            if end.error is not None:
                raise end.error
        except BaseException:
            channel.transport.post(end.close)
            raise
        self._routes[destination] = route
        if self.destination is not None:
            self._route = route
        return route

    def _send(
        self,
        message: Sendable,
        *,
        destination: Destination | None = None,
        delivery_mode: DeliveryMode | None = None,
        priority: int | None = None,
        time_to_live_ms: int | None = None,
        delivery_delay_ms: int | None = None,
        completion_listener: CompletionListener | CompletionCallable | None = None,
        duplicate_id: str | bytes | None = None,
    ) -> Steps[None]:
        """Send a message, or a body.

        Returns when the broker has stored it; at once in a transacted session, with a completion listener, or for a
        non-persistent message. Waits while the producer's window is full. Sets the message's headers. Interrupted
        while it waits for the confirmation (in asyncio: cancelled), the message is on its way all the same, and if the
        broker refuses it the exception listener hears so; interrupted before, it is not sent.

        Args:
            message: a `Message`, or the body of a new one: text, bytes, or an object that goes as JSON: a dict,
                a list, a dataclass, a Struct of msgspec or a model of pydantic. To set headers of such a message make
                it with `Session.create_json_message()`.
            destination: for a producer that was created without one.
            delivery_mode: this and the next three override the producer's.
            priority: 0 to 9, higher first.
            time_to_live_ms: milliseconds until it expires, 0 for never.
            delivery_delay_ms: milliseconds before which it is not delivered (Jakarta Messaging 7.9).
            completion_listener: called in another thread, in asyncio by another task, once the broker has stored the
                message or refused it. It may not use the session while somebody else does (7.3).
            duplicate_id: the application's name for the message. If the address remembers a message of that name, the
                broker drops this one; that is a success, and sets `message.duplicate` (CONTRACT E15). The property
                `_AMQ_DUPL_ID` does the same.

        Raises:
            IllegalStateError: the producer is closed, or somebody else uses the session.
            InvalidDestinationError: there is no destination, or two.
            MessageFormatError: a header, property or body cannot be sent.
            ResourceAllocationError: the broker has no room.
            JMSError: the broker refused it for another reason, or the connection is gone for good.
        """
        turn = self._turn
        if not turn.acquire(False):
            raise self._guard.misused()
        try:
            route = self._route
            if (
                route is None
                or destination is not None
                or self._undertakings.current is not None
                or len(route.end.outgoing.waiting) >= self._window
            ):
                route = yield from self._ready_route(destination)
            send = self._submit(
                route,
                message,
                delivery_mode,
                priority,
                time_to_live_ms,
                delivery_delay_ms,
                completion_listener,
                duplicate_id,
            )
            if send.awaited:
                yield from self._confirmed(send)
        finally:
            turn.release()
        if route.end.duplicates:
            yield from self._tell_duplicates()

    def _submit(
        self,
        route: Route,
        message: Sendable,
        delivery_mode: DeliveryMode | None,
        priority: int | None,
        time_to_live_ms: int | None,
        delivery_delay_ms: int | None,
        completion_listener: CompletionListener | CompletionCallable | None,
        duplicate_id: str | bytes | None,
    ) -> Send:
        """Hand a message to the I/O thread; returns the send, `awaited` if the caller is to wait for it."""
        if not isinstance(message, Message):
            message = message_of(message)
        channel = self._channel
        end = route.end
        if self._closed or end.closed or channel.error is not None:
            raise channel.error or end.error or IllegalStateError("The producer is closed.")
        mode = self.delivery_mode if delivery_mode is None else delivery_mode
        if priority is None:
            priority = self.priority
        ttl_ms = self.time_to_live_ms if time_to_live_ms is None else time_to_live_ms
        delay_ms = self.delivery_delay_ms if delivery_delay_ms is None else delivery_delay_ms
        try:
            fit = mode in (1, 2) and 0 <= priority <= 9 and ttl_ms >= 0 and delay_ms >= 0
            fit = fit and isinstance(ttl_ms + delay_ms, int)  # No fraction is in a sum of whole numbers.
        except TypeError:  # a text where a number is wanted
            fit = False
        if not fit:
            raise _wrong_header(mode, priority, ttl_ms, delay_ms)
        if duplicate_id is not None and not (isinstance(duplicate_id, str | bytes) and duplicate_id):
            raise JMSError(f"The duplicate id must be text or bytes, and not empty; not {duplicate_id!r}.")
        if message._headers_unread:
            message._read_headers()
        if message.duplicate:
            message.duplicate = False
        outgoing = end.outgoing
        number = outgoing.last_number + 1
        timestamp = time.time_ns() // 1_000_000
        message._message_id = None if self.disable_message_id else f"{route.id_prefix}{number}"
        message._timestamp = 0 if self.disable_message_timestamp else timestamp
        message._destination = route.envelope.destination
        message._delivery_mode = mode
        message._priority = priority
        message._expiration = timestamp + ttl_ms if ttl_ms else 0
        message._delivery_time = timestamp + delay_ms
        data = route.envelope.encode(message, ttl_ms, timestamp + delay_ms if delay_ms else 0, duplicate_id)
        send = Send(number, data, message)
        if message._source is not None:
            send.stream = message._source.stream
        outgoing.last_number = number
        transaction = self._transactions.current
        if transaction is not None:
            send.transaction = transaction
        if completion_listener is not None:
            completion = self._completion
            if completion is None or completion.listener is not completion_listener:
                completion = self._completion = Completion(completion_listener, self._guard.completions)
            send.completion = completion
        elif transaction is None:
            if mode == DeliveryMode.PERSISTENT:
                send.awaited = True
            else:
                send.watched = False
        if transaction is None:
            outgoing.waiting.append(send)
            # Who waits looks whether the session's own connection has ended, not another group's.
            if end.channel.transport.deaf and not (send.awaited and end.channel is channel):
                _withdraw(end, send)
        else:
            # One step: a transaction must not have what is not sent.
            transaction.sends.append((end, send)); outgoing.waiting.append(send)  # fmt: skip  # noqa: E702
        if not end.scheduled:
            end.channel.wake_sender(end)
        if end.channel is not channel:
            # Whoever waits hurries the session's own.
            end.channel.transport.hurry()
        return send

    def _confirmed(self, send: Send) -> Steps[None]:
        try:
            yield from self._guard.wait(lambda: send.done, "send", unconfirmed=True)
        except BaseException:
            # Nobody will ask for its outcome now: a refusal goes to the exception listener.
            send.watched = False
            raise
        if send.error is not None:
            raise send.error

    def _flush(self, timeout_s: float | None = None) -> Steps[None]:
        """Wait until every asynchronous send is confirmed or refused, and its completion listener has returned.

        An exception or failover listener that calls it waits for the confirmations only: completion listeners are
        called after it.

        Raises:
            IllegalStateError: one of the session's own completion listeners asks, which would wait for itself (7.3.4);
                or somebody else uses the session.
            JMSError: that took longer than `timeout_s` seconds, or the connection is gone for good.
        """
        self._guard.check_not_completing("flush a producer of")
        with self._guard.used():
            if not (yield from self._guard.wait(self._flushed, "flush", timeout_s, unconfirmed=True)):
                raise JMSError(f"Not all messages were confirmed within {timeout_s:g} s.", code="TIMEOUT")
        yield from self._tell_duplicates()

    def _flushed(self) -> bool:
        # First what is under way: when it is done its listener is still to be called.
        return not self._under_way() and self._guard.has_completed

    def _under_way(self) -> bool:
        ends = [route.end for route in self._routes.values()]
        return any(end.outgoing.under_way for end in ends)

    def _tell_duplicates(self) -> Steps[None]:
        """Call the listener for messages that turned out to be duplicates."""
        for route in list(self._routes.values()):
            duplicates = route.end.duplicates
            while duplicates:
                message = duplicates.popleft()
                try:
                    result = None if self.duplicate_listener is None else self.duplicate_listener(message)
                    if result is not None:
                        yield Await(result)
                except Exception:
                    log.exception("a duplicate listener raised")

    def _interrupted(self, interruption: BaseException) -> None:
        self._session._interrupted(interruption)

    # -- the end -----------------------------------------------------------------------------------------

    def _close(self) -> Steps[None]:
        """Wait for what is not confirmed yet, then close (Jakarta Messaging 7.3.4). May be called again.

        Waits at most for the connection's option `close_timeout_s`, be there a broker or not.

        Raises:
            JMSError: so many messages were not confirmed by then, and are given up (code `TIMEOUT`). Their completion
                listeners have heard so.
        """
        if self._channel.transport.disowned:
            return
        self._guard.check_not_completing("close a producer of")
        # Called again all of it is done again, which changes nothing: the first call may have been interrupted.
        self._closed = True
        channel = self._channel
        ends = [route.end for route in self._routes.values()]
        for end in ends:
            # Another group's session is to forget also one that the broker has closed.
            if not end.closed or end.channel is not channel:
                end.channel.transport.post(end.close)
        transport = channel.transport
        patience = Patience("producer", self._session._connection._options.close_timeout_s, transport)
        channels: list[Any] = [channel, *(end.channel for end in ends)]
        losses = [Losses(each) for each in dict.fromkeys(channels)]
        transacted = self._transactions.current is not None

        def over() -> bool:
            # What a transaction has sent is confirmed by its commit: the links close when it went out.
            left_to_commit = transacted and transport.wire is None
            return left_to_commit or (all(end.closed for end in ends) and not self._under_way())

        if not (yield from self._guard.wait_closed(over, patience.for_sends_s)) and not transacted:
            error = patience.error_of_send()
            for end in ends:
                end.channel.transport.post(end.give_up, error)
            yield from self._guard.wait_closed(over, GIVEN_UP_AFTER_S)
        if not transacted:
            yield from self._guard.wait_for_completions()
        self._session._members.forget_producer(self)
        yield from self._tell_duplicates()
        for each in losses:
            each.tell(patience)
        patience.check()

    def _leave(self, error: BaseException | None) -> Steps[None]:
        return leaving(self._close(), self._channel.transport, error)


def _withdraw(end: SenderEnd, send: Send) -> None:
    """The connection was lost for good while a message was encoded: if the I/O thread has not seen it, nobody will.

    Raises:
        JMSError: the message is not sent.
    """
    try:
        end.outgoing.waiting.remove(send)
    except ValueError:
        return  # The thread has told of it as it ended.
    raise end.error or JMSError("The connection is closed.")


def _wrong_header(mode: object, priority: object, time_to_live_ms: object, delivery_delay_ms: object) -> JMSError:
    """Which of a message's headers cannot be sent, and what it may be."""
    if mode not in (1, 2):
        return JMSError(f"delivery_mode must be one of DeliveryMode, not {mode!r}.")
    if priority not in range(10):
        return JMSError(f"priority must be a whole number from 0 to 9, not {priority!r}.")
    for name, value in (("time_to_live_ms", time_to_live_ms), ("delivery_delay_ms", delivery_delay_ms)):
        if not isinstance(value, int) or value < 0:
            return JMSError(f"{name} must be a whole number of milliseconds, at least 0, not {value!r}.")
    raise AssertionError("each of them can be sent")
