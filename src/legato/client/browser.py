"""Looking at a queue's messages without consuming them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from legato.amqp.events import Attached, Detached, Disposition, Flow, Transfer
from legato.amqp.terminus import Terminus
from legato.client.conditions import error_of
from legato.client.destinations import Destination
from legato.client.messages import Message
from legato.client.received import read_message
from legato.errors import JMSError

if TYPE_CHECKING:
    from legato.amqp.link import Receiver
    from legato.client.channel import Channel
    from legato.client.session import Session

_SETTLED = 1


class BrowserEnd:
    """The I/O thread's half: asks for the messages in lumps until the broker has no more."""

    def __init__(self, channel: Channel, name: str, address: str, prefetch: int) -> None:
        self.channel = channel
        self.name = name
        self.address = address
        self.prefetch = prefetch
        self.inbox: deque[bytes] = deque()
        self.link: Receiver | None = None
        self.finished = False
        """The broker has sent all."""
        self.error: JMSError | None = None

    def attach(self) -> None:
        """Attach; a browser belongs to one wire, its snapshot does not outlive a failover."""
        session = self.channel.session
        if session is None:
            self._fail(JMSError("The connection to the broker was lost; browse again once it is back."))
            return
        self.link = session.receiver(
            self.name,
            source=Terminus(address=self.address, capabilities=["queue"], distribution_mode="copy"),
            snd_settle_mode=_SETTLED,
        )
        self.link.context = self

    def connection_lost(self) -> None:
        """The wire is gone."""
        self.link = None
        if not self.finished:
            self._fail(JMSError("The connection to the broker was lost while browsing; browse again."))

    def on_attached(self, event: Attached) -> None:
        """The broker answered; a refusal is followed by `Detached`."""
        if event.link.remote_source.kind != "none":
            self.more()

    def more(self) -> None:
        """Ask for the next lump."""
        if self.link is not None and not self.finished:
            self.link.drain(self.prefetch)

    def on_transfer(self, event: Transfer) -> None:
        """A copy of a message came."""
        self.inbox.append(event.data)
        if not event.settled:
            event.link.settle(event.delivery)
        self.channel.touch()

    def on_flow(self, event: Flow) -> None:
        """The broker gave credit back: it has no more messages."""
        self.finished = True
        self.channel.touch()

    def on_disposition(self, event: Disposition) -> None:
        """Copies are settled; nothing is said about them."""

    def on_detached(self, event: Detached) -> None:
        """The broker closed the link, or confirms that we did."""
        link, self.link = self.link, None
        if link is not None and not link.closed:
            link.close()
            self._fail(error_of(event.condition, event.description, f"The queue {self.address} cannot be browsed"))

    def close(self) -> None:
        """Detach."""
        self.finished = True
        if self.link is not None:
            self.link.close()
        self.channel.forget_browser(self)
        self.channel.touch()

    def _fail(self, error: JMSError) -> None:
        self.error = error
        self.finished = True
        self.channel.touch()


class QueueBrowser:
    """Iterates over copies of a queue's messages as they were when it was made (Jakarta Messaging 6.2.9)."""

    def __init__(self, session: Session, destination: Destination, name: str) -> None:
        self.destination = destination
        self._session = session
        self._end = BrowserEnd(session._channel, name, destination.name, session._prefetch)
        self._closed = False
        session._channel.transport.post(session._channel.add_browser, self._end)

    def __iter__(self) -> Iterator[Message]:
        """The messages, oldest first.

        Raises:
            JMSError: the connection was lost meanwhile, or the queue cannot be browsed.
        """
        end = self._end
        while not self._closed:
            with self._session._used():
                if not end.inbox:
                    if not end.finished:
                        self._session._channel.transport.post(self._ask)
                    self._session._wait(lambda: end.inbox or end.finished, "browse")
                if not end.inbox:
                    if end.error is not None:
                        raise end.error
                    return
                data = end.inbox.popleft()
            yield read_message(data, self.destination, _nothing)

    def _ask(self) -> None:
        end = self._end
        if not end.inbox and end.link is not None and end.link.credit == 0:
            end.more()

    def close(self) -> None:
        """End the browsing. May be called again."""
        if not self._closed:
            self._closed = True
            self._session._channel.transport.post(self._end.close)

    def __enter__(self) -> QueueBrowser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _nothing(message: Message) -> None:
    """Copies need no acknowledgement."""
