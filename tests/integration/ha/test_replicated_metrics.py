"""What brokers with a replicated log tell of it over HTTP and in `legato status`, while its servers are lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from legato.cli.rendering import replication_lines
from legato.cli.status import ask
from legato.processes.log_servers import LogServers
from legato.testing.log_servers import log_servers
from tests.support.monitored import fetch_json, scrape_until, until
from tests.support.replicated import Group
from tests.support.server import free_port

LEASE_S = "5"
"""A lease that a stalled machine does not miss."""


@pytest.fixture
def servers() -> Iterator[LogServers]:
    with log_servers() as servers:
        yield servers


@pytest.mark.slow
def test_the_loss_of_log_servers_and_of_a_broker_is_seen_in_the_metrics(servers: LogServers, group: Group) -> None:
    first, second = free_port(), free_port()
    primary = group.add("a", "--http", f":{first}", LEGATO_REPLICATION_LEASE_S=LEASE_S).start()
    primary.wait_for_role("active epoch=1")
    primary.stop()
    primary.start()
    primary.wait_for_role("active epoch=2")
    backup = group.add("b", "--http", f":{second}", LEGATO_REPLICATION_LEASE_S=LEASE_S).start()
    backup.wait_for_role("backup")
    until(lambda: fetch_json(second, "/readyz")[1]["epoch"] == 2)
    of_backup = scrape_until(second, lambda now: now.get("legato_epoch") == 2)
    assert of_backup.get("legato_replication_held_back") == 0, "a backup holds nothing back"
    assert "legato_replication_backup_away" not in of_backup.names()
    name = f"127.0.0.1:{backup.port}"
    found = scrape_until(first, lambda now: now.get("legato_replication_backup_troubled", backup=name) == 0)
    found = scrape_until(first, lambda now: now.get("legato_replication_log_servers_current") == 3)
    assert found.get("legato_replication_log_servers") == 3
    assert found.get("legato_replication_held_back") == found.get("legato_replication_waits") == 0
    assert found.get("legato_replication_quorum") == 1
    assert (found.get("legato_replication_record") or 0) >= 2

    lost = group.log_server(leads=False)
    lost.kill()
    found = scrape_until(first, lambda now: now.get("legato_replication_log_servers_current") == 2)
    assert found.get("legato_replication_log_servers") == 3
    scrape_until(first, lambda now: bool(now.get("legato_replication_log_server_behind_records", server=lost.name)))
    assert fetch_json(first, "/readyz")[0] == 200
    told: dict[str, Any] = {}

    def is_told() -> bool:
        told.update(ask(f"amqp://127.0.0.1:{primary.port}")["replication"])
        return bool(told["trouble"] == [f"{lost.name} does not answer the leader"])

    until(is_told)
    assert [each["heard"] for each in told["servers"] if each["server"] == lost.name] == [False]

    backup.kill()
    found = scrape_until(first, lambda now: now.get("legato_replication_backup_troubled", backup=name) == 1)
    assert found.get("legato_replication_backup_away", backup=name) == 1
    for server in servers.servers:
        server.kill()
    found = scrape_until(first, lambda now: now.get("legato_replication_held_back") == 1)
    scrape_until(first, lambda now: now.get("legato_replication_waits") == 1)


def test_a_status_says_how_old_its_view_of_the_log_is(group: Group) -> None:
    """Two seconds after a server was killed it said that all were current, as if it had just looked."""
    primary = group.start("a", "active", LEGATO_REPLICATION_LEASE_S=LEASE_S)
    url = f"amqp://127.0.0.1:{primary.port}"
    until(lambda: ask(url)["replication"]["looked_s"] is not None)
    ages: list[float] = []

    def is_older() -> bool:
        ages.append(ask(url)["replication"]["looked_s"])
        return max(ages) >= 0.5

    until(is_older)
    told = ask(url)["replication"] | {"looked_s": 1.8}
    assert " of 3 log servers are current (asked 2 s ago)" in replication_lines(told)[0][0]
    assert "log servers are current, " in replication_lines(told | {"looked_s": 0.2})[0][0]
