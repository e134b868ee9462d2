"""Prefetch of a consumer: grants link credit for the messages that may wait in the client, and drains it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from legato.amqp.engine.events import Flow
from legato.client.links.deliveries import Incoming

if TYPE_CHECKING:
    from legato.amqp.engine.link import Receiver
    from legato.client.links.ports import ChannelPort

FIRST_CREDIT = 64
RAMP_FACTOR = 4
"""Asked for first on a new link, and by how much more each time the application has taken all that came, up to
`prefetch`: whoever takes less than comes has no use for more, and after a failover it would delay everybody."""
LARGE_CREDIT = 4
"""Asked for anew after each large message: they take room on disk, and a file each."""


class PrefetchEnd:
    """Link end with prefetch. Runs in the I/O thread."""

    def __init__(self, channel: ChannelPort, prefetch: int) -> None:
        self.channel = channel
        self.prefetch = prefetch
        """Messages that may wait here; 0: each one is asked for (`want`)."""
        self.incoming = Incoming()
        self.link: Receiver | None = None
        self.attached = False
        self.closing = False
        """Whether the application has closed it: what comes yet is what comes again."""
        self.released = False
        """Nothing more is received, but the application has messages that it can still acknowledge."""
        self._wanted = 0
        self._credit = 0
        """Messages that may still come, as far as events were handled; the engine is ahead of us."""
        self._ramp = FIRST_CREDIT
        """So much of `prefetch` is asked for until the application takes more than that."""
        self._drained: list[Callable[[], None]] = []

    def grant(self) -> None:
        """Give credit in lumps, so that no more than `prefetch` messages wait here that the application has not had.

        What it holds comes again whatever waits here: not before is its acknowledgement confirmed.
        """
        link = self.link
        if link is None or not self.attached or self._drained or self.channel.holds_back:
            return
        awaited = self.incoming.awaited
        missing = awaited - self._credit
        if self.channel.flowing:
            # What comes again does so by itself and is not counted as wanted.
            limit = awaited if self.closing else min(self.prefetch, self._ramp) or self._wanted + awaited
            space = limit - self._credit - len(self.incoming.inbox)
            if space * 2 >= limit or self._credit == 0:
                missing = max(missing, space)
        if missing > 0:
            self._credit += missing
            link.add_credit(missing)

    def widen(self) -> None:
        """The application took something; if it was all that is here it is to have more."""
        if self._ramp < self.prefetch and not self.incoming.inbox:
            self._ramp *= RAMP_FACTOR
        self.grant()

    def want(self) -> None:
        """Without a prefetch: ask for one message, unless one is asked for."""
        self._wanted = 1
        self.grant()

    def withdraw(self, answered: Callable[[], None]) -> None:
        """Without a prefetch: nobody waits for a message any more; calls `answered` when none can come."""

        def drained() -> None:
            answered()
            self.grant()
            self.channel.touch()

        # Now, not when that is answered: by then a next call may want one.
        self._wanted = 0
        self.drain(drained)

    def lost(self) -> None:
        """A message that was asked for goes before anybody has seen it, as with the connection: ask again."""
        if not self.prefetch and not self.released and self.incoming.inbox:
            self._wanted = 1

    def drain(self, then: Callable[[], None]) -> None:
        """Call `then` once nothing more can come until credit is granted again."""
        self._drained.append(then)
        if self.link is None or not self.attached or self._credit == 0:
            self._run_drained()
        else:
            # Nothing to drain for the engine means that the last messages are among the events being handled.
            self.link.drain()

    def probe(self, answered: Callable[[], None]) -> None:
        """Call `answered` once everything that the broker has for us now is here."""

        def drained() -> None:
            answered()
            self.grant()
            self.channel.touch()

        if not self.prefetch:
            self.want()
        self.drain(drained)
        self._wanted = 0

    def on_flow(self, event: Flow) -> None:
        """The broker gave the rest of the credit back."""
        self._credit = 0
        self._run_drained()

    def _run_drained(self) -> None:
        waiting, self._drained = self._drained, []
        for then in waiting:
            then()
