"""An empty log: that of a new group, or that of an old one whose log servers have all lost their disks.

A broker without a store cannot tell, and does not begin a log where others have a store, or may have.
"""

from __future__ import annotations

import http.client
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from legato.cli.status import ask
from legato.client import ConnectionFactory
from legato.errors import LogError, LogUnavailableError
from legato.processes.log_servers import LogServers
from legato.replication.arbiter import LogArbiter
from legato.replication.beginning import Beginning, allow_beginning
from legato.replication.memory import MemoryServers
from legato.replication.nats import NatsSettings, open_register
from legato.replication.register import AWAY_S, Entry
from legato.replication.replica import Replica
from legato.spark.exporter import export_all
from legato.store.content_digest import content_digest
from legato.store.lmdb import LmdbStore
from tests.conformance.store import NOW_US
from tests.support.forked_process import run_legato
from tests.support.replicated import Group, commits_of, eventually, received
from tests.support.server import Server, free_port

PATIENCE = ("--timeout", "60")
LEASE_S = "5"
"""A lease that a stalled machine does not miss."""


def add(group: Group, *names: str, told: bool = True) -> list[Server]:
    """Brokers that have not started; each is told where all are, or none is."""
    brokers = [group.add(name, LEGATO_REPLICATION_LEASE_S=LEASE_S) for name in names]
    if told:
        for broker in brokers:
            broker.environment["LEGATO_HA_ADDRESSES"] = ",".join(map(listen, brokers))
    return brokers


def listen(broker: Server) -> str:
    return f"127.0.0.1:{broker.port}"


def send(group: Group, *texts: str) -> list[str | None]:
    with ConnectionFactory(group.url).create_connection() as connection, connection.create_session() as session:
        producer = session.create_producer(session.create_queue("q"))
        for text in texts:
            producer.send(session.create_text_message(text))
    return [*texts]


def lose_the_log(servers: LogServers) -> None:
    """All servers of the log lose their disks."""
    for server in servers.servers:
        server.kill()
        server.wipe()
    servers.start()


def has_come_and_gone(broker: Server, group: Group) -> bool:
    """Whether a broker that cannot go on has said so in the register when it ended."""
    broker.start().wait_for_role("ended")
    listed = run_legato("replica", "list", group.servers.url, "--group", group.name, "--json", *PATIENCE).stdout
    return any(each["entry"]["listen"] == listen(broker) and each["entry"]["commits"] for each in json.loads(listed))


def last_log(broker: Server) -> str:
    """What its last process logged."""
    return broker.log.read_text().rpartition("legato.run: Legato")[2]


def test_a_new_group_begins_when_all_its_brokers_have_come(group: Group) -> None:
    port = free_port()
    first, *others = add(group, "a", "b", "c")
    first.flags = (*first.flags, "--http", f"127.0.0.1:{port}")
    first.start()
    assert first.role == "backup"
    first.wait_for_log("has no log, and this store is empty")
    said = last_log(first)
    assert f"{listen(others[0])}, {listen(others[1])} did not yet" in said
    assert "legato log begin" in said
    assert "legato log restore" in said
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60.0)
    connection.request("GET", "/readyz")
    answer = connection.getresponse()
    assert answer.status == 503
    assert "this store is empty" in json.loads(answer.read())["replication"]["trouble"][0]
    others[0].start()
    others[0].wait_for_log(f"{listen(others[1])} did not yet")
    assert {broker.role for broker in (first, others[0])} == {"backup"}
    others[1].start()
    brokers = [first, *others]
    eventually(lambda: any(broker.role.startswith("active") for broker in brokers), "the group does not begin")
    sent = send(group, "one", "two")
    eventually(lambda: len({content_digest(broker.store) for broker in brokers}) == 1, "a broker does not follow")
    assert received(group.url) == sent


def test_an_administrator_says_that_a_group_is_new(group: Group) -> None:
    first, second = add(group, "a", "b")
    first.start()
    first.wait_for_log("has no log, and this store is empty")
    done = run_legato("log", "begin", group.servers.url, "--group", group.name, *PATIENCE)
    assert done.returncode == 0, done.stderr
    first.wait_for_role("active epoch=1")
    assert "has a new log, which begins with this store" in first.log.read_text()
    sent = send(group, "one")
    again = run_legato("log", "begin", group.servers.url, "--group", group.name, *PATIENCE)
    assert again.returncode == 1
    assert "has a log, with" in again.stderr
    second.start()
    second.wait_for_role("backup")
    eventually(lambda: commits_of(second) == commits_of(first), "it does not follow")
    assert received(group.url) == sent


@pytest.mark.parametrize("told", [True, False], ids=["brokers are told of all", "of none"])
def test_a_broker_without_a_store_does_not_begin_the_log_that_its_group_has_lost(
    servers: LogServers, group: Group, tmp_path: Path, told: bool
) -> None:
    """It comes first, if it knows that there are others; else when another has come and said what it has."""
    first, second = add(group, "a", "b", told=False)
    first.start().wait_for_role("active")
    sent = send(group, "one", "two", "three")
    second.start().wait_for_role("backup")
    second.stop()
    first.stop()
    lose_the_log(servers)
    shutil.rmtree(second.store)
    if told:
        for broker in (first, second):
            broker.environment["LEGATO_HA_ADDRESSES"] = f"{listen(first)},{listen(second)}"
        second.start()
        second.wait_for_log(f"{listen(first)} did not yet")
    eventually(lambda: has_come_and_gone(first, group), "it does not say what it has")
    assert "see legato log restore" in last_log(first)
    if not told:
        second.start()
    assert second.role == "backup"
    second.wait_for_log("of the group: the log's servers have lost it")
    assert f"the broker at {listen(first)} has {commits_of(first)} commits" in last_log(second)
    refused = run_legato("log", "begin", servers.url, "--group", group.name, *PATIENCE)
    assert refused.returncode == 1
    assert "legato log restore" in refused.stderr

    restored = run_legato(
        *("log", "restore", str(first.store), servers.url, "--group", group.name),
        *("--brokers", "2", "--other", str(second.store)),
    )
    assert restored.returncode == 0, restored.stderr
    second.wait_for_role("ended")
    first.start().wait_for_role("active")
    seeded = run_legato("replica", "seed", str(second.store), "--from", str(first.store))
    assert seeded.returncode == 0, seeded.stderr
    second.start().wait_for_role("backup")
    eventually(lambda: commits_of(second) == commits_of(first), "it does not follow")
    assert received(group.url) == sent


def test_a_new_log_does_not_begin_with_a_store_if_a_broker_has_said_that_it_is_further(
    servers: LogServers, group: Group
) -> None:
    (broker,) = add(group, "a", told=False)
    broker.start().wait_for_role("active")
    sent = send(group, "one")
    broker.stop()
    lose_the_log(servers)
    register = open_register(NatsSettings(servers.url, group.name), 60.0)
    register.say(Entry("b:1", "1.0", "follows", 1, 1_000_000, 1_000_000), 60.0)
    register.close()
    command = ("log", "restore", str(broker.store), servers.url, "--group", group.name, "--brokers", "1")
    refused = run_legato(*command)
    assert refused.returncode == 1
    assert "the broker at b:1 has commit 1,000,000" in refused.stderr
    accepted = run_legato(*command, "--accept-loss")
    assert accepted.returncode == 0, accepted.stderr
    broker.start().wait_for_role("active")
    assert received(group.url) == sent


def entry(name: str, commits: int = 0, sequence: int = 0) -> Entry:
    return Entry(f"{name}:1", "1.0", "follows", 1, commits, sequence)


def test_who_may_begin_a_log(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "store", sync=False)
    empty = Replica(store)

    def refusal(*entries: Entry, brokers: tuple[str, ...] = (), allowed: bool = False, away: Sequence[str] = ()) -> str:
        servers = MemoryServers()
        register = servers.register()
        for each in entries:
            register.say(each, 1.0)
        for name in away:
            told, said_s = servers.entries[f"{name}:1"]
            servers.entries[f"{name}:1"] = told, said_s - AWAY_S
        if allowed:
            register.allow_beginning(1.0)
        return Beginning(register, "g", "a:1", brokers).refusal(empty)

    three = ("a:1", "b:1", "c:1")
    assert refusal() == ""
    assert refusal(entry("a"), entry("b")) == ""
    assert "b:1, c:1 did not yet" in refusal(entry("a"), brokers=three)
    assert refusal(entry("a"), brokers=three, allowed=True) == ""
    assert refusal(*map(entry, "abc"), brokers=three) == ""
    # Brokers whose addresses clients know by other names count all the same.
    assert refusal(*map(entry, "axy"), brokers=three) == ""
    # One that was started again under another name is not two, and c may have all.
    assert "b:1, c:1 did not yet" in refusal(*map(entry, "abx"), brokers=three, away="b")
    assert "b:1 has 7 commits of the group" in refusal(entry("a"), entry("b", 7, 9), entry("c", 5, 8), allowed=True)
    assert "a:1 has 7 commits of the group" in refusal(entry("a", 7, 9)), "it was this one, which lost its disk"
    assert "start that one first" in refusal(entry("a"), entry("b", 7), brokers=three, allowed=True)
    store.begin_epoch("alone", NOW_US)
    alone = Replica(store)
    servers = MemoryServers()
    register = servers.register()
    register.say(entry("b", 7), 1.0)
    assert Beginning(register, "g", "a:1", three).refusal(alone) == ""
    register.say(entry("b", 7, 3), 1.0)
    assert "legato log restore" in Beginning(register, "g", "a:1", three).refusal(alone)
    store.close()


def test_an_administrator_is_told_why_a_group_is_not_new() -> None:
    servers = MemoryServers()
    register = servers.register()
    with pytest.raises(LogError, match="has a log, with 3 records"):
        allow_beginning(register, "g", 3, 1.0)
    register.say(entry("b", 7), 1.0)
    with pytest.raises(LogError, match=r"begins as soon as it is started.*legato replica forget"):
        allow_beginning(register, "g", 0, 1.0)
    register.say(entry("b", 7, 9), 1.0)
    with pytest.raises(LogError, match=r"legato log restore.*legato replica forget"):
        allow_beginning(register, "g", 0, 1.0)
    assert not register.may_begin(1.0)
    register.forget("b:1", 1.0)
    allow_beginning(register, "g", 0, 1.0)
    assert register.may_begin(1.0)


def test_a_log_does_not_begin_while_the_register_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = MemoryServers()
    register = servers.register()

    def deny(timeout_s: float) -> list[object]:
        raise LogUnavailableError("permissions, for example")

    store = LmdbStore(tmp_path / "store", sync=False)
    with monkeypatch.context() as denying:
        denying.setattr(register, "entries", deny)
        arbiter = LogArbiter(
            lambda: servers.log("g"), store, "a:1", 5.0, lambda: NOW_US, beginning=Beginning(register, "g", "a:1")
        )
        with arbiter._changed:
            arbiter._wanted = True
        eventually(lambda: "permissions, for example" in "".join(arbiter.status().trouble), "it does not say so")
        assert "docs/howto/log-servers.md" in arbiter.status().trouble[0]
        assert servers.bounds().last == 0
    assert arbiter.acquire_blocking()
    arbiter.close()


def test_a_broker_that_lost_its_store_is_filled_from_the_log_and_begins_none_without_it(group: Group) -> None:
    """What is left of a ledger tells of the store, also of one that has served alone and that no register knows."""
    first, second = add(group, "a", "b", told=False)
    first.start().wait_for_role("active")
    sent = send(group, "one", "two")
    export_all(first.store, first.store / "ledger")
    second.start().wait_for_role("backup")
    first.kill()
    second.wait_for_role("active")
    (first.store / "data.mdb").unlink()
    first.start().wait_for_role("backup")
    assert "though there was a store (1 segment of a ledger, up to commit" in last_log(first)
    eventually(lambda: commits_of(first) == commits_of(second), "it does not follow")
    second.kill()
    first.wait_for_role("active")
    assert received(group.url) == sent
    first.stop()
    (first.store / "data.mdb").unlink()
    group.name += "-new"
    (alone,) = add(group, "c", told=False)
    alone.store = first.store
    for _ in range(2):  # The first start has made an empty file.
        alone.start()
        alone.wait_for_log("this store is empty, though there was one (1 segment of a ledger")
        assert alone.role == "backup"
        alone.stop()
        alone.log.write_text("")


def test_brokers_know_each_other_by_the_addresses_that_they_advertise(group: Group) -> None:
    """Those that listened at all addresses of their machines were one in the register, so the group did not begin."""
    one, other = add(group, "one", "other", told=False)
    names = [f"localhost:{broker.port}" for broker in (one, other)]
    for broker, name in zip((one, other), names, strict=True):
        broker.flags = (*broker.flags, "--advertise", name)
        broker.environment |= {"LEGATO_HA_ADDRESSES": ",".join(names), "LEGATO_REPLICATION_LEASE_S": "2"}
    one.start()
    assert one.role == "backup", "it waits for the other one"
    other.start()
    eventually(lambda: any(each.role.startswith("active") for each in (one, other)), "the group does not begin")
    primary, backup = (one, other) if one.role.startswith("active") else (other, one)
    backup.wait_for_log("heartbeats of epoch 1")

    def told() -> tuple[str, list[str]]:
        status = ask(f"amqp://127.0.0.1:{primary.port}")
        return status["listen"], [each["listen"] for each in status["replication"]["backups"]]

    eventually(
        lambda: told() == (f"localhost:{primary.port}", [f"localhost:{backup.port}"]),
        "the backup is not in the register",
    )
