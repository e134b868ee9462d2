"""Receiving messages with asyncio: one by one, by iteration, or by a listener."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from legato.client.aio.steps import awaiting, drive
from legato.client.consumer_steps import ConsumerSteps
from legato.client.messages import Message

TURNS_MAX = 64
"""Messages that `receive()` takes in a row without letting the loop's other tasks run."""


class MessageConsumer(ConsumerSteps):
    __doc__ = ConsumerSteps.__doc__

    _in_a_row = 0

    async def receive(self, timeout_s: float | None = None) -> Message | None:
        """The next message; waits for one at most `timeout_s` seconds, for ever if None.

        If it is cancelled no message is lost: the next call returns it.

        Returns:
            None if none came in time, or if the consumer is closed, by whichever task (CONTRACT A22).

        Raises:
            IllegalStateError: the consumer has a listener, the session is closed, or another task uses it.
            JMSError: the connection is gone for good.
        """
        session = self._session
        turn = session._turn
        if not turn.acquire(False):
            raise session._misused()
        try:
            self._in_a_row += 1
            if self._in_a_row >= TURNS_MAX:
                self._in_a_row = 0
                await asyncio.sleep(0)
            if self._listener is None and session._undertaking is None and (message := self._take()) is not None:
                self._end.handing = None  # a task is interrupted only where it waits
                return message
            self._in_a_row = 0
            message = await drive(self._receiving(timeout_s))
            self._end.handing = None
            return message
        finally:
            turn.release()

    receive_no_wait = awaiting(ConsumerSteps._receive_no_wait)
    close = awaiting(ConsumerSteps._close)

    async def __aiter__(self) -> AsyncIterator[Message]:
        while (message := await self.receive()) is not None:
            yield message

    async def __aenter__(self) -> MessageConsumer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
