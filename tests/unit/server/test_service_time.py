"""What a service begins lasts from the moment at which it hears of its cause."""

import asyncio
from typing import cast

from legato import limits
from legato.amqp.engine.events import Closed
from legato.amqp.engine.terminus import Terminus
from legato.core.queues import Queue
from legato.ha.lease import Lease
from legato.server.config.configuration import Config
from legato.server.connections.client_connection import Peer
from legato.server.links.link_roles import DeliveryLink
from legato.server.process.primary_epoch import PrimaryEpoch
from legato.server.process.service import Service
from legato.store.memory import MemoryStore
from tests.support.stopwatch import Watch


class Alone:
    """A reign without a backup and with few connections."""

    def note_connections(self, connections: int) -> None:
        """There is nobody to tell."""


def serving(clock: Watch) -> Service:
    """A service whose queues are all exclusive; time does nothing in it by itself."""
    store = MemoryStore()
    config = Config(address=[{"match": "#", "exclusive": True}])
    lease = Lease(lambda: True, None, clock.monotonic_ms())
    meta = store.begin_epoch("here", clock.now_us())
    service = Service(config, store, meta, clock, lease, cast(PrimaryEpoch, Alone()), lambda: config)
    service.stop_timers()
    return service


def receiving(service: Service) -> tuple[Peer, Queue]:
    """A peer that leads an exclusive queue and says what it presents."""
    peer = Peer(service)
    link = peer.amqp.begin_session().sender("link", target=Terminus(kind="target"))
    queue = service.broker.directory.queue("q")
    consumer, _ = service.broker.receivers.attach(
        queue, DeliveryLink(peer, link), peer.container, reports_presented=True, name="link"
    )
    link.context = consumer
    peer.links.add(link)
    peer.receivers.add(consumer)
    return peer, queue


def test_what_a_lost_client_had_is_kept_for_the_whole_time_after_the_loss_was_noticed() -> None:
    """CONTRACT B21: however long before the broker last looked at the clock."""

    async def story() -> list[bool]:
        clock = Watch()
        service = serving(clock)
        peer, queue = receiving(service)
        service.broker.tick(clock.now_us())
        clock.ms += 90
        service.handle(peer, [Closed("", "connection lost", clean=False)])
        kept = []
        for ticks_ms in ((0,), (1000,) * (limits.RECONNECT_TIMEOUT_S - 1), (999,), (1,)):
            for ms in ticks_ms:
                clock.ms += ms
                service.broker.tick(clock.now_us())
            kept.append(bool(queue.reservations))
        service.abort()
        return kept

    assert asyncio.run(story()) == [True, True, True, False]
