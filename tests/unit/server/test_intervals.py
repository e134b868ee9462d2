"""Intervals that are changed while a primary with a replicated log serves."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from legato.errors import ConfigError
from legato.ha.lease import Lease, Standing
from legato.replication.replica_status import ReplicaStatus
from legato.server.config.configuration import Config
from legato.server.process.primary_epoch import PrimaryEpoch
from legato.server.process.service import Replicated, Service
from legato.store.memory import MemoryStore
from tests.support.stopwatch import Watch
from tests.unit.server.test_service_time import Alone


def test_with_a_replicated_log_they_are_bounded_by_its_lease_and_hold_for_the_primarys_own() -> None:
    """More than half a lease was accepted between heartbeats, and the primary still lapsed after the former time."""

    async def story() -> None:
        clock, store = Watch(), MemoryStore()
        config = Config()
        config.replication.servers, config.ha.heartbeat_interval_s = "nats://a", 0.25
        # The log acknowledges nothing.
        lease = Lease(lambda: True, 10_000, clock.monotonic_ms(), lambda: 0.0)
        replicated = Replicated(store, lambda: None, lambda: cast(ReplicaStatus, None), 1 << 20)
        meta = store.begin_epoch("here", clock.now_us())
        owner = cast(PrimaryEpoch, Alone())
        service = Service(config, store, meta, clock, lease, owner, lambda: config, replicated=replicated)
        service.stop_timers()
        with pytest.raises(ConfigError, match=r"at most half of replication\.lease_s, 0\.25 s"):
            service.update({"heartbeat_interval_s": 3.0})
        assert service.update({"heartbeat_interval_s": 0.2, "activation_interval_s": 30.0}) == {
            "heartbeat_interval_s": 0.2,
            "activation_interval_s": 30.0,
        }
        now_ms = clock.monotonic_ms()
        assert lease.standing(now_ms + 20_000) is Standing.UNSURE
        assert lease.standing(now_ms + 30_000) is Standing.LAPSED
        service.abort()

    asyncio.run(story())
