"""A log that an administrator changed, or that takes nothing, while brokers run: what they say, and that they wait."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from legato.cli.status import ask
from legato.processes.log_servers import LogServers
from tests.integration.replication.test_nats_safety import ask as ask_log
from tests.support.replicated import Group, eventually, group, servers
from tests.support.server import Server

__all__ = ["group", "servers"]

OFTEN = "[ha]\nheartbeat_interval_s = 0.2\nactivation_interval_s = 3.0\n"


def change(servers: LogServers, name: str, **changes: Any) -> None:
    """As `nats stream edit` does it."""
    found = ask_log(servers.url, f"$JS.API.STREAM.INFO.{name}")["config"]
    answer = ask_log(servers.url, f"$JS.API.STREAM.UPDATE.{name}", {**found, **changes})
    assert "error" not in answer, answer


@pytest.mark.parametrize(
    ("changes", "back", "told"),
    [
        ({"num_replicas": 1}, {"num_replicas": 3}, "is kept by 1 server: at least 3 are needed"),
        ({"max_age": 3_600_000_000_000}, {"max_age": 0}, "forgets records by itself (max_age: 3600000000000)"),
        ({"max_msg_size": 1_000_000}, {"max_msg_size": -1}, "takes messages of at most 1000000 bytes: remove max_msg_"),
    ],
)
def test_a_primary_says_that_its_stream_was_changed(
    servers: LogServers, group: Group, changes: dict[str, Any], back: dict[str, Any], told: str
) -> None:
    """What it confirms may be lost from now on: nobody knew of it until another broker took over."""

    def is_told() -> bool:
        return told in json.dumps(ask(group.url)["replication"]["trouble"])

    first = group.start("a", "active")
    change(servers, f"LEGATO_{group.name}", **changes)
    eventually(is_told, "the status does not say it")
    first.wait_for_log(f"the replicated log: the stream LEGATO_{group.name} {told}")
    change(servers, f"LEGATO_{group.name}", **back)
    eventually(lambda: not is_told(), "the status still says it")


def test_no_backup_claims_a_log_that_takes_nothing_while_its_primary_lives(
    servers: LogServers, group: Group, tmp_path: Path
) -> None:
    """Where nobody logs in, too: heartbeats leave while answers are held back."""
    (config := tmp_path / "legato.toml").write_text(OFTEN)
    first, second = group.start("a", "active", config=config), group.start("b", "backup", config=config)
    second.wait_for_log("heartbeats of epoch 1")
    change(servers, f"LEGATO_{group.name}", max_msg_size=100)
    first.wait_for_log("fenced by itself")
    second.wait_for_log("message size exceeds maximum allowed")
    assert when(second, "message size exceeds maximum allowed") > when(first, "fenced by itself")
    change(servers, f"LEGATO_{group.name}", max_msg_size=-1)
    eventually(lambda: any(each.role.startswith("active epoch=2") for each in (first, second)), "nobody serves")


def test_a_store_of_a_group_that_is_served_without_its_log_says_so(group: Group) -> None:
    """It confirmed what nobody else has, and said nothing: `--replicate` was forgotten."""
    group.start("a", "active").stop()
    alone = Server(group.brokers["a"].store).start()
    alone.wait_for_role("active")
    alone.wait_for_log("came from a replicated log, and this broker serves without one (--replicate)")
    alone.kill()


def when(broker: Server, said: str) -> str:
    """The time of the first line with those words in its log."""
    return next(line.split()[0] for line in broker.log.read_text().splitlines() if said in line)
