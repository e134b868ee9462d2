"""Steps of a message consumer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from legato.client.calls.consumer_work import ConsumerWork, MessageListener
from legato.client.calls.leaving import SILENT_WAIT_S, leaving
from legato.client.links.deliveries import HERE
from legato.client.links.subscriptions import Subscriptions
from legato.client.mapping.received import Received
from legato.client.messages.message import Message
from legato.client.messages.stream_message import StreamMessage
from legato.client.steps import Steps
from legato.errors import IllegalStateError, JMSError, MessageFormatError, ProtocolError

__all__ = ["ConsumerSteps", "MessageListener"]

log = logging.getLogger("legato.client")

LAST_LOOK_S = 1.0
"""So long `receive()` waits, when its time is over, for the broker to say that no message is on its way."""

_T = TypeVar("_T")

Check = Callable[[Message], None]
"""Raises MessageFormatError for a message that is not wanted."""


class ConsumerSteps(ConsumerWork):
    """Receives messages; iteration receives for ever, until it is closed (Jakarta Messaging 8).

    It survives a failover: what it has not seen comes again, what the application has is not presented again unless the
    `failover_contract` wants that.
    """

    # -- one by one --------------------------------------------------------------------------------------

    def _take(self) -> Message | None:
        """The next message if one is here and may be had, with what the acknowledgement mode wants done about it.

        It is the call's until `handing` of the consumer's end is None: whoever calls sees to that with its last step,
        so that a call that is interrupted has not had it.
        """
        end = self._end
        inbox = self._inbox
        if end.handing is not None:
            self._take_back()
        while self._transport.started and not self._closed:
            # `_first` and `_read` without calls: this runs for each message received.
            try:
                delivery = inbox[0]
            except IndexError:
                return None
            if delivery.state is not HERE and self._first() is not delivery:
                continue
            try:
                received = Received(delivery.data, self.destination)
            except ProtocolError as error:
                self._refuse(delivery, error)
                continue
            if received.again and not delivery.announced:
                return None
            message: Message = received.kind.received(
                received, self._acknowledgements.acknowledger(delivery) if self._by_application else self._acknowledge
            )
            end.handing = delivery
            try:
                first = inbox.popleft()
            except IndexError:
                first = None
            if first is not delivery:
                # A failover has emptied the inbox.
                if first is not None:
                    inbox.appendleft(first)
                end.handing = None
                continue
            if self._automatic or self._lazy:
                end.accepted.append(delivery)
                if not end.scheduled:
                    end.channel.wake_receiver(end)
            else:
                self._presented(delivery, message)
            return message
        return None

    def _receive(
        self, kind: type[Message] | float | None = None, timeout_s: float | None = None
    ) -> Steps[Message | None]:
        """The next message; waits for one at most `timeout_s` seconds, for ever if None.

        Args:
            kind: the class of message that is expected, such as `TextMessage`; what is returned has that type. May be
                left out: `receive(5)` waits 5 seconds for any message.

        If it is interrupted (in asyncio: cancelled; otherwise by a signal handler that raises, as that of Ctrl-C) the
        next call returns the message that this one would have returned, and until then nobody has had it: it is not
        acknowledged, in no transaction, and comes again if the consumer closes. What `receive()` has returned the
        application has; where it may be interrupted before it has done its work, CLIENT mode or a transaction keeps
        the message for it, AUTO and DUPS_OK have acknowledged it.

        Returns:
            None if none came in time, or if the consumer is closed, by whoever (CONTRACT A22).

        Raises:
            IllegalStateError: the consumer has a listener, the session is closed, or somebody else uses it.
            TransactionRolledBackError: with the failover contract `gigaspaces`, once, if a failover aborted the
                session's transaction or found unacknowledged messages (CONTRACT A11).
            MessageFormatError: the message is not of that `kind`. In AUTO and DUPS_OK it stays the next message, for a
                `receive()` that expects it or expects nothing. Else it is received like any other: it is for
                `recover()` or `rollback()` to give it back, or for `acknowledge_all()` or `commit()` to be done with
                it (as Jakarta Messaging 8.6 says of bodies).
            JMSError: the connection is gone for good; or, with the failover contract `hornetq`, it was lost during the
                call (code `UNBLOCKED`, CONTRACT E11).
        """
        message = yield from self._getting(kind, timeout_s)
        self._end.handing = None
        return message

    def _getting(
        self, kind: type[Message] | float | None = None, timeout_s: float | None = None
    ) -> Steps[Message | None]:
        """`receive()` without its last step."""
        expected, timeout_s = expectation(kind, timeout_s)
        if expected is not None:
            return (yield from self._getting_such(lambda message: _check_class(message, expected), timeout_s))
        turn = self._turn
        if not turn.acquire(False):
            raise self._guard.misused()
        try:
            return (yield from self._receiving(timeout_s))
        finally:
            turn.release()

    def _receiving(self, timeout_s: float | None, check: Check | None = None) -> Steps[Message | None]:
        """`receive()`, for who has the session's turn; a message that `check` raises for stays the next."""
        self._check_no_listener()
        deadline: float | None = None
        if self._undertakings.current is not None:
            deadline = None if timeout_s is None else time.monotonic() + timeout_s
            if not (yield from self._undertakings.hear(lambda: self._closed, timeout_s)):
                return None
        while True:
            if self._channel.aborted is not None and not self._closed:
                yield from self._acknowledgements.raise_abort()
            if check is not None:
                self._check_next(check)
            message = self._take()
            if message is not None or self._closed:
                self._session._transactions.untold = None
                return message
            if self._is_suspect() and self._transport.started:
                yield from self._announce()
                continue
            if timeout_s is not None:
                now = time.monotonic()
                deadline = deadline or now + timeout_s
                if now >= deadline:
                    return (yield from self._last_look()) if self._pulls else (yield from self._taking())
            yield from self._await_message(deadline)

    def _last_look(self) -> Steps[Message | None]:
        """Without a prefetch: take the request back, and what came at the last moment.

        If a broker that is slow or silent does not answer, a message that comes yet is the next call's.
        """
        answered: list[bool] = []
        self._transport.post(self._end.withdraw, lambda: answered.append(True))
        yield from self._guard.wait(lambda: answered or self._closed, "receive", LAST_LOOK_S)
        return (yield from self._taking())

    def _taking(self) -> Steps[Message | None]:
        """What is here; raises what ended its link if nothing can come any more."""
        while (message := self._take()) is None and self._transport.started and self._is_suspect():
            yield from self._announce()
        if message is None and self._end.error is not None and not self._closed:
            raise self._end.error
        return message

    def _receive_no_wait(self, kind: type[Message] | None = None) -> Steps[Message | None]:
        """The next message if the broker has one now; asks it, if none is here (Jakarta Messaging 8.5).

        None also if nothing at all is heard from the broker for 5 s; what comes later is for the next call.

        If it is interrupted, what `receive()` says of that holds.

        Args:
            kind: the class of message that is expected; see `receive()`.

        Raises:
            MessageFormatError: the message is not of that `kind`; see `receive()`.
        """
        message = yield from self._getting_now(kind)
        self._end.handing = None
        return message

    def _getting_now(self, kind: type[Message] | None = None) -> Steps[Message | None]:
        """`receive_no_wait()` without its last step."""
        if kind is not None:
            expected = expected_class(kind)
            return (yield from self._getting_such(lambda message: _check_class(message, expected), no_wait=True))
        turn = self._turn
        if not turn.acquire(False):
            raise self._guard.misused()
        try:
            self._check_no_listener()
            yield from self._arrival()
            return (yield from self._taking())
        finally:
            turn.release()

    def _arrival(self) -> Steps[None]:
        """Have what the broker has now."""
        if self._undertakings.current is not None:
            yield from self._undertakings.hear(lambda: self._closed)
        if self._channel.aborted is not None and not self._closed:
            yield from self._acknowledgements.raise_abort()
        if not self._inbox and self._transport.started and not self._closed:
            answered: list[bool] = []
            self._transport.post(self._end.probe, lambda: answered.append(True))

            def is_over() -> object:
                return answered or self._inbox or self._closed

            heard: int | None = None
            while self._transport.heard != heard:
                heard = self._transport.heard
                if (yield from self._guard.wait(is_over, "receive", SILENT_WAIT_S)):
                    return

    def _receive_body(self, kind: type[_T], timeout_s: float | None = None) -> Steps[_T | None]:
        """The next message's body, of type `kind`; waits for one as `receive()` does (Jakarta Messaging 8.6).

        Args:
            kind: `str`, `bytes`, `dict`, or the type of an object; or a dataclass, a Struct of msgspec, a model of
                pydantic, a TypedDict or `list[Order]`, for which the body is read as `Message.json()` does.

        Returns:
            None if no message came in time, or if it has an empty body.

        Raises:
            MessageFormatError: the message has no body of that type. In AUTO and DUPS_OK it stays the next message:
                `receive()` takes it. Else it is received, for `recover()` or `rollback()` to give back.
        """
        body = yield from self._getting_body(kind, timeout_s)
        self._end.handing = None
        return body

    def _receive_body_no_wait(self, kind: type[_T]) -> Steps[_T | None]:
        """The next message's body if the broker has one now; see `receive_body`."""
        body = yield from self._getting_body_now(kind)
        self._end.handing = None
        return body

    def _getting_body_now(self, kind: type[_T]) -> Steps[_T | None]:
        """`receive_body_no_wait()` without its last step."""
        return (yield from self._getting_body(kind, no_wait=True))

    def _getting_body(
        self, kind: type[_T], timeout_s: float | None = None, *, no_wait: bool = False
    ) -> Steps[_T | None]:
        """`receive_body()` without its last step."""
        bodies: list[_T | None] = []

        def check(message: Message) -> None:
            bodies[:] = [_body_of(message, kind)]

        message = yield from self._getting_such(check, timeout_s, no_wait=no_wait)
        return None if message is None else bodies[0]

    def _getting_such(
        self, check: Check, timeout_s: float | None = None, *, no_wait: bool = False
    ) -> Steps[Message | None]:
        """The next message, without the last step; `check` raises MessageFormatError for one that is not wanted.

        In AUTO and DUPS_OK, which would acknowledge it, it stays the next message; else the application has it.
        """
        stays = self._automatic or self._lazy
        turn = self._turn
        if not turn.acquire(False):
            raise self._guard.misused()
        try:
            if no_wait:
                self._check_no_listener()
                yield from self._arrival()
                timeout_s = 0
            message = yield from self._receiving(timeout_s, check if stays else None)
            try:
                if message is not None:
                    check(message)
            except BaseException as error:
                if stays or not isinstance(error, MessageFormatError):
                    self._take_back()  # a failover came between the look at the first message and its taking
                else:
                    self._end.handing = None  # the application is told of it: it has it
                raise
            return message
        finally:
            turn.release()

    def _check_next(self, check: Check) -> None:
        self._take_back()
        while self._transport.started and not self._closed:
            delivery = self._first()
            if delivery is None:
                return
            message = self._read(delivery)
            if message is not None:
                check(message)
                return

    def _check_no_listener(self) -> None:
        if self._listener is not None:
            raise IllegalStateError("receive() cannot be called while the consumer has a message listener.")

    def _await_message(self, deadline: float | None) -> Steps[None]:
        end = self._end
        channel = self._channel
        if end.accepted and not end.scheduled:
            channel.wake_receiver(end)
        if end.error is not None:
            raise end.error
        if self._transport.awaits_start:
            self._transport.awaits_start = False
            log.warning("! A consumer waits on a connection that was not started: call connection.start().")
        if self._pulls:
            # If the connection is stopped, that is done when it is started.
            self._transport.post(end.want)
        remaining_s = None if deadline is None else deadline - time.monotonic()
        try:
            yield from self._guard.wait(
                lambda: self._closed or end.closed or channel.aborted or (self._inbox and self._transport.started),
                "receive",
                remaining_s,
            )
        except BaseException:
            if self._pulls:
                self._transport.post(end.withdraw, lambda: None)
            raise

    # -- the end -----------------------------------------------------------------------------------------

    def _close(self) -> Steps[None]:
        """Close: what was not received goes back. May be called again.

        Without a connection it does not wait, and with one at most for the option `close_timeout_s`: the session has
        acknowledgements confirmed that are not yet.

        In CLIENT and INDIVIDUAL mode what was received can still be acknowledged, or given back by `recover()`; until
        then a durable subscription has an active consumer.

        A `receive()` that waits elsewhere returns None. A listener that runs is waited for, and its message is
        acknowledged as ever when it returns (Jakarta Messaging's `MessageConsumer.close`): it must not wait for who
        closes. It may close its own consumer, which is done when it has returned.
        """
        if self._transport.disowned:
            return
        # Called again all of it is done again, which changes nothing: the first call may have been interrupted.
        self._closed = True
        self._listener = None
        self._channel.gate.open()
        dispatcher = self._session._listeners.dispatcher
        timeout_s = self._session._connection._options.close_timeout_s
        if dispatcher is not None and dispatcher.serving is self:
            if dispatcher.waits_for_asker:
                if self not in dispatcher.closing:
                    dispatcher.closing.append(self)
                return
            with self._guard.held():
                yield from dispatcher.wait_listened(self)
            began = time.monotonic()
            yield from dispatcher.wait_served(self, timeout_s)
            timeout_s = max(began + timeout_s - time.monotonic(), 0.0)
        yield from self._end_closing(timeout_s)

    def _leave(self, error: BaseException | None) -> Steps[None]:
        return leaving(self._close(), self._transport, error)

    def _release(self) -> None:
        """Have its link closed, unless a listener has one of its messages yet: the dispatcher calls this then.

        Who has closed it may not come to note that: who wants its subscription waits for its end.
        """
        end = self._end
        session = self._session
        dispatcher = session._listeners.dispatcher
        if dispatcher is not None and dispatcher.serving is self:
            return
        session._members.begin_closing(self)
        session._members.note_listeners()
        if not (end.closed or end.released):
            self._transport.post(end.release)

    def _end_closing(self, timeout_s: float) -> Steps[None]:
        end = self._end
        transport = self._transport
        asked: list[bool] = []

        def told() -> None:
            asked.append(True)
            self._channel.touch()

        if not end.closed and not end.released:
            self._session._members.begin_closing(self)
            transport.post(end.release)
            transport.post(told)
        yield from self._guard.wait_closed(
            lambda: end.closed or end.released or (asked and transport.wire is None), timeout_s
        )
        closed = end.closed
        if closed and end.error is None:
            # What came over a link that the broker has ended comes again: the next acknowledgement says so.
            self._acknowledgements.forget_consumer(end)
        self._session._members.forget_consumer(self, closed=closed)

    def _take_subscription(self, subscriptions: Subscriptions) -> str:
        """Receive from its subscription; returns the name of the link.

        Raises:
            IllegalStateError: it has another consumer.
        """
        name, source = self._subscription, self._end.source
        assert name is not None
        if not source.shared:
            return subscriptions.take_unshared(name, self)
        return subscriptions.take_shared(name, self, durable=source.durable, everybodys=source.everybodys)

    def _release_subscription(self) -> None:
        """Its subscription may be received from anew. May be called again."""
        name, source = self._subscription, self._end.source
        if name is not None:
            subscriptions = self._session._connection._subscriptions
            subscriptions.release(name, self, durable=source.durable, shared=source.shared)


def expectation(
    kind: type[Message] | float | None, timeout_s: float | None
) -> tuple[type[Message] | None, float | None]:
    """The class and the seconds that `receive()` was called with: its first argument may be either.

    Raises:
        JMSError: it is neither.
    """
    if kind is None:
        return None, timeout_s
    if isinstance(kind, int | float):
        if timeout_s is not None:
            raise JMSError(f"receive() got two times to wait, {kind!r} and {timeout_s!r}.")
        return None, kind
    return expected_class(kind), timeout_s


def expected_class(kind: object) -> type[Message]:
    """`kind`, if it is a class of messages.

    Raises:
        JMSError: it is not.
    """
    if isinstance(kind, type) and issubclass(kind, Message):
        return kind
    if isinstance(kind, type):
        raise JMSError(
            f"receive() returns messages: call receive_body({kind.__name__}) for the next body, or receive() and then "
            f"message.json({kind.__name__})."
        )
    raise JMSError(f"A class of messages is needed, such as TextMessage, or seconds to wait; this is {kind!r}.")


def wrong_timeout(method: str, timeout: object) -> TypeError:
    """For who spells `timeout_s` as others do: what to write instead."""
    return TypeError(
        f"{method}() waits for timeout_s seconds: write timeout_s={timeout!r} instead of timeout={timeout!r}, "
        "and divide it by 1000 if these are Jakarta Messaging's milliseconds."
    )


def _check_class(message: Message, kind: type[Message]) -> None:
    if not isinstance(message, kind):
        raise MessageFormatError(
            f"The next message, {message.message_id or 'one without an id'}, is a {type(message).__name__} and not a "
            f"{kind.__name__}: receive it with receive(), or with receive({type(message).__name__})."
        )


def _body_of(message: Message, kind: type[_T]) -> _T | None:
    if type(message) is Message or isinstance(message, StreamMessage):
        raise MessageFormatError(f"A {type(message).__name__} has no body that can be received by itself.")
    return message.get_body(kind)
