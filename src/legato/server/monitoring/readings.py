"""Readings of a primary, taken in its loop in short steps: counters, totals over all queues, some queues by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from legato.address_patterns import matches
from legato.core.broker import Broker
from legato.core.dead_letters import holds_dead_letters
from legato.core.facts import Kind
from legato.core.records import QueueRecord
from legato.server.config.configuration import HttpSection
from legato.server.links.damaged_queues import DamagedQueues
from legato.server.management.takeover_report import Takeover
from legato.server.management.views import Inspector, QueueStatus
from legato.server.monitoring.activity import Activity
from legato.server.shell import Shell
from legato.server.storage.maintenance import Upkeep
from legato.store.base import Store, Usage

KINDS = {
    Kind.QUEUE: "queue",
    Kind.TOPIC: "topic",
    Kind.SUBSCRIPTION: "subscription",
    Kind.SCHEDULE: "schedule",
    Kind.ASSIGNMENT: "assignment",
}


class Watched(Shell, Protocol):
    """The parts of a service that are read."""

    broker: Broker
    inspector: Inspector
    internal_errors: int
    certificate_expires_s: float | None
    damaged: DamagedQueues
    takeover: Takeover
    upkeep: Upkeep
    activity: Activity | None


class Totals(msgspec.Struct):
    """Sums over the queues of one kind."""

    count: int = 0
    depth: int = 0
    bytes: int = 0


class PrimaryReadings(msgspec.Struct):
    """A primary, as of one scrape."""

    activity: Activity
    usage: Usage
    log_bytes: int
    log_position: int
    exported_through: Callable[[], int]
    """Reads a directory: for the thread that answers, not for the loop."""
    takeover: Takeover
    connections: int
    internal_errors: int
    damaged_queues: int
    delivered: int
    producers_refused: bool
    long_readers: int
    by_kind: dict[str, Totals]
    in_flight: int = 0
    consumers: int = 0
    dead_letters: int = 0
    queues: list[tuple[QueueStatus, int]] = []
    """Those that have series of their own, each with its deliveries since the broker began to hold it in memory."""
    queues_left_out: int = 0
    certificate_expires_s: float | None = None
    """When the certificate of its listener ends, seconds since 1970; None without TLS."""


def read_in_steps(
    service: Watched, store: Store, section: HttpSection, done: Callable[[PrimaryReadings], None]
) -> Iterator[None]:
    """Read a primary; each step takes little time, the last one calls `done`."""
    broker, upkeep = service.broker, service.upkeep
    assert service.activity is not None
    readings = PrimaryReadings(
        activity=service.activity,
        usage=store.usage(),
        log_bytes=store.log_bytes(),
        log_position=store.log_range()[1],
        exported_through=upkeep.exported_through,
        takeover=service.takeover,
        connections=sum(1 for peer in service.peers if peer.opened),
        internal_errors=service.internal_errors,
        damaged_queues=service.damaged.count,
        delivered=broker.dispatcher.delivered,
        producers_refused=bool(upkeep.full),
        long_readers=len(upkeep.readers.long),
        by_kind={kind: Totals() for kind in KINDS.values()},
        certificate_expires_s=service.certificate_expires_s,
    )
    yield
    wanted = _wanted(section.queues)
    for record in service.inspector.records():
        if not broker.directory.is_deleted(record.queue):
            _add(readings, broker, record)
            if not record.temporary and record.kind in (Kind.QUEUE, Kind.SUBSCRIPTION) and wanted(record.name):
                if len(readings.queues) < section.queues_max:
                    row = service.inspector.row(record)
                    assert isinstance(row, QueueStatus)
                    live = broker.directory.queues.get(record.name)
                    readings.queues.append((row, 0 if live is None else live.delivered))
                else:
                    readings.queues_left_out += 1
        yield
    done(readings)


def _add(readings: PrimaryReadings, broker: Broker, record: QueueRecord) -> None:
    """One more queue or topic in the sums: as it is in memory if it is in use, else as it is in the store."""
    totals = readings.by_kind[KINDS[Kind(record.kind)]]
    totals.count += 1
    queue = broker.directory.queues.get(record.name)
    if queue is None:
        depth, size = record.stored - record.consumed, record.bytes
    else:
        depth, size = queue.depth, queue.bytes
        readings.in_flight += queue.in_flight
        readings.consumers += len(queue.consumers)
    totals.bytes += size
    if record.kind == Kind.TOPIC:
        return
    totals.depth += depth
    if depth and record.kind == Kind.QUEUE:
        settings = broker.directory.settings_of(record.name) if queue is None else queue.settings
        if holds_dead_letters(record.name, settings):
            readings.dead_letters += depth


def _wanted(patterns: Sequence[str]) -> Callable[[str], bool]:
    if "#" in patterns:
        return lambda name: True
    words = [pattern.split(".") for pattern in patterns]
    return lambda name: any(matches(pattern, name.split(".")) for pattern in words)
