"""Exposition: readings of a broker as text for Prometheus, with the names that dashboards and alert rules use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST as PLAIN
from prometheus_client.exposition import generate_latest as generate_plain
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPEN_METRICS
from prometheus_client.openmetrics.exposition import generate_latest as generate_open_metrics
from prometheus_client.registry import Collector

from legato import __version__
from legato.ha.roles import Role
from legato.replication.replica_status import ReplicaStatus
from legato.server.monitoring.histogram import Histogram
from legato.server.monitoring.readings import PrimaryReadings
from legato.server.monitoring.replica_exposition import of_replica


def format_for(accept: str) -> str:
    """The content type for who takes these: OpenMetrics if it is named, as Prometheus does; else its plain text."""
    return OPEN_METRICS if "application/openmetrics-text" in accept else PLAIN


class ProcessReadings(msgspec.Struct):
    """A broker process in any role, as of one scrape."""

    role: Role
    epoch: int
    """Of the store, as far as it knows; 0 if it knows of none."""
    role_since_s: float
    """When it took its role, seconds since 1970."""
    members: Mapping[str, int]
    """Processes of the store, by role."""
    lags: Histogram
    stalled_s: float
    watchdog_s: float
    duration_s: float
    """How long it took to get the readings."""
    complete: bool
    """False if this is a primary whose own readings did not come in time."""
    exported_through: int
    primary: PrimaryReadings | None
    replica: ReplicaStatus | None = None
    """Of a broker with a replicated log."""


class _Families(Collector):
    """The metric families of one scrape."""

    def __init__(self, readings: ProcessReadings) -> None:
        self._readings = readings

    def collect(self) -> Iterable[Metric]:
        """See `prometheus_client`."""
        yield from _of_process(self._readings)
        if self._readings.replica is not None:
            yield from of_replica(self._readings.replica, self._readings.role)
        if self._readings.primary is not None:
            yield from _of_primary(self._readings.primary, self._readings.exported_through)
            yield from _of_queues(self._readings.primary)


def render(readings: ProcessReadings, content_type: str = OPEN_METRICS) -> bytes:
    """The text of a scrape."""
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    registry.register(_Families(readings))
    if content_type == PLAIN:
        return generate_plain(registry)
    return bytes(generate_open_metrics(registry))  # type: ignore[no-untyped-call]


def _of_process(readings: ProcessReadings) -> Iterator[Metric]:
    yield InfoMetricFamily("legato_build", "The version of Legato.", {"version": __version__})
    role = GaugeMetricFamily("legato_role", "1 for the role of this process, 0 for every other role.", labels=["role"])
    members = GaugeMetricFamily("legato_members", "Broker processes of this store, by role.", labels=["role"])
    for each in Role:
        role.add_metric([each.value], float(each is readings.role))
        members.add_metric([each.value], readings.members.get(each.value, 0))
    yield role
    yield members
    yield _gauge("legato_epoch", "The epoch of the store, as far as this process knows; 0 if none.", readings.epoch)
    yield _gauge(
        "legato_role_since_seconds", "When this process took its role, seconds since 1970.", readings.role_since_s
    )
    yield _histogram("legato_loop_lag_seconds", "How late the event loop ran a timer.", readings.lags)
    yield _gauge(
        "legato_loop_stalled_seconds", "For how long the event loop has been late; 0 if it is not.", readings.stalled_s
    )
    yield _gauge(
        "legato_watchdog_seconds", "A primary whose loop stalls for so long ends; 0: never.", readings.watchdog_s
    )
    yield _gauge("legato_scrape_seconds", "How long it took to read these metrics.", readings.duration_s)
    yield _gauge("legato_scrape_complete", "0 if the primary's readings did not come in time.", readings.complete)


def _of_primary(primary: PrimaryReadings, exported_through: int) -> Iterator[Metric]:
    activity, usage = primary.activity, primary.usage
    yield _gauge("legato_connections", "Connections of clients.", primary.connections)
    expires_s = math.inf if primary.certificate_expires_s is None else primary.certificate_expires_s
    yield _gauge(
        "legato_certificate_expires_timestamp_seconds",
        "When the listener's certificate ends, seconds since 1970; +Inf without TLS.",
        expires_s,
    )
    yield _counter("legato_internal_errors", "Connections cut off after an internal error.", primary.internal_errors)
    yield _gauge(
        "legato_queues_damaged", "Queues of which the store is damaged: nobody receives.", primary.damaged_queues
    )
    yield _gauge("legato_producers_refused", "1 while there is no room for producers.", primary.producers_refused)
    takeover = GaugeMetricFamily(
        "legato_takeover_seconds", "The takeover that began this epoch, by phase.", labels=["phase", "cause"]
    )
    takeover.add_metric(["detection", primary.takeover.cause], primary.takeover.detection_ms / 1000)
    takeover.add_metric(["takeover", primary.takeover.cause], (primary.takeover.takeover_ms or 0) / 1000)
    yield takeover

    yield _counter("legato_commits", "Durable commits.", activity.commits)
    yield _histogram("legato_commit_seconds", "From submitting a batch until it was durable.", activity.durations)
    yield _counter("legato_messages_stored", "Messages stored in queues and subscriptions.", activity.stored)
    yield _counter("legato_messages_delivered", "Deliveries to consumers, repeated ones included.", primary.delivered)
    yield _counter("legato_messages_acknowledged", "Messages consumed.", activity.acknowledged)
    failed = CounterMetricFamily(
        "legato_deliveries_failed",
        "Deliveries that failed: the message comes again, or is a dead letter.",
        labels=["cause"],
    )
    for cause, count in sorted(activity.failed.items()):
        failed.add_metric([cause], count)
    yield failed
    yield _counter("legato_messages_dead_lettered", "Messages that became dead letters.", activity.dead_lettered)
    yield _counter("legato_messages_expired", "Messages that expired.", activity.expired)
    yield _counter("legato_messages_dropped", "Messages dropped by full addresses.", activity.dropped)
    yield _counter("legato_duplicates_dropped", "Messages sent again and not stored again.", activity.duplicates)
    yield _counter("legato_transactions_committed", "Transactions committed.", activity.transactions_committed)
    yield _counter("legato_transactions_rolled_back", "Transactions rolled back.", activity.transactions_rolled_back)

    yield _gauge("legato_store_used_bytes", "Live pages of the store.", usage.used_bytes)
    yield _gauge("legato_store_capacity_bytes", "store.map_bytes: the store's maximum size.", usage.capacity_bytes)
    yield _gauge("legato_disk_free_bytes", "Free bytes on the store's disk.", usage.free_disk_bytes)
    room = min(usage.capacity_bytes - usage.used_bytes, usage.free_disk_bytes + usage.file_room_bytes)
    yield _gauge("legato_store_room_bytes", "How much more the store can hold.", max(room, 0))
    yield _gauge("legato_store_long_readers", "Processes whose reads make the file grow.", primary.long_readers)
    yield _gauge("legato_log_bytes", "Size of the log of facts in the store.", primary.log_bytes)
    lag = max(primary.log_position - exported_through, 0) if exported_through else 0
    yield _gauge("legato_ledger_lag_commits", "Commits that the ledger has not taken over; 0 without one.", lag)


def _of_queues(primary: PrimaryReadings) -> Iterator[Metric]:
    by_kind = {
        name: GaugeMetricFamily(name, text, labels=["kind"])
        for name, text in (
            ("legato_queues", "Queues, topics and subscriptions, by kind."),
            ("legato_messages", "Messages that wait, those in flight included, by kind of queue."),
            ("legato_messages_bytes", "Size of what waits, by kind of queue."),
        )
    }
    for kind, totals in primary.by_kind.items():
        values = (totals.count, totals.depth, totals.bytes)
        for family, value in zip(by_kind.values(), values, strict=True):
            family.add_metric([kind], value)
    yield from by_kind.values()
    yield _gauge("legato_messages_in_flight", "Messages that consumers have and did not settle.", primary.in_flight)
    yield _gauge("legato_consumers", "Consumers of all queues and subscriptions.", primary.consumers)
    yield _gauge("legato_dead_letters", "Messages in dead-letter queues.", primary.dead_letters)
    yield _gauge(
        "legato_queues_left_out", "Queues without metrics of their own (http.queues_max).", primary.queues_left_out
    )
    gauges = {
        column: GaugeMetricFamily(f"legato_queue_{column}", text, labels=["queue"])
        for column, text in (
            ("depth", "Messages that wait, those in flight included."),
            ("bytes", "Size of what waits."),
            ("in_flight", "Messages that consumers have and did not settle."),
            ("consumers", "Consumers."),
            ("paused", "1 while deliveries are paused."),
        )
    }
    age = GaugeMetricFamily(
        "legato_queue_head_age_seconds", "How long the oldest message has waited; 0 if none waits.", labels=["queue"]
    )
    stored = CounterMetricFamily("legato_queue_stored", "Messages stored since it was created.", labels=["queue"])
    consumed = CounterMetricFamily("legato_queue_consumed", "Messages that left the queue.", labels=["queue"])
    delivered = CounterMetricFamily("legato_queue_delivered", "Deliveries from the queue.", labels=["queue"])
    for row, deliveries in primary.queues:
        label = [row.name]
        for column, family in gauges.items():
            family.add_metric(label, float(getattr(row, column)))
        age.add_metric(label, row.head_age_s or 0.0)
        stored.add_metric(label, row.stored)
        consumed.add_metric(label, row.consumed)
        delivered.add_metric(label, deliveries)
    yield from (*gauges.values(), age, stored, consumed, delivered)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _histogram(name: str, text: str, histogram: Histogram) -> Metric:
    return HistogramMetricFamily(name, text, buckets=histogram.buckets(), sum_value=histogram.sum_s)
