"""Looking at a queue's messages without consuming them."""

from __future__ import annotations

from collections.abc import Iterator

from legato.client.browser_steps import BrowserSteps
from legato.client.messages import Message
from legato.client.steps import drive


class QueueBrowser(BrowserSteps):
    __doc__ = BrowserSteps.__doc__

    def __iter__(self) -> Iterator[Message]:
        """The messages, oldest first.

        Raises:
            JMSError: the connection was lost meanwhile, or the queue cannot be browsed.
        """
        while (message := drive(self._next())) is not None:
            yield message

    def close(self) -> None:
        """End the browsing. May be called again."""
        self._close()

    def __enter__(self) -> QueueBrowser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
