"""Consumers for asyncio: receive messages one by one, by iteration, or with a listener.

Do not edit: `tools/make_faces.py` writes this from `calls/consumer_steps.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TypeVar, overload

from legato.client.aio.steps import drive, leave_block
from legato.client.calls.consumer_steps import _T, ConsumerSteps, expectation, wrong_timeout
from legato.client.calls.leaving import in_flight
from legato.client.messages.message import Message

_Message = TypeVar("_Message", bound=Message)
TURNS_MAX = 64
"""Messages that `receive()` takes in a row without letting the loop's other tasks run."""


class MessageConsumer(ConsumerSteps):
    """Receives messages; iteration receives for ever, until it is closed (Jakarta Messaging 8).

    It survives a failover: what it has not seen comes again, what the application has is not presented again unless the
    `failover_contract` wants that.
    """

    _in_a_row = 0

    @overload
    async def receive(self, *, timeout_s: float | None = None) -> Message | None: ...
    @overload
    async def receive(self, timeout_s: float | None, /) -> Message | None: ...
    @overload
    async def receive(self, kind: type[_Message], timeout_s: float | None = None) -> _Message | None: ...
    async def receive(
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
        # `_receive` without its steps: a message that is here pays for nothing else.
        if kind is not None:
            kind, timeout_s = expectation(kind, timeout_s)
            if kind is not None:
                return await drive(self._receive(kind, timeout_s))
        turn = self._turn
        if not turn.acquire(False):
            raise self._guard.misused()
        try:
            self._in_a_row += 1
            if self._in_a_row >= TURNS_MAX:
                self._in_a_row = 0
                await asyncio.sleep(0)
            if self._listener is None and self._undertakings.current is None and (message := self._take()) is not None:
                self._end.handing = None  # a task is interrupted only where it waits
                return message
            self._in_a_row = 0
            message = await drive(self._receiving(timeout_s))
            self._end.handing = None
            return message
        finally:
            turn.release()

    @overload
    async def receive_no_wait(self) -> Message | None: ...
    @overload
    async def receive_no_wait(self, kind: type[_Message]) -> _Message | None: ...
    async def receive_no_wait(self, kind: type[Message] | None = None) -> Message | None:
        """The next message if the broker has one now; asks it, if none is here (Jakarta Messaging 8.5).

        None also if nothing at all is heard from the broker for 5 s; what comes later is for the next call.

        If it is interrupted, what `receive()` says of that holds.

        Args:
            kind: the class of message that is expected; see `receive()`.

        Raises:
            MessageFormatError: the message is not of that `kind`; see `receive()`.
        """
        return await drive(self._receive_no_wait(kind))

    async def receive_body(self, kind: type[_T], timeout_s: float | None = None, *, timeout: None = None) -> _T | None:
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
        return await drive(self._receive_body(kind, timeout_s))

    async def receive_body_no_wait(self, kind: type[_T]) -> _T | None:
        """The next message's body if the broker has one now; see `receive_body`."""
        return await drive(self._receive_body_no_wait(kind))

    async def close(self) -> None:
        """Close: what was not received goes back. May be called again.

        Without a connection it does not wait, and with one at most for the option `close_timeout_s`: the session has
        acknowledgements confirmed that are not yet.

        In CLIENT and INDIVIDUAL mode what was received can still be acknowledged, or given back by `recover()`; until
        then a durable subscription has an active consumer.

        A `receive()` that waits elsewhere returns None. A listener that runs is waited for, and its message is
        acknowledged as ever when it returns (Jakarta Messaging's `MessageConsumer.close`): it must not wait for who
        closes. It may close its own consumer, which is done when it has returned.
        """
        await drive(self._leave(in_flight()))

    async def __aiter__(self) -> AsyncIterator[Message]:
        while (message := await self.receive()) is not None:
            yield message

    async def __aenter__(self) -> MessageConsumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await leave_block(self, error)
