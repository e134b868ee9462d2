"""Which broker to try next, when, and when to give up. Pure: time and chance come in as arguments."""

from __future__ import annotations

import msgspec

from legato.client.uri import Host, Options


class Try(msgspec.Struct, frozen=True):
    """Wait so long, then try this host."""

    wait_ms: float
    host: Host


class FailoverEvent(msgspec.Struct, frozen=True):
    """What one failover did (CONTRACT B5: for those who ask).

    `gap_ms` runs from the loss being detected to all sessions being restored; epochs are the brokers' reigns, 0 for
    a broker that has none.
    """

    old_host: str
    new_host: str
    old_epoch: int
    new_epoch: int
    gap_ms: float
    resent_sends: int
    aborted_transactions: int


class Schedule:
    """The tries of one connecting, from the first on.

    A round is one try of every host. The first round begins at once; each later one waits longer than the one before by
    a factor, up to a maximum, less a random part so that the clients of a dead broker do not come back in step
    (CONTRACT B23).
    """

    def __init__(self, hosts: tuple[Host, ...], options: Options, *, rounds_max: int, first: int = 0) -> None:
        self._hosts = hosts
        self._options = options
        self._rounds_max = rounds_max
        self._first = first % len(hosts)
        self._tries = 0

    def next(self, chance: float) -> Try | None:
        """The next try, or None to give up.

        Args:
            chance: from 0 to 1, draws the jitter.
        """
        round_number, place = divmod(self._tries, len(self._hosts))
        if self._rounds_max >= 0 and round_number >= self._rounds_max:
            return None
        self._tries += 1
        wait_ms = self._delay_ms(round_number, chance) if place == 0 else 0.0
        return Try(wait_ms, self._hosts[(self._first + place) % len(self._hosts)])

    def _delay_ms(self, round_number: int, chance: float) -> float:
        if round_number == 0:
            return 0.0
        options = self._options
        # The exponent is bounded: a power would overflow after an hour without a broker.
        grown: float = options.reconnect_delay_ms * options.reconnect_backoff ** min(round_number - 1, 100)
        return min(grown, options.reconnect_delay_max_ms) * (1.0 - options.reconnect_jitter * chance)
