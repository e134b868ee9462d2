"""What a service manager hears of a real broker over its socket, and the files by which it starts one."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import typer

from legato.cli.main import app
from legato.failpoints import VARIABLE, DrillOrders, Stuck
from legato.server.config.configuration import load
from legato.server.identity.users import Users
from legato.server.process.service_manager import ServiceManager
from legato.server.process.usable import see_usable
from tests.integration.ha.test_full_disk import WITHOUT_RESERVE
from tests.integration.ha.test_heartbeats import QUICK
from tests.support.server import Server, server
from tests.support.small_disk import small_disk
from tests.support.stores import unpack

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
WATCHDOG_S = 0.4


class Manager:
    """A service manager's socket."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._socket.settimeout(60)
        self.environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": str(int(WATCHDOG_S * 1e6))}

    def hear(self, wanted: str) -> str:
        """The next state that holds `wanted`; those before it are passed over."""
        while wanted not in (state := self._socket.recv(4096).decode()):
            pass
        return state

    def hear_nothing_for(self, seconds: float) -> None:
        """Until it is silent for so long."""
        self._socket.settimeout(seconds)
        with contextlib.suppress(TimeoutError):
            while True:
                self._socket.recv(4096)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    """At a path."""
    manager = Manager(str(tmp_path / "notify"))
    yield manager
    manager.close()


@pytest.fixture
def abstract_manager(tmp_path: Path) -> Iterator[Manager]:
    """At an address that is no path, as in a container."""
    manager = Manager(f"@legato/{os.getpid()}/{tmp_path.name}")
    yield manager
    manager.close()


def test_it_hears_when_a_broker_is_ready_and_what_it_is_that_its_loop_turns_and_that_it_stops(
    tmp_path: Path, manager: Manager
) -> None:
    with (
        server(tmp_path / "store", environment=QUICK) as primary,
        server(tmp_path / "store", environment=QUICK | manager.environment) as backup,
    ):
        assert manager.hear("READY=1") == "READY=1\nSTATUS=backup"
        manager.hear("WATCHDOG=1")
        primary.kill()
        assert manager.hear("READY=1") == "READY=1\nSTATUS=active epoch=2"
        manager.hear("WATCHDOG=1")
        backup.signal(15)
        manager.hear("STOPPING=1")
        assert backup.wait() == 0


def test_a_migration_at_the_start_is_given_time_and_says_how_far_it_is(tmp_path: Path, manager: Manager) -> None:
    """systemd ended a broker whose migration took longer than `TimeoutStartSec`, and each start after it too."""
    store = unpack("1", tmp_path / "store")
    with server(store, environment=manager.environment) as broker:
        assert manager.hear("EXTEND_TIMEOUT_USEC=").splitlines() == [
            "EXTEND_TIMEOUT_USEC=60000000",
            "STATUS=migrating the store: beginning",
        ]
        assert manager.hear("READY=1") == f"READY=1\nSTATUS={broker.role}"


def test_a_broker_that_waits_for_room_at_its_start_is_given_time_and_says_for_what_it_waits(
    tmp_path: Path, manager: Manager
) -> None:
    with small_disk(tmp_path / "disk", 4 << 20) as disk, ThreadPoolExecutor(1) as executor:
        disk.fill()
        broker = Server(disk.path / "store", environment=WITHOUT_RESERVE | manager.environment)
        broker.log = tmp_path / "broker.log"
        starting = executor.submit(broker.start)
        extension, status = manager.hear("EXTEND_TIMEOUT_USEC=").splitlines()
        assert extension == "EXTEND_TIMEOUT_USEC=60000000"
        assert status.startswith("STATUS=nobody is served until there is room: ")
        disk.empty()
        manager.hear("READY=1")
        starting.result()
        assert broker.stop() == 0


def test_a_backup_that_migrates_is_ready_already_and_only_says_what_it_does(manager: Manager) -> None:
    """For it there is no time of a start that could be extended: systemd would extend its watchdog instead."""
    reports = ServiceManager(manager.environment)
    reports.ready("backup")
    reports.busy("migrating the store: format 3,\n messages: 40 %")
    assert manager.hear("STATUS=migrating") == "STATUS=migrating the store: format 3, messages: 40 %"


def test_a_report_is_said_again_when_it_changes_and_not_each_time(manager: Manager) -> None:
    reports = ServiceManager(manager.environment)
    for said in ("copying", "copying", "copying", "messages: 40 %"):
        reports.busy(said)
    assert manager.hear("STATUS").endswith("STATUS=copying")
    assert manager.hear("STATUS").endswith("STATUS=messages: 40 %")


def test_a_loop_that_is_stuck_is_silent(tmp_path: Path, abstract_manager: Manager) -> None:
    manager = abstract_manager
    orders = DrillOrders(tmp_path / "orders")
    environment = manager.environment | {"LEGATO_HA_WATCHDOG_S": "0", VARIABLE: str(tmp_path / "orders")}
    with server(tmp_path / "store", environment=environment):
        manager.hear("WATCHDOG=1")
        orders.stick(Stuck.WAITING)
        manager.hear_nothing_for(2 * WATCHDOG_S)


def test_a_service_manager_that_is_gone_hurts_nobody(tmp_path: Path) -> None:
    environment = {"NOTIFY_SOCKET": str(tmp_path / "nobody"), "WATCHDOG_USEC": "400000"}
    with server(tmp_path / "store", environment=environment) as broker:
        assert broker.role == "active epoch=1"
        assert broker.stop() == 0


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_has_nothing_to_say_about_the_unit(tmp_path: Path) -> None:
    unit = (DEPLOY / "systemd" / "legato@.service").read_text()
    assert unit.count("/opt/legato/bin/legato") == 1
    path = tmp_path / "legato@.service"
    path.write_text(unit.replace("/opt/legato/bin/legato", sys.executable).replace("=legato\n", "=root\n"))
    run = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False)
    assert str(path) not in run.stdout + run.stderr
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_watchdog_of_the_unit_comes_after_that_of_the_broker() -> None:
    unit = (DEPLOY / "systemd" / "legato@.service").read_text()
    found = re.search(r"^WatchdogSec=(\d+)$", unit, re.MULTILINE)
    ha = load(DEPLOY / "systemd" / "a.toml", environment={}).ha
    assert found
    assert int(found[1]) > (ha.watchdog_s or ha.activation_interval_s)


def test_the_two_configurations_differ_in_their_ports_only() -> None:
    first, second = (tomllib.loads((DEPLOY / "systemd" / name).read_text()) for name in ("a.toml", "b.toml"))
    for each in (first, second):
        assert each["server"].pop("listen") in each["ha"]["addresses"]
        each["http"].pop("listen")
    assert first == second
    assert load(DEPLOY / "systemd" / "b.toml", environment={}).http_address == ("localhost", 9465)


def test_the_container_is_a_broker_with_settings_that_there_are() -> None:
    text = (DEPLOY / "container" / "Containerfile").read_text()
    environment = dict(re.findall(r"(LEGATO_\w+)=(\S+)", text))
    config = load(environment=environment)
    assert config.http_address == ("0.0.0.0", 9464)
    assert re.search(r'^CMD \["serve"\]$', text, re.MULTILINE)
    compose = (DEPLOY / "container" / "compose.yaml").read_text()
    for one in re.findall(r"environment: \{(LEGATO_HA.*)\}", compose):
        composed = load(environment=environment | dict(re.findall(r'(LEGATO_\w+): "([^"]*)"', one)))
        assert composed.ha.addresses
        assert see_usable(composed, Users())
    [command] = re.findall(r"command: \[(.*)\]", compose)
    words = [word.strip(' "') for word in command.split(",")]
    group = typer.main.get_command(app)
    group.commands[words[0]].make_context(words[0], words[1:]).close()  # type: ignore[attr-defined]
    assert compose.count("pid: host") > 0, "LMDB's table of readers knows processes by their numbers"


def test_the_service_beside_the_brokers_is_the_example_built_with_the_extra_that_it_needs() -> None:
    text, compose = ((DEPLOY / "container" / name).read_text() for name in ("Containerfile", "compose.yaml"))
    extras = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [default], [given] = re.findall(r"^ARG EXTRAS=(\w+)$", text, re.MULTILINE), re.findall(r"EXTRAS: (\w+)", compose)
    assert {default, given} <= extras.keys()
    assert text.count("[$EXTRAS]") == 2
    [directory], [program] = re.findall(r'"(\S+):/app:ro"', compose), re.findall(r"/app/(\w+\.py)\]", compose)
    source = (DEPLOY / "container" / directory / program).read_text()
    assert f"from legato.{given} import" in source
    assert set(re.findall(r"(BROKER_URL|ORDERS_\w+):", compose)) == set(re.findall(r'environ\.get\("(\w+)"', source))
