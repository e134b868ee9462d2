"""Looking at a queue's messages without consuming them, as steps for both worlds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from legato.client.browser_end import BrowserEnd
from legato.client.destinations import Destination
from legato.client.messages import Message
from legato.client.received import read_message
from legato.client.steps import Steps

if TYPE_CHECKING:
    from legato.client.session_steps import SessionSteps


class BrowserSteps:
    """Iterates over copies of a queue's messages as they were when it was made (Jakarta Messaging 6.2.9)."""

    def __init__(self, session: SessionSteps[Any, Any, Any], destination: Destination, name: str) -> None:
        self.destination = destination
        self._session = session
        self._end = BrowserEnd(session._channel, name, destination.name, session._prefetch)
        self._closed = False
        session._channel.transport.post(session._channel.add_browser, self._end)

    def _next(self) -> Steps[Message | None]:
        """The next message, or None after the last one."""
        end = self._end
        if self._closed:
            return None
        with self._session._used():
            if not end.inbox:
                if not end.finished:
                    self._session._channel.transport.post(self._ask)
                yield from self._session._wait(lambda: end.inbox or end.finished, "browse")
            if not end.inbox:
                if end.error is not None:
                    raise end.error
                return None
            return read_message(end.inbox.popleft(), self.destination, _nothing)

    def _ask(self) -> None:
        end = self._end
        if not end.inbox and end.link is not None and end.link.credit == 0:
            end.more()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._session._channel.transport.post(self._end.close)


def _nothing(message: Message) -> None:
    """Copies need no acknowledgement."""
