"""The configuration in `docs/howto/log-servers.md` works: three servers with it, TLS, accounts, and no more rights; and
so do brokers with the one in `docs/howto/replication.md`, by these servers."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from legato.errors import LogUnavailableError
from legato.groups.group_map import Group, GroupMap
from legato.processes.log_servers import LogServers, nats_server
from legato.replication.log import BEGINNING
from legato.replication.nats import NatsGroupMaps, NatsSettings, open_log, open_register
from legato.replication.register import Entry
from tests.conformance.replicated_log.log import claim, data_of, health_when, read_all, take
from tests.support.broker import BrokerProcess
from tests.support.server import free_port

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "log-servers.md"
BLOCKS = re.findall(r"^```text\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
CONFIGURATION, PERMISSIONS = BLOCKS
BROKERS_PAGE = PAGE.with_name("replication.md").read_text()
BROKER = next(
    each for each in re.findall(r"^```toml\n(.*?)^```", BROKERS_PAGE, re.MULTILINE | re.DOTALL) if "[tls]" in each
)
ADD_USER = next(line.strip() for line in BROKERS_PAGE.splitlines() if line.strip().startswith("legato user add"))
URL = next(line for line in BROKERS_PAGE.splitlines() if "export LEGATO_URL" in line).split("'")[1]
GROUPS_PAGE = PAGE.with_name("groups.md")
MAP_SUBJECTS = ", ".join(f'"{each}"' for each in re.findall(r"`(\$[^`]*LEGATO-groups[^`]*)`", GROUPS_PAGE.read_text()))
"""What `docs/howto/groups.md` says that a user needs beside that, to read the map of groups and to put one."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the certificate that all servers share here, and its authority."""
    directory = tmp_path_factory.mktemp("servers")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(directory / "ca.pem")
    certificate.cert_chain_pems[0].write_to_path(directory / "log-1.pem")
    certificate.private_key_pem.write_to_path(directory / "log-1.key")
    return directory


@pytest.fixture(scope="module")
def documented(directory: Path) -> Iterator[LogServers]:
    with servers_of_the_page(directory, directory / "log") as servers:
        yield servers


@contextmanager
def servers_of_the_page(directory: Path, where: Path) -> Iterator[LogServers]:
    """Servers with that configuration; only names, ports and paths are this machine's."""
    servers = LogServers(where)
    routes = ", ".join(f"nats-route://127.0.0.1:{server.ports.route}" for server in servers.servers)
    for server in servers.servers:
        text = CONFIGURATION.replace("server_name: log-1 ", f"server_name: {server.name} ")
        text = text.replace("listen: 0.0.0.0:4222", f"listen: 127.0.0.1:{server.ports.client}")
        text = text.replace("listen: 0.0.0.0:6222", f"listen: 127.0.0.1:{server.ports.route}")
        text = re.sub(r"routes: \[.*\]", f"routes: [{routes}]", text)
        text = text.replace("/var/lib/nats", str(server.directory / "data")).replace("/etc/nats/", f"{directory}/")
        rights = PERMISSIONS.strip().replace("publish: [", f"publish: [{MAP_SUBJECTS}, ")
        text = text.replace("$ADMIN_PASSWORD", "admins").replace("$BROKERS_PASSWORD }", f"brokers, {rights} }}")
        server.configure(f"http: 127.0.0.1:{server.ports.monitor}\n{text}")
    try:
        servers.start()
        yield servers
    finally:
        for server in servers.servers:
            server.kill()


def test_brokers_find_all_they_need(documented: LogServers, directory: Path) -> None:
    url = documented.url.replace("nats:", "tls:")
    log = open_log(NatsSettings(url, "orders", user="brokers", password="brokers", ca_file=directory / "ca.pem"))
    writer = claim(log)
    following = log.follow(BEGINNING)
    place = writer.append(b"one").position
    assert data_of(take(following, 2)) == data_of(read_all(log)) == [b"epoch", b"one"]
    leader = health_when(log, lambda health: health.sync_proved and health.leader is not None).leader
    assert leader is not None
    assert log.move_leader(leader) != leader
    writer.append(bytes(3_000_000))
    assert len(take(following, 1)) == 1
    log.trim(place)
    assert log.health().first == place.sequence
    following.close()
    log.close()


def test_brokers_with_the_file_of_the_page_serve(directory: Path, tmp_path: Path) -> None:
    """Users, certificates and logins as there; only addresses and directories are this machine's."""
    with servers_of_the_page(directory, tmp_path / "log") as servers:
        serve_as_the_page_says(servers, directory, tmp_path)


def serve_as_the_page_says(servers: LogServers, directory: Path, tmp_path: Path) -> None:
    hosts = ("one.example", "two.example", "three.example")
    ports = {host: free_port() for host in hosts}

    def here(text: str) -> str:
        for host, server in zip(hosts, servers.servers, strict=True):
            text = text.replace(f"tls://{host}", f"tls://127.0.0.1:{server.ports.client}")
        for host, port in ports.items():
            text = text.replace(f"{host}:5671", f"127.0.0.1:{port}").replace(host, f"127.0.0.1:{port}")
        return text.replace("/etc/legato/", f"{tmp_path}/")

    for mine, theirs in {"certificate.pem": "log-1.pem", "key.pem": "log-1.key", "ca.pem": "ca.pem"}.items():
        shutil.copy(directory / theirs, tmp_path / mine)
    shutil.copy(directory / "ca.pem", tmp_path / "log-ca.pem")
    for name, password in {"admin-password": "correct horse", "log-password": "brokers"}.items():
        (tmp_path / name).write_text(password)
    for file in tmp_path.glob("*[dm]"):
        file.chmod(0o600)

    def legato(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "legato.cli", *arguments],
            env=os.environ | {"LEGATO_URL": here(URL) + "&connect_wait_s=60"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    legato(*here(ADD_USER).split()[1:], "--password-file", str(tmp_path / "admin-password"))
    brokers = []
    try:
        for number, host in enumerate(hosts):
            store, file = tmp_path / f"store-{number}", tmp_path / f"legato-{number}.toml"
            own = BROKER.replace('listen = "one.example', f'listen = "{host}').replace("/var/lib/legato", str(store))
            file.write_text(here(own))
            brokers.append(BrokerProcess(store, ports[host], tmp_path / f"{number}.log", ("--config", str(file))))
        for broker in brokers:
            broker.wait_for("backup")
        legato("send", "orders.new", "a first order")
        assert "a first order" in legato("receive", "orders.new")
        assert "Replicated: group orders" in legato("status")
    finally:
        for broker in brokers:
            broker.kill()


def test_brokers_say_how_far_they_are(documented: LogServers, directory: Path) -> None:
    url = documented.url.replace("nats:", "tls:")
    settings = NatsSettings(url, "orders", user="brokers", password="brokers", ca_file=directory / "ca.pem")
    register = open_register(settings, 60.0)
    entry = Entry("one.example:5672", "1.0", "follows", 1, 2, 3)
    register.say(entry, 60.0)
    assert [each.entry for each in register.entries(60.0)] == [entry]
    assert register.forget(entry.listen, 60.0)
    register.close()


def test_a_user_with_the_rights_for_it_puts_and_reads_the_map_of_groups(
    documented: LogServers, directory: Path
) -> None:
    url = documented.url.replace("nats:", "tls:")
    maps = NatsGroupMaps(NatsSettings(url, "all", user="brokers", password="brokers", ca_file=directory / "ca.pem"))
    group_map = GroupMap(1, (Group("orders", ("one.example:5672",)),))
    maps.put(group_map, 60.0)
    kept = maps.read(60.0)
    assert kept is not None
    assert kept.map == group_map
    assert maps.revision(60.0)[0] == 1
    maps.close()


def test_brokers_of_one_group_have_no_rights_in_another(documented: LogServers, directory: Path) -> None:
    url = documented.url.replace("nats:", "tls:")
    settings = NatsSettings(url, "payments", user="brokers", password="brokers", ca_file=directory / "ca.pem")
    with pytest.raises(LogUnavailableError):
        open_log(settings, timeout_s=3.0)


def test_the_configuration_has_no_mistake_that_the_server_sees(tmp_path: Path, directory: Path) -> None:
    file = tmp_path / "nats-server.conf"
    file.write_text(CONFIGURATION.replace("/etc/nats/", f"{directory}/"))
    checked = subprocess.run(
        [nats_server(), "--config", file, "-t"],
        capture_output=True,
        text=True,
        check=False,
        env={"ADMIN_PASSWORD": "admins", "BROKERS_PASSWORD": "brokers"},
    )
    assert checked.returncode == 0, checked.stderr
