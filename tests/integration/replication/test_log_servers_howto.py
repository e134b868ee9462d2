"""The configuration in `docs/howto/log-servers.md` works: three servers with it, TLS, accounts, and no more rights."""

import re
import subprocess
from collections.abc import Iterator
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

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "log-servers.md"
BLOCKS = re.findall(r"^```text\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
CONFIGURATION, PERMISSIONS = BLOCKS
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
    """Servers with that configuration; only names, ports and paths are this machine's."""
    servers = LogServers(directory / "log")
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
