"""Queue browsers: look at messages without consuming them.

Do not edit: `tools/make_faces.py` writes this from `calls/browser_steps.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

from legato.client.calls.browser_steps import BrowserSteps
from legato.client.calls.leaving import in_flight
from legato.client.messages.message import Message
from legato.client.steps import drive, leave_block, mend


class QueueBrowser(BrowserSteps):
    """Iterates over copies of a queue's messages; each iteration looks anew (Jakarta Messaging 4.1.6)."""

    def close(self) -> None:
        """End the browsing. May be called again."""
        try:
            drive(self._leave(in_flight()))
        except BaseException as interruption:
            mend(self, interruption)
            raise

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

    def __enter__(self) -> QueueBrowser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        leave_block(self, error)
