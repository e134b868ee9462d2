"""Steps of a queue browser."""

from __future__ import annotations

from legato.client.calls.described import described
from legato.client.calls.leaving import leaving
from legato.client.calls.ports import SessionPort
from legato.client.links.browser_end import BrowserEnd
from legato.client.mapping.received import read_message
from legato.client.mapping.source import Source
from legato.client.messages.destinations import Destination
from legato.client.messages.message import Message
from legato.client.steps import NOTHING, Steps
from legato.errors import IllegalStateError

LUMP = 100
"""Messages asked for at once by a session without prefetch."""


class BrowserSteps:
    """Iterates over copies of a queue's messages; each iteration looks anew (Jakarta Messaging 4.1.6)."""

    def __init__(self, session: SessionPort, source: Source, name: str, prefetch: int) -> None:
        self.destination: Destination = source.destination
        self._session = session
        self._source = source
        self._name = name
        self._prefetch = prefetch
        self._looks = 0
        self._looked_in: dict[BrowserEnd, SessionPort] = {}
        """The session of each look: one below its own, if another group of brokers has the queue."""
        self._closed = False

    def __repr__(self) -> str:
        selector = self.message_selector
        return described(
            self,
            f"of {self.destination!r}",
            "" if selector is None else f"selector {selector!r}",
            "closed" if self._closed else "",
        )

    @property
    def message_selector(self) -> str | None:
        """What the messages have to match; None for all."""
        return self._source.selector

    def _look(self) -> Steps[BrowserEnd]:
        """Begin to look; an error is known before the first message is asked for."""
        own = self._session
        with own._guard.used():
            end: BrowserEnd = yield from own._groups.follow_redirects(
                "browse", lambda: self._look_in(own), self._look_in, browses=True
            )
            return end

    def _look_in(self, session: SessionPort) -> Steps[BrowserEnd]:
        session._guard.check_open()
        if self._closed:
            raise IllegalStateError("The browser is closed.")
        self._looks += 1
        channel = session._channel
        end = BrowserEnd(channel, f"{self._name}.{self._looks}", self._source, self._prefetch or LUMP)
        self._looked_in[end] = session
        channel.transport.post(channel.add_browser, end)
        try:
            yield from session._guard.wait(lambda: end.attached or end.finished, "browse")
            if end.error is not None:
                raise end.error
        except BaseException:
            self._end(end)
            raise
        return end

    def _next(self, end: BrowserEnd) -> Steps[Message | None]:
        """The next message, or None after the last one."""
        session = self._looked_in.get(end)
        if self._closed or session is None:
            return None
        with session._guard.used():
            if not end.inbox:
                if not end.finished:
                    session._channel.transport.post(end.ask)
                yield from session._guard.wait(lambda: end.inbox or end.finished, "browse")
            if not end.inbox:
                if end.error is not None:
                    raise end.error
                return None
            return read_message(end.inbox.popleft(), self.destination, _nothing)

    def _end(self, end: BrowserEnd) -> None:
        session = self._looked_in.pop(end, None)
        if session is not None:
            session._channel.transport.post(end.close)

    def _close(self) -> Steps[None]:
        """End the browsing. May be called again."""
        yield from NOTHING
        self._closed = True
        for end in list(self._looked_in):
            self._end(end)

    def _leave(self, error: BaseException | None) -> Steps[None]:
        return leaving(self._close(), self._session._channel.transport, error)


def _nothing(message: Message) -> None:
    """Copies need no acknowledgement."""
