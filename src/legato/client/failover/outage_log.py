"""Log of outages: a line when a connection is lost, one now and then while there is none, one at its end.

They are all warnings: who sees the loss is to see the return too.

Pure but for the log: times are arguments, in seconds of one monotonic clock.
"""

from __future__ import annotations

import logging

from legato.client.failover.disconnect_reason import Loss
from legato.client.failover.schedule import FailoverEvent
from legato.client.failover.uri import Host, Uri
from legato.quoting import escaped, quoted, sentence

log = logging.getLogger("legato.client")

WAIT_TOLD_AFTER_S = 1.0
"""A first connection that takes longer is told of, and again after `TOLD_EVERY_S`."""
TOLD_EVERY_S = 30.0
LOSSES_TOLD = 3
"""So many losses may be told of within `LOSSES_TOLD * TOLD_EVERY_S`: a broker that lets a client in and drops it at
once must not fill a log."""


class OutageLog:
    """The lines about one connection; none of them comes with each try."""

    def __init__(self, uri: Uri) -> None:
        self._uri = uri
        self._began: float | None = None
        """Since when there is no connection; None while there is one."""
        self._told = False
        """Whether there is a line about the present outage: its end then has one, too."""
        self._told_at: list[float] = []
        """Of the last losses."""
        self._untold = 0
        """Losses since the last one that was told of."""
        self._next_line_s = 0.0
        """After so long without a connection there is another line."""
        self._is_first = True
        """Whether there has been no connection yet."""

    def lost(self, loss: Loss, hosts: tuple[Host, ...], now: float) -> None:
        """A connection was lost, and is tried again; what is lost before all is restored is the same outage."""
        if self._began is not None:
            return
        self._is_first = False
        self._began = now
        self._next_line_s = TOLD_EVERY_S
        self._told = False
        if len(self._told_at) == LOSSES_TOLD and now - self._told_at[0] < LOSSES_TOLD * TOLD_EVERY_S:
            self._untold += 1
            return
        self._told = True
        self._told_at = [*self._told_at[1 - LOSSES_TOLD :], now]
        options = self._uri.options
        rounds = options.reconnect_attempts
        often = "until one answers" if rounds < 0 else f"for up to {rounds} rounds"
        scheme = "amqps" if self._uri.tls else "amqp"
        reason = str(loss.reason or loss.cause).rstrip(".")
        names = ", ".join(map(quoted, hosts))
        calls = "" if options.contract.releases_blocked_calls else "; calls wait meanwhile"
        more = f" It was lost {self._untold} times more since the last such line." if self._untold else ""
        line = f"Trying {names} again {often} (reconnect_attempts={rounds}){calls}.{more}"
        log.warning(
            "Lost the connection to %s: %s. %s", quoted(f"{scheme}://{loss.host}"), sentence(reason), sentence(line)
        )
        self._untold = 0

    def waiting(self, problems: str, now: float) -> None:
        """There is no connection yet."""
        if self._began is None:
            self._began = now
            self._next_line_s = WAIT_TOLD_AFTER_S
        waited_s = now - self._began
        if waited_s >= self._next_line_s:
            self._next_line_s = waited_s + TOLD_EVERY_S
            self._told = True
            how_long = self._how_long() if self._is_first else ""
            log.warning("Waiting for a broker for %.0f s so far (%s).%s", waited_s, sentence(problems), how_long)

    def _how_long(self) -> str:
        options = self._uri.options
        if options.connect_attempts is not None:
            return ""
        return f" It is tried for {options.connect_wait_s:g} s (connect_wait_s). `legato serve` starts a broker."

    def first_connected(self, host: Host, now: float) -> None:
        """A broker let the client in for the first time."""
        self._is_first = False
        if self._told and self._began is not None:
            log.warning("Connected to %s after %.0f s.", quoted(host), now - self._began)
        self._began = None

    def back(self, event: FailoverEvent) -> None:
        """All is restored."""
        self._began = None
        level = logging.WARNING if self._told else logging.DEBUG
        if event.old_host == event.new_host:
            same = ", which is the same broker" if event.same_server else ""
            log.log(
                level,
                "Connected to %s again after %.2f s%s.",
                quoted(event.new_host),
                event.gap_ms / 1000,
                escaped(same),
            )
        else:
            log.log(
                level,
                "Failed over from %s to %s after %.2f s.",
                quoted(event.old_host),
                quoted(event.new_host),
                event.gap_ms / 1000,
            )
