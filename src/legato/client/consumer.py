"""Consumers: receive messages one by one, by iteration, or with a listener.

Do not edit: `tools/make_faces.py` writes this from `calls/consumer_steps.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import get_ident
from types import TracebackType
from typing import TypeVar, cast, overload

from legato.client.calls.consumer_steps import _T, ConsumerSteps, expectation, wrong_timeout
from legato.client.calls.consumer_work import MessageListener
from legato.client.calls.leaving import in_flight
from legato.client.calls.turn import ThreadTurn
from legato.client.messages.message import Message
from legato.client.steps import drive, leave_block, mend

__all__ = ["MessageConsumer", "MessageListener"]

_Message = TypeVar("_Message", bound=Message)


class MessageConsumer(ConsumerSteps):
    """Receives messages; iteration receives for ever, until it is closed (Jakarta Messaging 8).

    It survives a failover: what it has not seen comes again, what the application has is not presented again unless the
    `failover_contract` wants that.
    """

    @overload
    def receive(self, *, timeout_s: float | None = None) -> Message | None: ...
    @overload
    def receive(self, timeout_s: float | None, /) -> Message | None: ...
    @overload
    def receive(self, kind: type[_Message], timeout_s: float | None = None) -> _Message | None: ...
    def receive(
        self, kind: type[Message] | float | None = None, timeout_s: float | None = None, *, timeout: None = None
    ) -> Message | None:
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
        if timeout is not None:
            raise wrong_timeout("receive", timeout)
        # `_receive` without its steps, and its turn without calls: a message that is here pays for nothing else.
        turn: ThreadTurn = self._turn  # type: ignore[assignment]
        holder = turn.holder
        thread = get_ident()
        message: Message | None
        try:
            if kind is not None:
                kind, timeout_s = expectation(kind, timeout_s)
                if kind is not None:
                    end = self._end
                    message = drive(self._getting(kind, timeout_s))
                    end.handing = None; return message  # fmt: skip  # noqa: E702
            if holder.setdefault("thread", thread) != thread:
                raise self._guard.misused()
            try:
                if (
                    self._listener is not None
                    or self._undertakings.current is not None
                    or (message := self._take()) is None
                ):
                    message = drive(self._receiving(timeout_s))
            finally:
                if turn.keeper != thread:
                    holder.pop("thread", None)
            if turn.bells:
                turn.gate.open()
            # One step: no signal handler runs between its halves.
            self._end.handing = None; return message  # fmt: skip  # noqa: E702
        except BaseException as interruption:
            mend(self, interruption)
            if turn.bells:
                turn.gate.open()
            raise

    @overload
    def receive_no_wait(self) -> Message | None: ...
    @overload
    def receive_no_wait(self, kind: type[_Message]) -> _Message | None: ...
    def receive_no_wait(self, kind: type[Message] | None = None) -> Message | None:
        """The next message if the broker has one now; asks it, if none is here (Jakarta Messaging 8.5).

        None also if nothing at all is heard from the broker for 5 s; what comes later is for the next call.

        If it is interrupted, what `receive()` says of that holds.

        Args:
            kind: the class of message that is expected; see `receive()`.

        Raises:
            MessageFormatError: the message is not of that `kind`; see `receive()`.
        """
        try:
            end = self._end
            value = drive(self._getting_now(kind))
            # One step: no signal handler runs between its halves.
            end.handing = None; return value  # fmt: skip  # noqa: E702
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def receive_body(self, kind: type[_T], timeout_s: float | None = None, *, timeout: None = None) -> _T | None:
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
        if timeout is not None:
            raise wrong_timeout("receive_body", timeout)
        try:
            end = self._end
            value = drive(self._getting_body(kind, timeout_s))
            # One step: no signal handler runs between its halves.
            end.handing = None; return value  # fmt: skip  # noqa: E702
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def receive_body_no_wait(self, kind: type[_T]) -> _T | None:
        """The next message's body if the broker has one now; see `receive_body`."""
        try:
            end = self._end
            value = drive(self._getting_body_now(kind))
            # One step: no signal handler runs between its halves.
            end.handing = None; return value  # fmt: skip  # noqa: E702
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def close(self) -> None:
        """Close: what was not received goes back. May be called again.

        Without a connection it does not wait, and with one at most for the option `close_timeout_s`: the session has
        acknowledgements confirmed that are not yet.

        In CLIENT and INDIVIDUAL mode what was received can still be acknowledged, or given back by `recover()`; until
        then a durable subscription has an active consumer.

        A `receive()` that waits elsewhere returns None. A listener that runs is waited for, and its message is
        acknowledged as ever when it returns (Jakarta Messaging's `MessageConsumer.close`): it must not wait for who
        closes. It may close its own consumer, which is done when it has returned.
        """
        try:
            drive(self._leave(in_flight()))
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def __iter__(self) -> Iterator[Message]:
        # No line of Python's lies between `receive()` and who iterates, where a message could be lost.
        return cast(Iterator[Message], iter(self.receive, None))

    def __enter__(self) -> MessageConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        leave_block(self, error)
