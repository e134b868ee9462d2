"""A log that an administrator changed, or that takes nothing, while brokers run: what they say, and that they wait."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from legato.cli.status import ask
from legato.client import ConnectionFactory
from legato.ha.members import list_members
from legato.processes.log_servers import LogServers
from tests.integration.replication.test_nats_safety import ask as ask_log
from tests.support.forked_process import run_legato
from tests.support.replicated import Group, eventually, group, received, servers
from tests.support.server import Server

__all__ = ["group", "servers"]

OFTEN = "[ha]\nheartbeat_interval_s = 0.2\nactivation_interval_s = 3.0\n"


def change(servers: LogServers, name: str, **changes: Any) -> None:
    """As `nats stream edit` does it."""
    found = ask_log(servers.url, f"$JS.API.STREAM.INFO.{name}")["config"]
    answer = ask_log(servers.url, f"$JS.API.STREAM.UPDATE.{name}", {**found, **changes})
    assert "error" not in answer, answer


def start_pair(group: Group, tmp_path: Path) -> tuple[Server, Server]:
    """A primary, and its backup, which hears it often and would soon miss it."""
    (config := tmp_path / "legato.toml").write_text(OFTEN)
    first, second = group.start("a", "active", config=config), group.start("b", "backup", config=config)
    second.wait_for_log("heartbeats of epoch 1")
    return first, second


def wait_until_one_serves_again(*pair: Server) -> None:
    eventually(lambda: any(each.role.startswith("active epoch=2") for each in pair), "nobody serves")


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
    first, second = start_pair(group, tmp_path)
    change(servers, f"LEGATO_{group.name}", max_msg_size=100)
    first.wait_for_log("fenced by itself")
    second.wait_for_log("message size exceeds maximum allowed")
    assert when(second, "message size exceeds maximum allowed") > when(first, "fenced by itself")
    change(servers, f"LEGATO_{group.name}", max_msg_size=-1)
    wait_until_one_serves_again(first, second)


def test_a_primary_says_first_what_stops_its_appends(servers: LogServers, group: Group) -> None:
    """It said that there is an election, or no quorum, where an administrator had given the stream a limit."""
    first = group.start("a", "active")
    change(servers, f"LEGATO_{group.name}", max_msg_size=100)
    told = f"the stream LEGATO_{group.name} takes messages of at most 100 bytes: remove max_msg_size"

    def troubles() -> list[list[str]]:
        return [member.trouble for member in list_members(first.store)]

    eventually(lambda: [told] in troubles(), "it does not say why it waits")
    change(servers, f"LEGATO_{group.name}", max_msg_size=-1)
    eventually(lambda: troubles() == [[]], "it waits still")


def test_brokers_whose_stream_may_take_nothing_wait_and_serve_when_that_is_mended(
    servers: LogServers, group: Group, tmp_path: Path
) -> None:
    """Whoever claimed meanwhile ended, so that nobody was there when the setting was mended."""
    first, second = start_pair(group, tmp_path)
    change(servers, f"LEGATO_{group.name}", max_bytes=1000)
    first.wait_for_log("fenced by itself")
    second.wait_for_log("forgets records by itself (max_bytes: 1000)")
    first.wait_for_log("the replica waits: the stream")
    change(servers, f"LEGATO_{group.name}", max_bytes=-1)
    wait_until_one_serves_again(first, second)


def test_the_health_of_a_log_that_cannot_be_trimmed_is_shown(servers: LogServers, group: Group, tmp_path: Path) -> None:
    """A failed trim hid all of it: servers, quorum, size."""
    (config := tmp_path / "legato.toml").write_text("[replication]\nlog_bytes = 1_048_576\n")
    group.start("a", "active", config=config)
    change(servers, f"LEGATO_{group.name}", deny_purge=True)
    with ConnectionFactory(group.url).create_connection() as connection, connection.create_session() as session:
        producer = session.create_producer(session.create_queue("q"))
        for _ in range(8):
            producer.send(session.create_text_message("x" * 200_000))

    def is_told() -> bool:
        told = ask(group.url)["replication"]
        failed = any(each.startswith("the log cannot be trimmed: ") for each in told["trouble"])
        return failed and len(told["servers"]) == 3 and told["quorum"] and told["log_bytes"] > 1_048_576

    eventually(is_told, "the status does not show it")


def test_a_store_of_a_group_is_not_served_without_its_log_before_it_is_detached(group: Group, tmp_path: Path) -> None:
    """Without `--replicate`, which was forgotten, it confirmed what nobody else has."""
    first = group.start("a", "active")
    send(group.url, "one")
    running = legato("replica", "detach", first.store, "--yes")
    assert running.returncode == 1
    assert f"a broker runs on the store in {first.store}: stop it first" in running.stderr
    backup, restored = tmp_path / "backup", tmp_path / "restored"
    assert legato("store", "backup", first.store, backup, "--no-ledger").returncode == 0
    assert "is a backup: make a store of it first" in legato("replica", "detach", backup, "--yes").stderr
    assert legato("store", "restore", backup, restored).returncode == 0
    alone = Server(restored).start()
    alone.wait_for_role("ended")
    assert alone.wait() == 2, "whoever restarts brokers is to leave it alone"
    refused = alone.log.read_text()
    assert "belongs to a replicated log, and --replicate (replication.servers) is not given" in refused
    assert f"legato replica detach {restored}" in refused
    assert "Traceback" not in refused

    asked = legato("replica", "detach", restored)
    assert asked.returncode == 2
    assert "add --yes to do so" in asked.stderr
    assert "would take" in legato("replica", "detach", restored, "--dry-run").stdout
    assert alone.start().role == "ended", "nothing was changed"
    assert "is of no log any more, as of commit " in legato("replica", "detach", restored, "--yes").stdout
    assert "serves it alone as it is" in legato("replica", "detach", restored, "--yes").stdout
    alone.start().wait_for_role("active")
    assert received(f"amqp://127.0.0.1:{alone.port}") == ["one"]
    assert alone.stop() == 0

    stray = Server(restored, "--replicate", group.servers.url, "--group", group.name).start()
    stray.wait_for_role("ended")
    assert "commits of its own, and the log of the group" in stray.log.read_text()
    assert received(group.url) == ["one"], "the group goes on"


def test_a_store_that_was_detached_begins_the_log_of_a_new_group(group: Group) -> None:
    group.start("a", "active").stop()
    store = group.brokers["a"].store
    assert legato("replica", "detach", store, "--yes").returncode == 0
    begun = Server(store, "--replicate", group.servers.url, "--group", f"{group.name}-new").start()
    begun.wait_for_role("active epoch=2")
    assert begun.stop() == 0


def send(url: str, text: str) -> None:
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        session.create_producer(session.create_queue("q")).send(session.create_text_message(text))


def legato(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run_legato(*map(str, arguments))


def when(broker: Server, said: str) -> str:
    """The time of the first line with those words in its log."""
    return next(line.split()[0] for line in broker.log.read_text().splitlines() if said in line)
