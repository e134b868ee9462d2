"""Temporary destinations of a connection: nodes that exist as long as their link does (amqp.md A8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from legato.amqp import names
from legato.amqp.codec.types import Described, ULong
from legato.amqp.engine.events import Attached, Detached, Disposition, Flow
from legato.amqp.engine.terminus import Terminus
from legato.client.mapping.conditions import error_of
from legato.client.mapping.source import COMES_BACK_S
from legato.client.steps import Steps
from legato.errors import IllegalStateError, JMSError

if TYPE_CHECKING:
    from legato.amqp.engine.link import Sender
    from legato.client.links.ports import ChannelPort
    from legato.client.messages.destinations import Destination, Temporary

_DELETE_ON_CLOSE = Described(ULong(0x2B), [])


class TemporaryEnd:
    """The link that keeps a temporary destination alive. Runs in the I/O thread.

    After a failover the destination is asked for again, by its name; a broker that gives another one has its way.
    """

    def __init__(self, channel: ChannelPort, name: str, destination: Temporary) -> None:
        self.channel = channel
        self.name = name
        self.destination = destination
        self.link: Sender | None = None
        self.ready = False
        self.closing = False
        self.closed = False
        self.error: JMSError | None = None

    def attach(self) -> None:
        """Attach on the channel's present session."""
        session = self.channel.session
        assert session is not None
        properties: dict[str, object] = {names.TEMPORARY_NAME: self.destination.name} if self.destination.name else {}
        self.link = session.sender(
            self.name,
            source=Terminus(address=self.name),
            target=Terminus(
                dynamic=True,
                expiry_policy="link-detach",
                timeout_s=COMES_BACK_S,
                capabilities=[self.destination.capability],
                properties={"lifetime-policy": _DELETE_ON_CLOSE},
            ),
            properties=properties,
        )
        self.link.context = self

    def connection_lost(self) -> None:
        """The wire is gone. What was to be deleted may still be there: it is asked for again, and deleted then."""
        self.link = None
        if self.closing and not self.ready:
            self._close_done()

    def on_attached(self, event: Attached) -> None:
        """The broker made it, under a name of its own; a refusal has no target and is followed by `Detached`."""
        target = event.link.remote_target
        if target.kind == "none" or target.address is None:
            return
        self.destination.name = target.address
        self.ready = True
        self.channel.restored(self)
        self.channel.touch()
        if self.closing:
            event.link.close()

    def on_detached(self, event: Detached) -> None:
        """It is deleted."""
        link, self.link = self.link, None
        if link is not None and not link.closed:
            link.close()
        if not self.closing:
            what = f"The temporary destination {self.destination.name}".rstrip()
            self.error = error_of(event.condition, event.description, f"{what} does not exist any more")
            if self.ready:
                self.channel.report(self.error)
        self._close_done()
        self.channel.restored(self)

    def on_flow(self, event: Flow) -> None:
        """Nothing is sent over this link."""

    def on_disposition(self, event: Disposition) -> None:
        """Nothing is sent over this link."""

    def close(self) -> None:
        """Delete the destination."""
        self.closing = True
        if self.link is not None:
            self.link.close()
        elif not self.ready:
            self._close_done()

    def _close_done(self) -> None:
        self.closed = True
        self.channel.forget(self)
        self.channel.touch()


class Owner(Protocol):
    """The connection of a temporary destination."""

    _temporaries: dict[str, TemporaryNode]

    def _consumes(self, destination: Destination) -> bool: ...
    def _wait_for(self, channel: Any, ready: Callable[[], object], timeout_s: float | None = None) -> Steps[None]: ...


class TemporaryNode:
    """The application's half."""

    def __init__(self, connection: Owner, end: TemporaryEnd) -> None:
        self.connection = connection
        self.end = end

    @property
    def is_deleted(self) -> bool:
        """Whether it is deleted."""
        return self.end.closed

    def delete(self, dropped: Callable[[], bool] | None = None, timeout_s: float | None = None) -> Steps[None]:
        """Delete it (Jakarta Messaging 6.2.2); returns when that is durable, be it over a failover.

        Args:
            dropped: whether that is no longer waited for; it is deleted all the same.
            timeout_s: so long it is waited for; None: until it is done.

        Raises:
            IllegalStateError: a consumer receives from it.
        """
        destination = self.end.destination
        if self.end.closed:
            return
        if self.connection._consumes(destination):
            raise IllegalStateError(f"A consumer receives from {destination.name}; close it first.")
        channel = self.end.channel
        channel.transport.post(self.end.close)
        self.connection._temporaries.pop(destination.name, None)
        yield from self.connection._wait_for(
            channel, lambda: self.end.closed or (dropped is not None and dropped()), timeout_s
        )
