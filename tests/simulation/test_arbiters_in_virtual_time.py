"""Arbiters over the simulated log: what takes hours of chance elsewhere is set up here to the millisecond."""

from collections.abc import Iterator
from typing import Any

import pytest
from simulator.replicas.cables import Cables
from simulator.replicas.disks import ReplicaDisk
from simulator.replicas.log_servers import SERVERS, LogServers, SimulatedEngine
from simulator.replicas.patches import threads_installed
from simulator.replicas.threads import BrokerProcess, Thread, ThreadedKernel, wait_here

from legato.core.facts import QueueCreated
from legato.replication.arbiter import LogArbiter
from tests.conformance.store import NOW_US, batch_of, stored

LEASE_S = 0.3
MESSAGE_BYTES_MAX = 1_000


@pytest.fixture
def kernel() -> Iterator[ThreadedKernel]:
    kernel = ThreadedKernel(1)
    with threads_installed(kernel):
        yield kernel


@pytest.fixture
def servers(kernel: ThreadedKernel) -> LogServers:
    servers = LogServers(kernel, Cables(kernel), message_bytes_max=MESSAGE_BYTES_MAX)
    servers.cables.calm = True
    return servers


def begin(servers: LogServers, name: str) -> LogArbiter:
    """A broker that hears no heartbeats."""
    disk: Any = ReplicaDisk(servers.kernel, [])
    return LogArbiter(lambda: servers.log("orders", name, SERVERS[0]), disk, name, LEASE_S, lambda: NOW_US)


def test_nobody_claims_the_log_while_a_large_record_is_on_its_way(
    kernel: ThreadedKernel, servers: LogServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part that is acknowledged renews the primary's lease, and followers see whole records only."""
    process = BrokerProcess("both")
    done: list[float] = []
    append = SimulatedEngine.append

    def slowly(self: SimulatedEngine, data: bytes, after: int, timeout_s: float) -> int:
        if len(data) == MESSAGE_BYTES_MAX:
            wait_here(LEASE_S / 2)
        return append(self, data, after, timeout_s)

    monkeypatch.setattr(SimulatedEngine, "append", slowly)

    def run() -> None:
        one = begin(servers, "one")
        assert one.acquire_blocking()
        assert one.commits is not None
        other = begin(servers, "other")
        Thread(target=other.acquire_blocking).start()
        one.commits.commit(batch_of(1, QueueCreated(1, "q")))
        began_us = kernel.now_us
        one.commits.commit(batch_of(1, stored(1, size=20 * MESSAGE_BYTES_MAX)))
        done.append((kernel.now_us - began_us) / 1_000_000)
        wait_here(LEASE_S)
        assert one.held
        assert one.sure_for_s() > 0
        assert not other.held
        assert other.replica.commits == one.replica.commits

    thread = Thread(target=run)
    kernel.run_as(process, thread.start)
    while thread.is_alive():
        kernel.step()
    process.alive = False
    process.end_threads()
    assert done[0] > 5 * LEASE_S
