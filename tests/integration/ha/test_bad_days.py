"""Bad days of a group with a replicated log, on real processes: a broker or all servers of the log lost their disks.

That one server of the log loses its disk is in `test_replicated`.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from legato.client import ConnectionFactory
from legato.processes.log_servers import LogServers
from legato.replication.nats import NatsSettings, open_log
from legato.store.content_digest import content_digest
from tests.support.forked_process import run_legato
from tests.support.replicated import Group, commits_of, eventually, received
from tests.support.server import Server

BODY = "x" * 20_000


def legato(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run_legato(*map(str, arguments))


def send(group: Group, first: int, count: int) -> list[str | None]:
    """Messages of 20 kB, each confirmed."""
    texts: list[str | None] = [f"{number} {BODY}" for number in range(first, first + count)]
    with ConnectionFactory(group.url).create_connection() as connection, connection.create_session() as session:
        producer = session.create_producer(session.create_queue("q"))
        for text in texts:
            producer.send(session.create_text_message(text))
    return texts


def forgetful(directory: Path, more: str = "") -> Path:
    """A configuration with a log that keeps little."""
    config = directory / "legato.toml"
    config.write_text(f"[replication]\nlog_bytes = 500_000\n{more}")
    return config


def begin(group: Group, config: Path) -> tuple[Server, list[str | None]]:
    """A primary, and what was sent to it until the log had forgotten its beginning."""
    first = group.start("a", "active", config=config)
    sent = send(group, 0, 60)
    eventually(lambda: kept_from(group) > 1, "the log is not trimmed")
    return first, sent


def kept_from(group: Group) -> int:
    """The first record that the log keeps."""
    log = open_log(NatsSettings(group.servers.url, group.name))
    first = log.health().first
    log.close()
    return first


def assert_same_content(group: Group) -> None:
    brokers = list(group.brokers.values())
    eventually(lambda: len({content_digest(broker.store) for broker in brokers}) == 1, "a replica does not follow")


@pytest.mark.parametrize("wiped", [0, 1], ids=["primary", "backup"])
def test_a_broker_whose_directory_is_removed_while_it_runs_ends_and_comes_back_from_the_log(
    group: Group, wiped: int
) -> None:
    """It went on: a backup had all records, as it said, and lost them with its process; a primary told no status."""
    brokers = [group.start("a", "active"), group.start("b", "backup")]
    sent = send(group, 0, 3)
    lost, other = brokers[wiped], brokers[1 - wiped]
    shutil.rmtree(lost.store)
    lost.wait_for_role("ended")
    logged = lost.log.read_text()
    assert f"{lost.store / 'data.mdb'} was removed: start this broker again" in logged
    assert "Traceback" not in logged
    other.wait_for_role("active")
    lost.start().wait_for_role("backup")
    assert received(group.url) == sent
    assert_same_content(group)


def test_a_wiped_broker_seeds_itself_from_a_backup_where_the_log_does_not_reach_back(
    group: Group, tmp_path: Path
) -> None:
    """And one whose store is too old, which keeps what it had; without a backup it ends and says what to do."""
    (backups := tmp_path / "backups").mkdir()
    config = forgetful(tmp_path, f'seed_from = "{backups}"\n')
    first = group.start("a", "active", config=config)
    second = group.start("b", "backup", config=config)
    sent = send(group, 0, 20)
    eventually(lambda: commits_of(second) == commits_of(first), "it does not follow")
    second.stop()
    old = kept_from(group)
    sent += send(group, 20, 60)
    eventually(lambda: kept_from(group) > old + 20, "the log is not trimmed")
    second.start()
    second.wait_for_role("ended")
    logged = second.log.read_text()
    assert "legato replica seed here" in logged
    assert f"{backups} has no backup of this group behind which the log goes on" in logged

    assert legato("store", "backup", first.store, backups / "one", "--no-ledger").returncode == 0
    sent += send(group, 80, 5)
    earlier = second.store / "data.mdb.replaced-at-1"
    earlier.touch(mode=0o600)
    second.start()
    second.wait_for_role("backup")
    assert_same_content(group)
    second.wait_for_log("what the store was before is in")
    (kept,) = second.store.glob("data.mdb.replaced-at-*")
    assert kept != earlier, "what it had is kept, but not what it had before an earlier copy"
    assert str(kept) in second.log.read_text()
    assert "a copy of another store is looked for" in second.log.read_text()

    second.kill()
    shutil.rmtree(second.store)
    second.start()
    second.wait_for_role("backup")
    assert_same_content(group)
    assert not list(second.store.glob("data.mdb.replaced-at-*"))
    first.kill()
    second.wait_for_role("active")
    assert received(group.url) == sent


def test_an_administrator_seeds_a_broker_from_one_that_serves(group: Group, tmp_path: Path) -> None:
    config = forgetful(tmp_path)
    first, sent = begin(group, config)
    second = group.add("b", config=config).start()
    second.wait_for_role("ended")
    assert "legato replica seed here" in second.log.read_text()
    seeded = legato("replica", "seed", second.store, "--from", first.store, "--json")
    assert seeded.returncode == 0, seeded.stderr
    told = json.loads(seeded.stdout)
    assert (told["epoch"], told["replaced"]) == (1, None)
    sent += send(group, 60, 3)
    second.start()
    second.wait_for_role("backup")
    refused = legato("replica", "seed", second.store, "--from", first.store)
    assert refused.returncode == 1
    assert "serves the store" in refused.stderr
    assert_same_content(group)
    first.kill()
    second.wait_for_role("active")
    assert received(group.url) == sent


def test_a_wiped_broker_seeds_itself_from_the_one_that_serves_on_another_machine(group: Group, tmp_path: Path) -> None:
    """Nothing but its URL is needed, no common disk; while nobody serves there, the broker says so and asks on."""
    first, sent = begin(group, forgetful(tmp_path))
    seeding = forgetful(tmp_path, f'seed_from = "amqp://127.0.0.1:{first.port}"\n')
    second = group.add("b", config=seeding).start()
    sent += send(group, 60, 3)
    assert_same_content(group)
    assert f"is a copy of amqp://127.0.0.1:{first.port}, as of commit" in second.log.read_text()
    eventually(lambda: not list(second.store.glob("*.seeding*")), "what was fetched stays")

    second.kill()
    shutil.rmtree(second.store)
    first.signal(signal.SIGSTOP)
    copies = second.log.read_text().count("is a copy of amqp://")
    second.start()

    def has_asked() -> bool:
        logged = second.log.read_text().rpartition("is a copy of amqp://")[2]
        return "seed it anew; " in logged and ("did not answer" in logged or "Cannot connect" in logged)

    eventually(has_asked, "it does not say that nobody serves there")
    first.signal(signal.SIGCONT)
    assert_same_content(group)
    assert second.role == "backup", "it has not ended meanwhile"
    assert second.log.read_text().count("is a copy of amqp://") == copies + 1
    first.kill()
    second.wait_for_role("active")
    assert received(group.url) == sent


def test_an_administrator_seeds_a_broker_from_the_url_of_its_group(group: Group, tmp_path: Path) -> None:
    config = forgetful(tmp_path)
    first, sent = begin(group, config)
    second = group.add("b", config=config)
    seeded = legato("replica", "seed", second.store, "--from", f"amqp://127.0.0.1:{first.port}")
    assert seeded.returncode == 0, seeded.stderr
    assert f"a copy of the store at amqp://127.0.0.1:{first.port}" in seeded.stdout
    second.start()
    second.wait_for_role("backup")
    assert_same_content(group)
    first.kill()
    second.wait_for_role("active")
    assert received(group.url) == sent


def test_all_servers_of_the_log_lose_their_disks_and_the_furthest_store_begins_a_new_log(
    servers: LogServers, group: Group, tmp_path: Path
) -> None:
    first, second = group.start("a", "active"), group.start("b", "backup")
    sent = send(group, 0, 5)
    eventually(lambda: commits_of(second) == commits_of(first), "it does not follow")
    second.stop()
    sent += send(group, 5, 5)
    command = ("log", "restore", first.store, servers.url, "--group", group.name, "--brokers", "2")
    assert "serves the store" in legato(*command).stderr
    first.stop()
    assert "has a log, with" in legato(*command, "--other", second.store).stderr, "which is not lost"
    for server in servers.servers:
        server.kill()
        server.wipe()
    servers.start()

    first.start()
    first.wait_for_role("ended")
    assert "see legato log restore" in first.log.read_text(), "it does not serve on a log that lost its records"
    status = tmp_path / "a.json"
    status.write_text(legato("replica", "status", first.store, "--json").stdout)
    behind = legato("log", "restore", second.store, servers.url, "--group", group.name, "--other", status)
    assert behind.returncode == 1
    assert f"{first.store} has commit" in behind.stderr
    unknown = legato(*command)
    assert unknown.returncode == 1
    assert "of the 2 brokers of the group 1 is compared" in unknown.stderr
    restored = legato(*command, "--other", second.store)
    assert restored.returncode == 0, restored.stderr

    first.start()
    first.wait_for_role("active")
    second.start()
    second.wait_for_role("ended")
    assert "copy another broker's store (legato replica seed)" in second.log.read_text()
    assert legato("replica", "seed", second.store, "--from", first.store).returncode == 0
    second.start()
    second.wait_for_role("backup")
    sent += send(group, 10, 3)
    assert_same_content(group)
    first.kill()
    second.wait_for_role("active")
    assert received(group.url) == sent


@pytest.mark.slow
def test_a_new_log_may_begin_with_a_store_that_is_behind_if_the_loss_is_accepted(
    servers: LogServers, group: Group
) -> None:
    first, second = group.start("a", "active"), group.start("b", "backup")
    sent = send(group, 0, 2)
    eventually(lambda: commits_of(second) == commits_of(first), "it does not follow")
    second.stop()
    send(group, 2, 2)
    first.stop()
    for server in servers.servers:
        server.kill()
        server.wipe()
    servers.start()
    command = ("log", "restore", second.store, servers.url, "--group", group.name, "--other", first.store)
    assert legato(*command).returncode == 1
    assert legato(*command, "--accept-loss").returncode == 0
    second.start()
    second.wait_for_role("active")
    assert received(f"amqp://127.0.0.1:{second.port}") == sent
