"""An internal error costs a peer its connection; where another broker has claimed the store, that is why."""

import asyncio
from typing import cast

import pytest

from legato.amqp.engine.events import Event
from legato.ha.lease import Lease, Standing
from legato.server.config.configuration import Config
from legato.server.connections.client_connection import Peer
from legato.server.process.primary_epoch import PrimaryEpoch
from legato.server.process.service import Service
from legato.store.memory import MemoryStore
from tests.support.stopwatch import Watch


class Owner:
    """Notes that the epoch is lost."""

    def __init__(self) -> None:
        self.lost: list[Standing] = []

    def note_connections(self, connections: int) -> None:
        """There is nobody to tell."""

    def lose(self, standing: Standing) -> None:
        """See `PrimaryEpoch.lose`."""
        self.lost.append(standing)


@pytest.mark.parametrize("ours", [True, False])
def test_what_another_broker_did_to_the_store_is_no_internal_error(ours: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 7: one that was stopped for less than the time between two looks at its lock reads another's store."""

    async def story() -> tuple[int, list[Standing], bool]:
        owner, clock = Owner(), Watch()
        store, config = MemoryStore(), Config()
        meta = store.begin_epoch("here", clock.now_us())
        lease = Lease(lambda: ours, None, clock.monotonic_ms())
        service = Service(config, store, meta, clock, lease, cast(PrimaryEpoch, owner), lambda: config)
        service.stop_timers()
        peer = Peer(service)

        def contradicted(*_: object) -> list[Event]:
            raise AssertionError("a message is waiting but not in the store")

        monkeypatch.setattr(service, "handle", contradicted)
        peer.data_received(b"AMQP\x00\x01\x00\x00")
        service.abort()
        return service.internal_errors, owner.lost, peer.ended

    errors, lost, ended = asyncio.run(story())
    assert (errors, lost) == ((1, []) if ours else (0, [Standing.LOST]))
    assert ended or not ours
