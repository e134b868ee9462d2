"""Unsubscribing: a link that is attached in order to be closed (amqp.md A4). Runs in the I/O thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from legato.amqp.engine.events import Attached, Detached, Flow
from legato.amqp.engine.terminus import Terminus
from legato.client.mapping.conditions import error_of
from legato.errors import InvalidDestinationError, JMSError

if TYPE_CHECKING:
    from legato.amqp.engine.link import Receiver
    from legato.client.links.ports import ChannelPort


class UnsubscribeEnd:
    """One `unsubscribe()`; after a loss of the connection it is tried again, whoever still waits for it.

    Args:
        found: whether the broker had the subscription when an earlier call, of which nobody heard, was to end it.
    """

    def __init__(self, channel: ChannelPort, link_name: str, name: str, *, found: bool = False) -> None:
        self.channel = channel
        self.name = link_name
        self._subscription = name
        self.link: Receiver | None = None
        self.closed = False
        self.error: JMSError | None = None
        self.found = found
        """Whether the broker had it once: if it is gone the next time, that was we."""

    def attach(self) -> None:
        """Attach on the channel's present session; a link without source asks for the subscription of its name."""
        session = self.channel.session
        assert session is not None
        self.link = session.receiver(self.name, source=Terminus(kind="none"))
        self.link.context = self

    def connection_lost(self) -> None:
        """The wire is gone."""
        self.link = None

    def on_attached(self, event: Attached) -> None:
        """The broker has it: closing the link ends it. A refusal has no source and is followed by `Detached`."""
        if event.link.remote_source.kind != "none":
            self.found = True
            event.link.close()

    def on_flow(self, event: Flow) -> None:
        """Nothing comes over this link."""

    def on_detached(self, event: Detached) -> None:
        """It is ended, or was refused."""
        link, self.link = self.link, None
        if link is not None and not link.closed:
            link.close()
        if event.condition:
            error = error_of(event.condition, event.description, f"The subscription {self._subscription!r} stays")
            if not (self.found and isinstance(error, InvalidDestinationError)):
                self.error = error
        self.finish()

    def refuse(self, error: JMSError) -> None:
        """It does not come to it."""
        self.error = error
        self.finish()

    def finish(self) -> None:
        """It is over."""
        self.closed = True
        self.channel.restored(self)
        self.channel.forget(self)
        self.channel.touch()
