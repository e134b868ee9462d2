"""The map of groups at the servers of the log: one map for all brokers, changed by a command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from legato.cli.rendering import group_lines
from legato.cli.status import ask
from legato.client import ConnectionFactory, Queue
from legato.errors import ConfigError, LogUnavailableError
from legato.groups.group_map import Group, GroupMap, Pin
from legato.processes.log_servers import LogServers
from legato.replication.nats import NatsGroupMaps, NatsSettings
from legato.server.process.group_map_watch import MISSING
from legato.testing.log_servers import log_servers
from tests.support.forked_process import run_legato
from tests.support.replicated import eventually
from tests.support.server import Server, free_port

TIMEOUT_S = 60.0
NAMES = ("orders", "rest")
PATIENCE = ("--timeout", "60")


@pytest.fixture
def servers() -> Iterator[LogServers]:
    with log_servers() as running:
        yield running


@pytest.fixture
def maps(servers: LogServers) -> Iterator[NatsGroupMaps]:
    found = NatsGroupMaps(NatsSettings(servers.url, "all"))
    found.wait_for_servers(TIMEOUT_S)
    yield found
    found.close()


class Fleet:
    """A broker for each of two groups, which have no map in a file."""

    def __init__(self, servers: LogServers, directory: Path) -> None:
        self.servers = servers
        self._directory = directory
        self.brokers: dict[str, Server] = {}
        for name in NAMES:
            (home := directory / name).mkdir()
            config = home / "legato.toml"
            # Nobody is to miss a lease, however busy the machine is.
            config.write_text(f'[groups]\nname = "{name}"\nmap_in_log = true\n[replication]\nlease_s = 30\n')
            flags = ("--replicate", servers.url, "--group", name, "--config", str(config))
            self.brokers[name] = Server(home / "store", *flags, port=free_port())

    def map(self, revision: int, **pins: str) -> GroupMap:
        """A map in which addresses that begin with a group's name are its own, and those that are given another's."""
        groups = tuple(Group(name, (f"127.0.0.1:{broker.port}",)) for name, broker in self.brokers.items())
        pinned = {f"{name}.#": name for name in NAMES} | pins
        return GroupMap(revision, groups, tuple(Pin(match, group) for match, group in pinned.items()))

    def put(self, group_map: GroupMap) -> str:
        """What `legato group put` says to a map."""
        (file := self._directory / "map.json").write_bytes(group_map.encode())
        done = run_legato("group", "put", str(file), self.servers.url, *PATIENCE)
        return done.stdout + done.stderr

    def url(self, name: str) -> str:
        return f"amqp://127.0.0.1:{self.brokers[name].port}"

    def revision(self, name: str) -> int:
        """By which a broker goes."""
        return int(ask(self.url(name))["group"]["revision"])


@pytest.fixture
def fleet(servers: LogServers, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(servers, tmp_path)
    yield fleet
    for broker in fleet.brokers.values():
        if broker._process is not None and broker._process.poll() is None:
            broker.kill()


def test_brokers_wait_for_a_map_and_go_by_each_that_is_put(fleet: Fleet) -> None:
    for broker in fleet.brokers.values():
        broker.start()
        assert broker.role == "backup"
        broker.wait_for_log(MISSING)
    command = ("replica", "status", str(fleet.brokers["orders"].store))
    eventually(lambda: "have no map of groups" in run_legato(*command).stdout.replace("\n", " "), "it is not told")
    assert run_legato("group", "get", fleet.servers.url, *PATIENCE).returncode == 1
    assert "revision 1 of the map: 2 groups" in fleet.put(fleet.map(1))
    for broker in fleet.brokers.values():
        broker.wait_for_role("active")
    with (
        ConnectionFactory(fleet.url("orders")).create_connection() as connection,
        connection.create_session() as session,
    ):
        session.create_producer(Queue("rest.new")).send("to the other group")
        assert list(ask(fleet.url("rest"))["queues"][0]["name"].split()) == ["rest.new"]

    # Nobody reloads anything.
    assert "revision 2 of the map, instead of revision 1" in fleet.put(fleet.map(2, **{"orders.moved": "rest"}))
    for name in NAMES:
        eventually(lambda name=name: fleet.revision(name) == 2, "it does not go by the new map")  # type: ignore[misc]
    with (
        ConnectionFactory(fleet.url("orders")).create_connection() as connection,
        connection.create_session() as session,
    ):
        session.create_producer(Queue("orders.moved")).send("moved")
    assert {each["name"] for each in ask(fleet.url("rest"))["queues"]} == {"rest.new", "orders.moved"}

    assert "there is a later one, 2: make the change in that one, and give it revision 3" in fleet.put(fleet.map(1))
    assert "has changed, and its revision is still 2" in fleet.put(fleet.map(2))
    assert "is there already" in fleet.put(fleet.map(2, **{"orders.moved": "rest"}))
    kept = run_legato("group", "get", fleet.servers.url, *PATIENCE)
    assert json.loads(kept.stdout)["revision"] == 2


def test_brokers_go_by_their_copy_if_the_servers_have_lost_the_map(fleet: Fleet, maps: NatsGroupMaps) -> None:
    broker = fleet.brokers["orders"]
    broker.start().wait_for_log(MISSING)
    assert broker.stop() == 0, "who waits for a map can be stopped"
    fleet.put(fleet.map(7))
    broker.start().wait_for_role("active")
    bucket = maps._bucket
    maps._connection.call(lambda: bucket._ask("STREAM.DELETE", None, TIMEOUT_S), TIMEOUT_S)
    eventually(lambda: MISSING in broker.log.read_text().rpartition("active")[2], "it does not say that it is gone")
    assert fleet.revision("orders") == 7
    broker.stop()
    broker.start().wait_for_role("active epoch=2")
    assert fleet.revision("orders") == 7
    # It comes again, and under the number that its message had before.
    assert "revision 8 of the map" in fleet.put(fleet.map(8))
    eventually(lambda: fleet.revision("orders") == 8, "it does not go by the new map")


def test_a_map_without_the_group_of_a_broker_is_not_taken(fleet: Fleet) -> None:
    fleet.put(fleet.map(1))
    broker = fleet.brokers["rest"]
    broker.start().wait_for_role("active")
    only = GroupMap(2, fleet.map(1).group[:1])

    def trouble() -> str:
        return " ".join(group_lines(ask(fleet.url("rest"))["group"])[1:])

    assert not trouble()
    fleet.put(only)
    broker.wait_for_log("the map of groups has no such group")
    assert fleet.revision("rest") == 1
    eventually(lambda: bool(trouble()), "its status does not say so")
    assert "The map of groups in the log: groups.name is 'rest'" in trouble()
    assert "go on with revision 1, and take messages for addresses that others may serve by now: stop" in trouble()
    assert "revision 3 of the map" in fleet.put(fleet.map(3))
    eventually(lambda: fleet.revision("rest") == 3, "it does not go by the next map")
    eventually(lambda: not trouble(), "its status does not say that it is over")


def test_of_two_who_change_the_map_at_once_one_is_refused(
    maps: NatsGroupMaps, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert maps.read(TIMEOUT_S) is None
    maps.put(fleet.map(1), TIMEOUT_S)
    seen = maps._value(TIMEOUT_S)
    assert seen is not None
    maps.put(fleet.map(2), TIMEOUT_S)
    monkeypatch.setattr(maps, "_value", lambda timeout_s: seen)
    with pytest.raises(ConfigError, match="Somebody else has changed the map of groups meanwhile"):
        maps.put(fleet.map(3), TIMEOUT_S)


@pytest.mark.parametrize(
    ("written", "headers", "told"),
    [
        (b'{"revision": 2, "gro', {}, "cannot be read"),
        (b"\xff", {}, "cannot be read"),
        (b"", {"KV-Operation": "DEL"}, MISSING),
    ],
)
def test_a_map_that_others_damaged_is_replaced(
    fleet: Fleet, maps: NatsGroupMaps, written: bytes, headers: dict[str, str], told: str
) -> None:
    """As with `nats kv put` and `nats kv del`; brokers go by their copy until it is."""
    maps.put(fleet.map(1), TIMEOUT_S)
    broker = fleet.brokers["orders"]
    broker.start().wait_for_role("active")
    write(maps, written, headers)
    broker.wait_for_log(f"the map of groups in the log: {told if told == MISSING else 'The map of groups'}")
    assert told in broker.log.read_text()
    assert fleet.revision("orders") == 1
    assert "keep revision 2 of the map" in fleet.put(fleet.map(2))
    eventually(lambda: fleet.revision("orders") == 2, "it does not go by the next map")


def test_a_map_of_a_later_version_is_not_replaced(fleet: Fleet, maps: NatsGroupMaps) -> None:
    write(maps, b'{"format": 99}', {})
    assert "has format 99" in fleet.put(fleet.map(2))


def write(maps: NatsGroupMaps, data: bytes, headers: dict[str, str]) -> None:
    """Put something in the place of the map, as tools of NATS do."""
    if maps._value(TIMEOUT_S) is None:
        maps._connection.call(lambda: maps._bucket._prepare(TIMEOUT_S), TIMEOUT_S)
    maps._connection.call(
        lambda: maps._connection.request("$KV.LEGATO-groups.map", data, TIMEOUT_S, headers or None), TIMEOUT_S
    )


def test_servers_that_do_not_answer_are_told_of() -> None:
    done = run_legato("group", "get", "127.0.0.1:9", "--timeout", "0.2")
    assert done.returncode != 0
    assert "no server of the log answers" in done.stderr
    unreached = NatsGroupMaps(NatsSettings("127.0.0.1:9", "all"))
    with pytest.raises(LogUnavailableError):
        unreached.read(0.1)
    unreached.close()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ('name = "orders"\nmap_in_log = true\n', "groups.map_in_log needs a replicated log"),
        ('map_in_log = true\n[replication]\nservers = "a"\n', "needs both groups.name and groups.map"),
        ('name = "orders"\nmap = "m"\nmap_in_log = true\n[replication]\nservers = "a"\n', "not both"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path: Path, settings: str, sentence: str) -> None:
    (config := tmp_path / "legato.toml").write_text(f"[groups]\n{settings}")
    refused = run_legato("serve", "--store", str(tmp_path / "store"), "--config", str(config), "--group", "orders")
    assert refused.returncode != 0
    assert sentence in " ".join(refused.stderr.split())
