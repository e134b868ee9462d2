"""What a broker says of itself: counters it keeps anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from legato import __version__
from legato.core.queues import Queue
from legato.core.records import QueueRecord
from legato.store.base import Store

if TYPE_CHECKING:
    from legato.server.service import Service


class QueueStatus(msgspec.Struct):
    """One queue: `depth` counts all that wait, `in_flight` those of them that a consumer has."""

    name: str
    depth: int
    in_flight: int
    consumers: int
    stored: int
    consumed: int


class Status(msgspec.Struct):
    """One broker."""

    role: str
    version: str
    container_id: str
    epoch: int
    since_us: int
    takeover_ms: float | None
    connections: int
    producers_refused: str
    store_used_bytes: int
    store_capacity_bytes: int
    free_disk_bytes: int
    queues: list[QueueStatus]


def snapshot(service: Service, store: Store) -> Status:
    """The state of an active broker now."""
    usage = store.usage()
    live = service.broker.queues
    queues = [_live(queue) for queue in live.values()]
    # Queues that nobody used in this epoch are known to the store only.
    queues += [_resting(record) for record in store.queues() if record.name not in live]
    return Status(
        role="primary",
        version=__version__,
        container_id=service.container_id,
        epoch=service.broker.epoch,
        since_us=service.started_us,
        takeover_ms=service.takeover_ms,
        connections=sum(1 for peer in service.peers if peer.opened),
        producers_refused=service.full,
        store_used_bytes=usage.used_bytes,
        store_capacity_bytes=usage.capacity_bytes,
        free_disk_bytes=usage.free_disk_bytes,
        queues=sorted(queues, key=lambda queue: queue.name),
    )


def _live(queue: Queue) -> QueueStatus:
    return QueueStatus(
        name=queue.name,
        depth=queue.depth,
        in_flight=sum(len(consumer.unsettled) for consumer in queue.consumers),
        consumers=len(queue.consumers),
        stored=queue.stored,
        consumed=queue.consumed,
    )


def _resting(record: QueueRecord) -> QueueStatus:
    return QueueStatus(
        name=record.name,
        depth=record.stored - record.consumed,
        in_flight=0,
        consumers=0,
        stored=record.stored,
        consumed=record.consumed,
    )
