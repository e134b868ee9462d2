"""The status of a broker, made of counters that exist anyway."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from legato import __version__
from legato.core.broker import Broker
from legato.replication.replica_status import ReplicaStatus
from legato.server.config.configuration import Config
from legato.server.limits.memory_mark import HeldMemory
from legato.server.links.membership import Membership
from legato.server.management.takeover_report import Failover, Takeover
from legato.server.management.views import Inspector, QueueStatus, TopicStatus
from legato.server.shell import Shell
from legato.server.storage.long_readers import LongReader
from legato.server.storage.maintenance import Upkeep
from legato.store.base import Store

STATUS_ROWS_MAX = 1000
"""Queues that a status shows; the management address shows all, page by page."""


class Status(msgspec.Struct):
    """One broker."""

    role: str
    version: str
    container_id: str
    listen: str
    epoch: int
    since_us: int
    takeover_ms: float | None
    failover: Failover
    connections: int
    producers_refused: str
    store_used_bytes: int
    store_capacity_bytes: int
    free_disk_bytes: int
    long_readers: list[LongReader]
    """Processes that read the store for so long that its file grows."""
    queues: list[QueueStatus]
    """Queues and subscriptions."""
    topics: list[TopicStatus]
    more: bool
    """There are more than are shown."""
    internal_errors: int = 0
    """Connections that were cut off after an error of the broker's own; each is in its log."""
    slow_consumers: int = 0
    memory: HeldMemory | None = None
    """What connections hold in memory."""
    replication: ReplicaStatus | None = None
    """The log that brokers of its group share; None if it has none."""
    group: dict[str, Any] | None = None
    """The group it belongs to, the revision of the map, why it goes by no later one, and queues with messages that are
    another group's by it: of those that are shown."""


class Serving(Shell, Protocol):
    """The service's part of a status."""

    broker: Broker
    config: Config
    internal_errors: int
    started_us: int
    takeover: Takeover
    membership: Membership
    upkeep: Upkeep

    @property
    def container_id(self) -> str: ...

    def held_memory(self) -> HeldMemory:
        """What connections hold in memory."""

    def replication(self) -> ReplicaStatus | None:
        """The replicated log, if there is one."""

    def failover(self) -> Failover:
        """The last takeover, and what to expect of the next."""


def snapshot(service: Serving, store: Store, inspector: Inspector, rows_max: int = STATUS_ROWS_MAX) -> Status:
    """The state of an active broker now, with at most `rows_max` queues and topics."""
    usage = store.usage()
    rows, more = inspector.page(None, "", 0, rows_max)
    return Status(
        role="primary",
        version=__version__,
        container_id=service.container_id,
        listen=service.config.advertised,
        epoch=service.broker.epoch,
        since_us=service.started_us,
        takeover_ms=service.takeover.takeover_ms,
        failover=service.failover(),
        connections=sum(1 for peer in service.peers if peer.opened),
        producers_refused=service.full,
        store_used_bytes=usage.used_bytes,
        store_capacity_bytes=usage.capacity_bytes,
        free_disk_bytes=usage.free_disk_bytes,
        long_readers=service.upkeep.readers.long,
        queues=sorted((row for row in rows if isinstance(row, QueueStatus)), key=lambda row: row.name),
        topics=sorted((row for row in rows if isinstance(row, TopicStatus)), key=lambda row: row.name),
        more=more,
        internal_errors=service.internal_errors,
        slow_consumers=sum(peer.slow_consumers for peer in service.peers),
        memory=service.held_memory(),
        replication=service.replication(),
        group=_group(service.membership, rows, all_looked_at=not more),
    )


def _group(membership: Membership, rows: Iterable[object], *, all_looked_at: bool) -> dict[str, Any] | None:
    stranded: dict[str, str] = {}
    if membership.map is not None:
        for row in rows:
            if isinstance(row, QueueStatus) and row.depth and not row.temporary:
                owner = membership.owner_of(row.address)
                if owner is not None and owner.name != membership.name:
                    stranded[row.name] = owner.name
    return membership.describe(stranded, all_looked_at=all_looked_at)
