"""Clients that come back after the loss of their brokers: when each is let in again.

Time is virtual, in seconds after the loss. When a client tries says the client's `Schedule`; over which time the
clients of a broker are asked to spread says the broker's `ReconnectPacing`. A broker lets one in after the other, each
for some processor time, and a machine's brokers share its cores.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from random import Random

import msgspec

from legato.client.failover.schedule import SILENT_HOST_TIMEOUT_S, Schedule
from legato.client.failover.uri import Host, Options
from legato.clock import Clock
from legato.server.connections.reconnect_pacing import ReconnectPacing

_PRIMARY, _BACKUP = Host("primary", 1), Host("backup", 2)
_ROUND_TRIP_S = 0.001
_GIVEN_UP_COST = 0.1
"""Of the time that a login takes, what a connection costs whose client has hung up before its turn."""


class Crowd(msgspec.Struct, frozen=True):
    """The clients of one group, and what they come back to."""

    clients: int
    serves_s: float
    """When the new primary serves."""
    machine_is_gone: bool
    """Whether nobody answers at the former primary's address; else the connection is refused at once."""
    cores: float
    """Of its machine, the new primary's share."""


class Return(msgspec.Struct, frozen=True):
    """How the clients of one group came back."""

    last_s: float
    """When all of them were back."""
    tries: int
    """Connections that reached the new primary, those included whose clients had given up."""
    waiting_max: int
    """Most connections that waited to be let in at once."""


class _StoppedClock(Clock):
    def now_us(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 0


def window_s(clients: int, returns_per_s: int, reconnect_timeout_s: float) -> float:
    """Over how long a broker asks so many clients to spread their return."""
    pacing = ReconnectPacing(returns_per_s, reconnect_timeout_s, 0, _StoppedClock(), lambda _: None)
    return pacing.window_ms(clients) / 1000


def come_back(crowd: Crowd, spread_s: float, login_s: float, options: Options, chance: Random) -> Return:
    """Let the clients of one group come back.

    Args:
        spread_s: the window that the broker asked for.
        login_s: processor time that it takes to let one in.
    """
    clients = [_Client(crowd, spread_s, options) for _ in range(crowd.clients)]
    arrivals = [(client.next_s(0.0, chance), number) for number, client in enumerate(clients)]
    heapq.heapify(arrivals)
    each_s = login_s / min(crowd.cores, 1.0)
    queue: deque[float] = deque()
    """When those will be let in that wait for it."""
    free_s, last_s, tries, waiting_max = crowd.serves_s, 0.0, 0, 0
    while arrivals:
        at_s, number = heapq.heappop(arrivals)
        if at_s < crowd.serves_s:
            # Refused: it does not listen yet.
            heapq.heappush(arrivals, (clients[number].next_s(at_s + _ROUND_TRIP_S, chance), number))
            continue
        while queue and queue[0] <= at_s:
            queue.popleft()
        tries += 1
        begins_s, gives_up_s = max(free_s, at_s), at_s + options.connect_timeout_s
        free_s = begins_s + each_s * (_GIVEN_UP_COST if begins_s > gives_up_s else 1.0)
        queue.append(free_s)
        waiting_max = max(waiting_max, len(queue))
        if free_s > gives_up_s:
            heapq.heappush(arrivals, (clients[number].next_s(gives_up_s, chance), number))
        else:
            last_s = max(last_s, free_s)
    return Return(last_s, tries, waiting_max)


class _Client:
    """A client that knows both brokers of its group, and had its connection to the first one."""

    def __init__(self, crowd: Crowd, spread_s: float, options: Options) -> None:
        silent_s = SILENT_HOST_TIMEOUT_S if crowd.machine_is_gone else math.inf
        self._lost_costs_s = silent_s if crowd.machine_is_gone else _ROUND_TRIP_S
        self._later_costs_s = options.connect_timeout_s if crowd.machine_is_gone else _ROUND_TRIP_S
        self._schedule = Schedule(
            (_PRIMARY, _BACKUP), options, rounds_max=-1, window_s=spread_s, first_timeout_s_max=silent_s
        )

    def next_s(self, now_s: float, chance: Random) -> float:
        """When it tries the new primary next, if its last try failed now."""
        while True:
            attempt = self._schedule.next(chance.random())
            assert attempt is not None, "there is no end of rounds"
            now_s += attempt.wait_s
            if attempt.host == _BACKUP:
                return now_s
            now_s += self._lost_costs_s
            self._lost_costs_s = self._later_costs_s


class AllBack(msgspec.Struct, frozen=True):
    """How the clients of many groups came back."""

    clients: int
    window_s: float
    last_s: float
    tries_each: float
    waiting_max: int


def all_back(
    crowds: Sequence[Crowd], returns_per_s: int, reconnect_timeout_s: float, login_s: float, chance: Random
) -> AllBack:
    """Let the clients of all these groups come back.

    Args:
        returns_per_s: of each broker; 0: it asks nobody to wait.
    """
    options = Options()
    windows = [window_s(each.clients, returns_per_s, reconnect_timeout_s) if returns_per_s else 0.0 for each in crowds]
    found = [
        come_back(crowd, spread_s, login_s, options, chance) for crowd, spread_s in zip(crowds, windows, strict=True)
    ]
    clients = sum(crowd.clients for crowd in crowds)
    return AllBack(
        clients,
        max(windows),
        max(each.last_s for each in found),
        sum(each.tries for each in found) / clients,
        max(each.waiting_max for each in found),
    )
