"""Queue browsers for asyncio: look at messages without consuming them.

Do not edit: `tools/make_faces.py` writes this from `calls/browser_steps.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType

from legato.client.aio.steps import drive, leave_block
from legato.client.calls.browser_steps import BrowserSteps
from legato.client.calls.leaving import in_flight
from legato.client.messages.message import Message


class QueueBrowser(BrowserSteps):
    """Iterates over copies of a queue's messages; each iteration looks anew (Jakarta Messaging 4.1.6)."""

    async def close(self) -> None:
        """End the browsing. May be called again."""
        await drive(self._leave(in_flight()))

    async def __aiter__(self) -> AsyncIterator[Message]:
        """The messages, in the order in which they would be received.

        Raises:
            JMSError: the connection was lost meanwhile, or the queue cannot be browsed.
        """
        end = await drive(self._look())
        try:
            while (message := await drive(self._next(end))) is not None:
                yield message
        finally:
            self._end(end)

    async def __aenter__(self) -> QueueBrowser:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await leave_block(self, error)
