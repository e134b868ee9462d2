"""All clients of a broker lose it at once: how they come back is counted (CONTRACT B22, B23)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from legato.client import Connection, ConnectionFactory, FailoverEvent
from legato.client.failover.schedule import Schedule
from legato.client.failover.uri import parse_uri
from tests.integration.client.helpers import WAIT_S, drain, send
from tests.support.broker import BrokerPair, broker_pair

CLIENTS = 250
RETURNS_PER_S = 100
WINDOW_S = CLIENTS / RETURNS_PER_S


@pytest.fixture
def crowd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[BrokerPair, list[Connection]]]:
    """A pair that wants few clients at once, and the connections of many."""
    monkeypatch.setenv("LEGATO_SERVER_RETURNS_PER_S", str(RETURNS_PER_S))
    with broker_pair(tmp_path) as pair, ThreadPoolExecutor(16) as threads:
        factory = ConnectionFactory(pair.url)
        connections = list(threads.map(lambda _: factory.create_connection(), range(CLIENTS)))
        yield pair, connections
        list(threads.map(lambda connection: connection.close(), connections))


class Returns:
    """Waits for the failovers of many connections."""

    def __init__(self, connections: list[Connection]) -> None:
        self._connections = connections
        self._back = threading.Semaphore(0)
        for connection in connections:
            connection.failover_listener = lambda event: self._back.release()

    def wait(self, failovers: int) -> list[FailoverEvent]:
        """The last failover of each, once all are back from so many."""
        for _ in self._connections:
            assert self._back.acquire(timeout=WAIT_S)
        events = [connection.failovers for connection in self._connections]
        assert {len(each) for each in events} == {failovers}
        return [each[-1] for each in events]


def tries_within(url: str, unserved_s: float) -> int:
    """How often a client tries at most while nobody serves."""
    uri = parse_uri(url)
    schedule = Schedule(uri.hosts, uri.options, rounds_max=-1)
    tries, waited_s = 0, 0.0
    while waited_s <= unserved_s:
        attempt = schedule.next(1.0)
        assert attempt is not None
        tries, waited_s = tries + 1, waited_s + attempt.wait_s
    return tries


def test_many_clients_of_a_killed_broker_spread_their_return(crowd: tuple[BrokerPair, list[Connection]]) -> None:
    """CONTRACT B23: so many in each part of the window, and hardly a try in vain."""
    pair, connections = crowd
    returns = Returns(connections)
    pair.fail_over()
    returns.wait(1)
    # Those who came first knew of no others; now all were told of all.
    began_s = time.monotonic()
    pair.fail_over()
    unserved_s = time.monotonic() - began_s
    events = returns.wait(2)
    delays_s = [event.gap_ms / 1000 for event in events]
    for tenth in range(1, 10):
        later = sum(delay_s > WINDOW_S * tenth / 10 for delay_s in delays_s)
        expected = CLIENTS * (10 - tenth) / 10
        # Six standard deviations at most: the draws are independent.
        assert later > expected - 3 * CLIENTS**0.5
    # Each is refused by the one that died; on a slow machine many come before the other one serves, and try again.
    assert sum(event.attempts for event in events) < (2 + tries_within(pair.url, unserved_s)) * CLIENTS
    connections[-1].start()
    send(connections[0], "q", "1")
    assert drain(connections[-1], "q") == ["1"]
