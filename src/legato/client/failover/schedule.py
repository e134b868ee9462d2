"""Reconnection schedule: the next broker, the pause, and when to give up. Pure: time and chance are arguments."""

from __future__ import annotations

import msgspec

from legato.client.failover.disconnect_reason import Detection
from legato.client.failover.uri import Host, Options

SILENT_HOST_TIMEOUT_S = 1.0
"""A host that fell silent may answer a new connection, if only the old one was cut; if not, the others must not wait
long for that."""


class Try(msgspec.Struct, frozen=True):
    """One attempt: a pause, then a host."""

    wait_s: float
    host: Host
    timeout_s_max: float = float("inf")
    """Give it no longer than this, whatever `connect_timeout_s` says."""


class FailoverEvent(msgspec.Struct, frozen=True):
    """One failover and its effects (CONTRACT B5), or one return to the same broker (E1)."""

    old_host: str
    new_host: str
    old_epoch: int
    """The epoch of the broker that was lost; 0 if it has none."""
    new_epoch: int
    gap_ms: float
    """From the loss being noticed to all sessions being restored."""
    detection: Detection
    attempts: int
    """Connections that were tried, the one that came about among them."""
    same_server: bool
    """Whether only the network had failed, and the broker is the same one in the same epoch."""
    resent_sends: int
    """Sends that were repeated because their confirmation had not come; each is stored once."""
    aborted_transactions: tuple[str, ...]
    """The names of the sessions whose transaction is rolled back."""
    kept_deliveries: int
    """Messages that the application has and has not acknowledged, which its sessions keep."""
    returned_deliveries: int
    """Messages that were given back to the queue."""


class Schedule:
    """The attempts of one reconnection, from the first on.

    A round is one try of every host. The first round begins at once, or at a random time in the window that the broker
    asked for; each later one waits longer than the one before by a factor, up to a maximum, less a random part: so the
    clients of a dead broker do not come back in step (CONTRACT B23).

    Args:
        rounds_max: -1 for no end.
        waited_s_max: no further round begins after that time.
        first: the index of the host to begin with; the others follow in order, wrapping (CONTRACT B22).
        window_s: over so long the first tries of all clients are spread.
        first_timeout_s_max: bounds the first try.
        rounds_before: that went by in vain already: brokers let the client in and were lost before all was restored.
    """

    def __init__(
        self,
        hosts: tuple[Host, ...],
        options: Options,
        *,
        rounds_max: int,
        waited_s_max: float = float("inf"),
        first: int = 0,
        window_s: float = 0.0,
        first_timeout_s_max: float = float("inf"),
        rounds_before: int = 0,
    ) -> None:
        self._hosts = hosts
        self._options = options
        self._rounds_max = rounds_max
        self._waited_s_max = waited_s_max
        self._first = first % len(hosts)
        self._window_s = window_s
        self._first_timeout_s_max = first_timeout_s_max
        self._rounds_before = rounds_before
        self._tries = 0

    def next(self, chance: float, waited_s: float = 0.0) -> Try | None:
        """The next try, or None to give up.

        Args:
            chance: from 0 to 1, draws the place in the window and the jitter.
            waited_s: seconds since the first try.
        """
        round_number, place = divmod(self._tries, len(self._hosts))
        if self._rounds_max >= 0 and self._rounds_before + round_number >= self._rounds_max:
            return None
        if place == 0 and round_number and waited_s >= self._waited_s_max:
            return None
        timeout_s_max = float("inf") if self._tries else self._first_timeout_s_max
        self._tries += 1
        wait_s = self._delay_s(round_number, chance) if place == 0 else 0.0
        return Try(wait_s, self._hosts[(self._first + place) % len(self._hosts)], timeout_s_max)

    def _delay_s(self, round_number: int, chance: float) -> float:
        spread_s = self._window_s * chance if round_number == 0 else 0.0
        round_number += self._rounds_before
        if round_number == 0:
            return spread_s
        options = self._options
        # The exponent is bounded: a power would overflow after an hour without a broker.
        grown: float = options.reconnect_delay_s * options.reconnect_backoff ** min(round_number - 1, 100)
        delay_s = min(grown, options.reconnect_delay_max_s) * (1.0 - options.reconnect_jitter * chance)
        return max(delay_s, spread_s)
