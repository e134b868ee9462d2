"""Looking at a queue's messages without consuming them, with asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator

from legato.client.aio.steps import drive
from legato.client.browser_steps import BrowserSteps
from legato.client.messages import Message


class QueueBrowser(BrowserSteps):
    __doc__ = BrowserSteps.__doc__

    async def __aiter__(self) -> AsyncIterator[Message]:
        """The messages, oldest first.

        Raises:
            JMSError: the connection was lost meanwhile, or the queue cannot be browsed.
        """
        while (message := await drive(self._next())) is not None:
            yield message

    async def close(self) -> None:
        """End the browsing. May be called again."""
        self._close()

    async def __aenter__(self) -> QueueBrowser:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
