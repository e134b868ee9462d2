"""Exposition of a replica: its log's servers, how far it is, and as the primary's the other brokers of its group."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from legato.ha.roles import Role
from legato.replication.replica_status import ReplicaStatus


def of_replica(replica: ReplicaStatus, role: Role) -> Iterator[Metric]:
    """The metric families of a replica; what its log's servers do not say now is left out.

    Args:
        replica: of a broker.
        role: of that broker.
    """
    held_back = role is Role.PRIMARY and not replica.sure
    yield _gauge("legato_replication_waits", "1 while the replica cannot go on.", replica.since_us is not None)
    yield _gauge(
        "legato_replication_held_back", "1 while a primary confirms nothing, as the log does not answer.", held_back
    )
    yield _gauge("legato_replication_record", "The last record of the log that the replica has.", replica.sequence)
    if replica.behind is not None:
        yield _gauge("legato_replication_behind_records", "Records of the log that the replica lacks.", replica.behind)
    yield from _of_servers(replica)
    if role is Role.PRIMARY:
        yield from _of_backups(replica)


def _of_servers(replica: ReplicaStatus) -> Iterator[Metric]:
    servers = replica.servers
    if not servers:
        return
    yield _gauge("legato_replication_log_servers", "Servers of the replicated log.", len(servers))
    yield _gauge(
        "legato_replication_log_servers_current",
        "Servers of the replicated log that have all records, and answer its leader.",
        sum(each.current for each in servers),
    )
    yield _gauge("legato_replication_quorum", "1 if the log can acknowledge anything.", bool(replica.quorum))
    yield _gauge("legato_replication_log_bytes", "What the replicated log keeps.", replica.log_bytes)
    behind = GaugeMetricFamily(
        "legato_replication_log_server_behind_records", "Records that a server of the log lacks.", labels=["server"]
    )
    for each in servers:
        behind.add_metric([each.server], each.lag)
    yield behind


def _of_backups(replica: ReplicaStatus) -> Iterator[Metric]:
    behind = GaugeMetricFamily(
        "legato_replication_backup_behind_records", "Records that another broker lacks.", labels=["backup"]
    )
    away = GaugeMetricFamily(
        "legato_replication_backup_away", "1 if nothing has been heard of another broker.", labels=["backup"]
    )
    troubled = GaugeMetricFamily(
        "legato_replication_backup_troubled",
        "1 if something is wrong with another broker: legato status says what.",
        labels=["backup"],
    )
    for each in replica.backups:
        behind.add_metric([each.listen], each.behind)
        away.add_metric([each.listen], each.away)
        troubled.add_metric([each.listen], bool(each.trouble))
    yield from (behind, away, troubled)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))
