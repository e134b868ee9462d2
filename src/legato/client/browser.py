"""Looking at a queue's messages without consuming them."""

from __future__ import annotations

from collections.abc import Iterator

from legato.client.browser_steps import BrowserSteps
from legato.client.message import Message
from legato.client.steps import drive


class QueueBrowser(BrowserSteps):
    __doc__ = BrowserSteps.__doc__

    def __iter__(self) -> Iterator[Message]:
        """The messages, in the order in which they would be received.

        Raises:
            JMSError: the connection was lost meanwhile, or the queue cannot be browsed.
        """
        end = drive(self._look())
        try:
            while (message := drive(self._next(end))) is not None:
                yield message
        finally:
            self._end(end)

    def close(self) -> None:
        """End the browsing. May be called again."""
        self._close()

    def __enter__(self) -> QueueBrowser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
