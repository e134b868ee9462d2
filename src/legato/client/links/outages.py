"""Outages of a connection: interrupts its sessions, and restores them afterwards."""

from __future__ import annotations

from collections.abc import Callable

from legato.client.failover.disconnect_reason import Loss
from legato.client.failover.schedule import FailoverEvent
from legato.client.failover.wire import Wire
from legato.client.links.channel import Channel, Interruption
from legato.client.links.channel_ends import End
from legato.errors import JMSError


class _Outage:
    """One outage: from the loss of the connection until everything is restored."""

    def __init__(self, wire: Wire, loss: Loss, began: float) -> None:
        self.loss = loss
        self.broker = wire.broker
        self.epoch = wire.epoch
        self.began = began
        self.resent = 0
        self.returned = 0
        self.kept: dict[Channel, int] = {}
        self.aborted: dict[str, None] = {}

    def interrupted(self, channel: Channel, interruption: Interruption) -> None:
        """A session lost its connection, perhaps not for the first time in this outage."""
        self.resent += interruption.resent_sends
        self.returned += interruption.returned_deliveries
        self.kept[channel] = interruption.kept_deliveries
        if interruption.aborted:
            self.aborted[channel.name] = None

    def is_back_at(self, wire: Wire) -> bool:
        """Whether it is the same broker, still in the same epoch; without epochs the address tells."""
        same = (self.broker, self.epoch) == (wire.broker, wire.epoch)
        return same and (self.epoch > 0 or self.loss.host == wire.host)


class Outages:
    """The sessions of a connection, over its losses. All of it belongs to the I/O thread.

    Args:
        on_restored: called when everything is back after an outage; is to call `end`.
    """

    def __init__(self, on_restored: Callable[[], None]) -> None:
        self._on_restored = on_restored
        self._channels: list[Channel] = []
        self._base: Channel | None = None
        self._wire: Wire | None = None
        self._held_back: list[Channel] = []
        """Sessions that begin on a new wire once the temporary destinations, which they may use, exist there."""
        self._awaited: set[End] = set()
        self._outage: _Outage | None = None

    def add(self, channel: Channel) -> None:
        """A session was created."""
        self._channels.append(channel)
        if self._wire is not None:
            if self._held_back:
                self._held_back.append(channel)
            else:
                channel.begin()

    def add_base(self, channel: Channel) -> None:
        """Register the base of temporary destinations."""
        if self._base is channel:
            return
        self._base = channel
        if self._wire is not None:
            channel.begin()

    def forget(self, channel: Channel) -> None:
        """A session is closed: nobody answers its attaches any more."""
        if channel in self._channels:
            self._channels.remove(channel)
        for end in [end for end in self._awaited if end.channel is channel]:
            self.restored(end)

    def grant_all(self) -> None:
        """Let messages come."""
        for channel in self._channels:
            channel.grant()

    def touch_all(self) -> None:
        """Have all who wait look again."""
        for channel in self._channels:
            channel.touch()
        if self._base is not None:
            self._base.touch()

    def flush_all(self) -> None:
        """State what the application is done with."""
        for channel in self._channels:
            channel.flush_receivers()

    def unconfirmed(self) -> int:
        """How many sends are not confirmed; any thread may ask, for a log."""
        senders = [sender for channel in list(self._channels) for sender in list(channel.senders)]
        return sum(len(sender.outgoing.waiting) + len(sender.outgoing.unconfirmed) for sender in senders)

    @property
    def is_open(self) -> bool:
        """Whether the connection was lost and not all is restored."""
        return self._outage is not None

    # -- an outage ---------------------------------------------------------------------------------------

    def lost(self, wire: Wire, loss: Loss, began: float) -> None:
        """The wire is gone.

        Args:
            began: when that was noticed, in seconds of the monotonic clock.
        """
        self._wire = None
        if self._outage is None:
            self._outage = _Outage(wire, loss, began)
        self._awaited.clear()
        self._held_back.clear()
        if self._base is not None:
            self._base.connection_lost(loss.cause)
        for channel in list(self._channels):
            self._outage.interrupted(channel, channel.connection_lost(loss.cause))

    def begin(self, wire: Wire) -> None:
        """Bring everything onto a wire."""
        self._wire = wire
        self._held_back = list(self._channels)
        if self._base is not None:
            self._base.begin()
        if not self._awaited:
            self._begin_rest()

    def awaits(self, end: End) -> None:
        """A link is being attached."""
        if self._outage is not None:
            self._awaited.add(end)

    def restored(self, end: End) -> None:
        """A link is attached, or never will be; the last one ends the outage."""
        self._awaited.discard(end)
        # Without a wire everything is still to be attached.
        if self._outage is not None and self._wire is not None and not self._awaited:
            if self._held_back:
                self._begin_rest()
            else:
                self._on_restored()

    def _begin_rest(self) -> None:
        channels, self._held_back = self._held_back, []
        for channel in channels:
            channel.begin()
        if self._outage is not None and not self._awaited:
            self._on_restored()

    def end(self, wire: Wire, now: float, attempts: int) -> FailoverEvent:
        """The outage is over.

        Args:
            now: seconds of the monotonic clock.
            attempts: how many connections were tried.
        """
        outage, self._outage = self._outage, None
        assert outage is not None
        return FailoverEvent(
            old_host=str(outage.loss.host),
            new_host=str(wire.host),
            old_epoch=outage.epoch,
            new_epoch=wire.epoch,
            gap_ms=(now - outage.began) * 1000,
            detection=outage.loss.detection,
            attempts=attempts,
            same_server=outage.is_back_at(wire),
            resent_sends=outage.resent,
            aborted_transactions=tuple(outage.aborted),
            kept_deliveries=sum(outage.kept.values()),
            returned_deliveries=outage.returned,
        )

    def refuse_last(self) -> None:
        """The connection is gone for good, and some sends came after that was told: they are refused."""
        for channel in self._channels:
            for sender in channel.senders:
                sender.refuse_last()

    def disown(self, error: JMSError) -> None:
        """The connection is another process's."""
        for channel in [*self._channels, *([] if self._base is None else [self._base])]:
            channel.error = error
            channel.closed = True
            for receiver in channel.receivers:
                receiver.incoming.inbox.clear()

    def abandon(self, error: JMSError) -> None:
        """The connection is gone for good."""
        self._wire = None
        for channel in [*self._channels, *([] if self._base is None else [self._base])]:
            channel.abandon(error)
