"""A disk that is full for primary and backup alike: whatever happens to a broker meanwhile, one serves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from legato.cli.management import request
from legato.cli.status import ask
from legato.client import ConnectionFactory, TextMessage
from legato.errors import ResourceAllocationError
from legato.ha.members import list_members
from legato.ha.roles import Role
from legato.store.environment import used_bytes
from legato.store.lmdb import LmdbStore
from tests.integration.ha.conftest import WAIT_S, WaitForRole
from tests.integration.ha.test_heartbeats import QUICK
from tests.integration.ha.test_switchover import legato, url_of
from tests.support.monitored import until
from tests.support.server import Server, free_port, server
from tests.support.small_disk import SmallDisk, small_disk

DISK_BYTES = 24 << 20
WITHOUT_RESERVE = QUICK | {"LEGATO_STORE_FREE_DISK_RESERVE_BYTES": "0"}
BODY = "x" * 20_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """The store's disk; logs are elsewhere, beside it."""
    with small_disk(tmp_path / "disk" / "store", DISK_BYTES) as disk:
        yield disk


@pytest.fixture
def pair(disk: SmallDisk) -> Iterator[tuple[Server, Server]]:
    """A primary and its backup over a store whose disk is empty."""
    with (
        server(disk.path, environment=WITHOUT_RESERVE) as primary,
        server(disk.path, environment=WITHOUT_RESERVE) as backup,
    ):
        backup.wait_for_log("heartbeats of epoch 1")
        yield primary, backup


def send_until_refused(url: str) -> int:
    """How many messages there was room for."""
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        producer = session.create_producer(session.create_queue("q"))
        for number in range(5_000):
            try:
                producer.send(TextMessage(f"{number} {BODY}"))
            except ResourceAllocationError:
                return number
    raise AssertionError("the disk took everything")


def numbers_received(url: str, count: int) -> list[int]:
    """What comes, in its order."""
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        consumer = session.create_consumer(session.create_queue("q"))
        connection.start()
        numbers: list[int] = []
        for _ in range(count):
            message = consumer.receive(timeout_s=WAIT_S)
            assert isinstance(message, TextMessage), f"{len(numbers)} of {count} came"
            numbers.append(int(str(message.text).split()[0]))
        return numbers


def wait_until_welcome(url: str) -> None:
    """Send until the broker takes it."""
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        producer = session.create_producer(session.create_queue("after"))

        def is_taken() -> bool:
            try:
                producer.send(TextMessage(BODY))
            except ResourceAllocationError:
                return False
            return True

        until(is_taken)


def test_a_primary_killed_on_a_full_disk_leaves_a_broker_that_serves(
    disk: SmallDisk, pair: tuple[Server, Server]
) -> None:
    """CORRECTNESS D2: the backup died of its members' file, and nobody served; consumers drain, and sends go on."""
    primary, backup = pair
    stored = send_until_refused(url_of(primary))
    disk.fill()
    primary.kill()
    backup.wait_for_role("active epoch=2")
    assert numbers_received(url_of(backup), stored) == list(range(stored))
    # The store's own pages are free again, although the disk is as full as before.
    wait_until_welcome(url_of(backup))
    disk.empty()
    wait_until_welcome(url_of(backup))


def test_a_switchover_on_a_full_disk_leaves_a_broker_that_serves(disk: SmallDisk, pair: tuple[Server, Server]) -> None:
    """CORRECTNESS D2: both brokers ended. Twice, so that each has been primary and backup on the full disk."""
    primary, backup = pair
    stored = send_until_refused(url_of(primary))
    disk.fill()
    done = legato("switchover", "--url", url_of(primary, backup))
    assert done.returncode == 0, done.stderr
    backup.wait_for_role("active epoch=2")
    primary.wait_for_log("heartbeats of epoch 2")
    assert legato("switchover", "--url", url_of(backup, primary)).returncode == 0
    primary.wait_for_role("active epoch=3")
    assert numbers_received(url_of(primary, backup), stored) == list(range(stored))
    wait_until_welcome(url_of(primary))


def test_a_backup_that_is_started_on_a_full_disk_takes_over(disk: SmallDisk, tmp_path: Path) -> None:
    """CORRECTNESS D2: it cannot record itself, so it tells the primary; a switchover finds it, a kill too."""
    with server(disk.path, environment=WITHOUT_RESERVE) as first:
        stored = send_until_refused(url_of(first))
        disk.fill()
        with server(disk.path, environment=WITHOUT_RESERVE) as second:
            second.wait_for_log("heartbeats of epoch 1")
            assert second.role == "backup"
            assert [member.pid for member in list_members(disk.path)] == [first.pid]
            until(lambda: ask(url_of(first))["failover"]["backups"] == [f"127.0.0.1:{second.port}"])
            request(url_of(first), "switchover", "broker")
            second.wait_for_role("active epoch=2")
            first.wait_for_log("heartbeats of epoch 2")
            second.kill()
            first.wait_for_role("active epoch=3")
            assert numbers_received(url_of(first), stored) == list(range(stored))
            disk.empty()
            second.start()
            second.wait_for_log("heartbeats of epoch 3")
            until(lambda: {member.pid for member in list_members(disk.path)} == {first.pid, second.pid})


def test_what_could_not_be_recorded_is_when_there_is_room_again(disk: SmallDisk, wait_for_role: WaitForRole) -> None:
    with server(disk.path, environment=WITHOUT_RESERVE) as first:
        disk.fill()
        with server(disk.path, environment=WITHOUT_RESERVE) as second:
            second.wait_for_log("cannot be recorded")
            disk.empty()
            wait_for_role(second, Role.BACKUP)
            wait_for_role(first, Role.PRIMARY)


def test_an_epoch_that_finds_no_room_at_all_begins_when_there_is_some(
    disk: SmallDisk, pair: tuple[Server, Server]
) -> None:
    """No reserve, and what the store's file has free is held by a reader: the broker waits instead of ending."""
    primary, backup = pair
    reader = LmdbStore(disk.path, read_only=True)
    with reader._env.begin():
        stored = send_until_refused(url_of(primary))
        backup.signal(signal.SIGSTOP)
        primary.kill()
        (disk.path / "reserve").unlink(missing_ok=True)
        os.truncate(disk.path / "data.mdb", used_bytes(reader._env))
        disk.fill()
        backup.signal(signal.SIGCONT)
        backup.wait_for_log("nobody is served until there is room")
        disk.empty()
        backup.wait_for_role("active epoch=2")
    assert numbers_received(url_of(backup), stored) == list(range(stored))


@pytest.mark.parametrize("left_bytes", [0, 8192, 20_000, 40_000, 60_000, 120_000])
def test_a_new_store_on_a_full_disk_begins_when_there_is_room(disk: SmallDisk, left_bytes: int) -> None:
    """What LMDB does without room is to leave half a file that nobody can open, or to be ended by SIGBUS."""
    disk.fill()
    disk.leave(left_bytes)
    broker = Server(disk.path / "new", environment=WITHOUT_RESERVE)
    broker.log = disk.path.parent / "new.log"
    broker.log.touch()
    with ThreadPoolExecutor(1) as executor:
        starting = executor.submit(broker.start)
        broker.wait_for_log("nobody is served until there is room")
        disk.empty()
        starting.result()
    assert broker.role == "active epoch=1"
    broker.kill()


def test_standard_output_on_a_full_disk_ends_no_broker(disk: SmallDisk) -> None:
    """What a broker says of itself is for information."""
    disk.fill()
    with (disk.path / "others").open("ab") as output:
        broker = subprocess.Popen(
            [
                *(sys.executable, "-m", "legato.cli", "serve", "--store", str(disk.path.parent / "elsewhere")),
                *("--listen", f"127.0.0.1:{free_port()}", "--no-ledger"),
            ],
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert broker.stderr is not None
    for line in broker.stderr:
        if "epoch 1 began" in line:
            break
    else:
        raise AssertionError("it ended")
    broker.terminate()
    assert "Traceback" not in broker.stderr.read()
    broker.wait(WAIT_S)
